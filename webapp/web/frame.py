"""What stands around every page: who is signed in, whether the agent is there, and whether it may act."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from flask import Flask, g

from webapp.store.reads import house
from webapp.store.reads.hold import Hold
from webapp.store.reads.house import SignOfLife
from webapp.web.context import now, reading, visitor

SILENT_AFTER = timedelta(seconds=15)    # the agent signs every few seconds, also while it pulls an image


@dataclass(frozen=True, slots=True)
class Silence:
    since: datetime | None      # None = it has never run


def install(app: Flask) -> None:
    """Last of all: the macros use what the others installed. As globals they are there in every block and part."""
    names = app.jinja_env.globals
    names.update(visitor=visitor, agent_silence=agent_silence, on_hold=on_hold)
    names["m"] = app.jinja_env.get_template("macros.html").module
    names["tools"] = app.jinja_env.get_template("parts/tools.html").module


def agent_silence() -> Silence | None:
    """None = the agent is there."""
    sign = _sign_of_life()
    if sign and sign.alive_at and now() - sign.alive_at <= SILENT_AFTER:
        return None
    return Silence(sign.alive_at if sign else None)


def on_hold() -> Hold | None:
    """None = Berth is not on hold."""
    sign = _sign_of_life()
    return sign.hold if sign else None


def _sign_of_life() -> SignOfLife | None:
    """Once for each answer."""
    if "sign_of_life" not in g:
        with reading() as db:
            g.sign_of_life = house.sign_of_life(db)
    found: SignOfLife | None = g.sign_of_life
    return found
