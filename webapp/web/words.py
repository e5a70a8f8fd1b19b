"""gettext with types: Flask-Babel has none. Import these, not Flask-Babel's."""

from __future__ import annotations

from typing import Any

import flask_babel


def gettext(message: str, **facts: Any) -> str:
    """The message in the reader's language; with facts its `%(name)s` places are filled."""
    return str(flask_babel.gettext(message, **facts)) if message else ""


def ngettext(one: str, many: str, count: int, **facts: Any) -> str:
    """`%(num)d` is the count."""
    return str(flask_babel.ngettext(one, many, count, **facts))
