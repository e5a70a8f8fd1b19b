"""The history of the house, newest first, by what somebody looks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from webapp.store.tables import Event, Member

PAGE = 100          # rows of one page
STEP = 1000         # rows of one step of an export


@dataclass(frozen=True, slots=True)
class Wanted:
    """Empty = whatever it is."""

    actor: str = ""             # a user name; HOUSE = the agent and the command line
    action: str = ""            # its beginning, such as "workspace" or "workspace.stop"
    object_id: str = ""
    since: datetime | None = None
    until: datetime | None = None       # not itself


HOUSE = "-"


@dataclass(frozen=True, slots=True)
class EventRow:
    id: int
    at: datetime
    actor: str | None           # user name; None = the agent, or the command line
    address: str | None
    action: str
    object_type: str
    object_id: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    rows: tuple[EventRow, ...]
    older: int | None           # `before` of the next page; None = that was all


def page(session: Session, wanted: Wanted, *, before: int | None = None) -> Page:
    """`before`: only events with a lower id. One statement."""
    rows = _rows(session, _matching(wanted, before).limit(PAGE + 1))
    return Page(rows[:PAGE], rows[PAGE - 1].id if len(rows) > PAGE else None)


def step(session: Session, wanted: Wanted, *, before: int | None) -> tuple[EventRow, ...]:
    """The next of an export, empty at its end: a long history is never in memory, nor in one view, as a whole."""
    return _rows(session, _matching(wanted, before).limit(STEP))


def _matching(wanted: Wanted, before: int | None) -> Select[Event, str | None]:
    found = select(Event, Member.username).outerjoin(Member, Member.id == Event.actor_id).order_by(Event.id.desc())
    if wanted.actor:
        found = found.where(Event.actor_id.is_(None) if wanted.actor == HOUSE else Member.username == wanted.actor)
    if wanted.action:
        found = found.where(Event.action.startswith(wanted.action, autoescape=True))
    if wanted.object_id:
        found = found.where(Event.object_id == wanted.object_id)
    if wanted.since is not None:
        found = found.where(Event.at >= wanted.since)
    if wanted.until is not None:
        found = found.where(Event.at < wanted.until)
    return found if before is None else found.where(Event.id < before)


def _rows(session: Session, found: Select[Event, str | None]) -> tuple[EventRow, ...]:
    return tuple(
        EventRow(event.id, event.at, username, event.address, event.action, event.object_type, event.object_id,
                 event.details)
        for event, username in session.execute(found))
