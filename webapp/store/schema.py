"""Does the database fit this code? Asked by web and agent when they start; each transaction asks again (session.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import OperationalError

from webapp.errors import N_, AppError
from webapp.store.revisions import DatabaseAhead, DatabaseBehind, OtherVersion, read
from webapp.store.session import Store


class DatabaseUnreachable(AppError):
    """PostgreSQL does not answer, or does not let us in."""

    code, status, retry = "database_unreachable", 503, True
    title = N_("The database %(database)s cannot be reached: %(why)s. Start it, or check BERTH_DATABASE_URL.")


def check_current(store: Store, folder: Path | None = None) -> None:
    """Nothing when the database is exactly what this code expects, or the migrations in `folder` make.

    Raises:  DatabaseBehind, DatabaseAhead, DatabaseUnreachable.
    """
    revisions = store.revisions if folder is None else read(folder)
    revisions.check(current(store))


def is_current(store: Store, folder: Path | None = None) -> bool:
    try:
        check_current(store, folder)
    except OtherVersion:
        return False
    return True


def current(store: Store) -> str | None:
    """The revision that the database says it has; None = no tables at all. Raises DatabaseUnreachable."""
    path = store.sqlite_path
    if path is not None:
        return _current(store) if path.exists() else None   # asking must not make an empty file
    with reaching(store):
        return _current(store)


@contextmanager
def reaching(store: Store) -> Iterator[None]:
    """What the driver says on the way to a PostgreSQL, as DatabaseUnreachable."""
    try:
        yield
    except OperationalError as error:
        raise unreachable(store, error) from error


def unreachable(store: Store, error: OperationalError) -> DatabaseUnreachable:
    return DatabaseUnreachable(database=store.place, why=str(error.orig).strip().splitlines()[0].rstrip("."))


def _current(store: Store) -> str | None:
    """Past the sessions, which refuse another revision."""
    with store.engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


__all__ = ["DatabaseAhead", "DatabaseBehind", "DatabaseUnreachable", "OtherVersion", "check_current", "current",
           "is_current", "reaching", "unreachable"]
