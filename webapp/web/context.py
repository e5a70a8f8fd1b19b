"""What every view needs: the settings, the database and the clock of the application that answers, and who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flask import current_app, g, request
from flask_login import UserMixin
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.house import HouseRules
from webapp.settings import Settings
from webapp.store.session import Store

Clock = Callable[[], datetime]
EXTENSION = "berth"


@dataclass(frozen=True, slots=True)
class Berth:
    settings: Settings
    store: Store
    clock: Clock
    rules: HouseRules


@dataclass(frozen=True, slots=True)
class SignedIn(UserMixin):  # type: ignore[misc]   # flask_login has no types
    """The person behind a request, as read at its start."""

    id: str
    username: str
    display_name: str
    is_admin: bool
    language: str | None
    session_id: str         # of this browser
    proven_at: datetime     # when the password was given in it last
    token: str = field(repr=False)      # what its cookie holds

    def get_id(self) -> str:
        return self.token


def utc_now() -> datetime:
    return datetime.now(UTC)


def here() -> Berth:
    berth: Berth = current_app.extensions[EXTENSION]
    return berth


def now() -> datetime:
    return here().clock()


def reading() -> AbstractContextManager[Session]:
    return here().store.read()


@contextmanager
def writing() -> Iterator[Session]:
    with here().store.write() as session:
        yield session
    g.has_written = True    # see again.py


def member() -> SignedIn:
    """The person signed in; only views behind the gate call this."""
    found: SignedIn = g.member
    return found


def visitor() -> SignedIn | None:
    """The person signed in, or None. Asks no database, so that error pages can use it."""
    found: SignedIn | None = g.get("member")
    return found


def actor() -> Actor:
    return Actor(member_id=member().id, is_admin=member().is_admin, address=request.remote_addr)


def stranger() -> Actor:
    """Somebody who is not signed in."""
    return Actor(member_id=None, is_admin=False, address=request.remote_addr)
