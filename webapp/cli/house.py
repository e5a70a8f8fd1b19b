"""What commands share: the settings, a database that fits, the time, and names looked up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy.exc import OperationalError

from webapp.cli.failure import NoSuch, StateUnusable, WriteUndone
from webapp.domain.actor import Actor
from webapp.key_files import seal_of
from webapp.settings import Settings, load_settings
from webapp.store.failures import may_be_tried_again
from webapp.store.schema import check_current, unreachable
from webapp.store.session import Store

ACTOR = Actor.house()   # whoever may run `berth` on the server may do anything here
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class House:
    settings: Settings
    store: Store


@contextmanager
def open_house() -> Iterator[House]:
    """Settings, and the database when it fits this code.

    Raises:  SettingsError, DatabaseBehind, DatabaseAhead, DatabaseUnreachable, StateUnusable, WriteUndone.
    """
    settings = load_settings()
    store = Store(settings.database_url, seal=seal_of(settings))
    try:
        check_current(store)
        yield House(settings, store)
    except OperationalError as error:
        if may_be_tried_again(error):
            raise WriteUndone from error
        if store.is_sqlite:
            raise StateUnusable(path=store.place, why=error.orig) from error
        raise unreachable(store, error) from error
    finally:
        store.close()


def now() -> datetime:
    return datetime.now(UTC)


def pick(rows: Sequence[_Row], name: str, *, by: str, what: str) -> _Row:
    """The row whose attribute `by` is `name`. Raises NoSuch, naming `what` was looked for."""
    for row in rows:
        if getattr(row, by) == name:
            return row
    raise NoSuch(what=what, name=name)


def fields(row: Any, *names: str) -> dict[str, Any]:
    """Some attributes of a row, in that order."""
    return {name: getattr(row, name) for name in names}
