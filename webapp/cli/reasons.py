"""Reasons of rows as a terminal tells them: in English, which is the language of the command line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from webapp.domain.wordings import WORDINGS
from webapp.errors import fill


def sentence(reason: Mapping[str, Any]) -> str:
    """What happened. A code of a newer agent is shown as it is, a fact that is missing as “?”."""
    wording = WORDINGS.get(reason["code"])
    return fill(wording.title, defaultdict(lambda: "?", reason.get("facts") or {})) if wording else str(reason["code"])


def advice(reason: Mapping[str, Any]) -> str:
    """What to do; "" = nothing is known."""
    wording = WORDINGS.get(reason["code"])
    return wording.next if wording else ""
