"""Log lines as text: what programs print is shown, never obeyed."""

from __future__ import annotations

import re

# Colours, cursor moves and other control characters: the log is shown as text (promises.md 74).
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str | None) -> str:
    return _CONTROL.sub("", (text or "").replace("\r\n", "\n"))
