"""What stands around every page: who is signed in, and whether the agent is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from flask import Flask

from webapp.store.reads import house
from webapp.web.context import now, reading, visitor

SILENT_AFTER = timedelta(seconds=15)    # the agent signs every few seconds, also while it pulls an image


@dataclass(frozen=True, slots=True)
class Silence:
    since: datetime | None      # None = it has never run


def install(app: Flask) -> None:
    """Last of all: the macros use what the others installed. As globals they are there in every block and part."""
    names = app.jinja_env.globals
    names.update(visitor=visitor, agent_silence=agent_silence)
    names["m"] = app.jinja_env.get_template("macros.html").module
    names["tools"] = app.jinja_env.get_template("parts/tools.html").module


def agent_silence() -> Silence | None:
    """None = the agent is there."""
    with reading() as db:
        sign = house.sign_of_life(db)
    if sign and sign.alive_at and now() - sign.alive_at <= SILENT_AFTER:
        return None
    return Silence(sign.alive_at if sign else None)
