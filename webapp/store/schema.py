"""Does the database fit this code? Asked by web and agent when they start, so it stays light: no Alembic in here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import OperationalError

from webapp.errors import N_, AppError
from webapp.store.session import Store

PACKAGE = Path(__file__).resolve().parent.parent
_REVISION = re.compile(r"""^revision\b[^=]*=\s*["'](\w+)["']""", re.MULTILINE)
_PARENT = re.compile(r"""^down_revision\b[^=]*=\s*["'](\w+)["']""", re.MULTILINE)


class DatabaseBehind(AppError):
    """The code expects tables that are not there yet."""

    code, status = "database_behind", 503
    title = N_("The database is older than this Berth (%(found)s, wanted %(wanted)s). Run: berth migrate")


class DatabaseAhead(AppError):
    """A newer Berth changed the tables; this one could write what the newer cannot read."""

    code, status = "database_ahead", 503
    title = N_("The database was upgraded by a newer Berth (%(found)s, which this one does not know). "
               "Start that version again, or restore the backup made before the upgrade.")


class DatabaseUnreachable(AppError):
    """PostgreSQL does not answer, or does not let us in."""

    code, status, retry = "database_unreachable", 503, True
    title = N_("The database %(database)s cannot be reached: %(why)s. Start it, or check BERTH_DATABASE_URL.")


def migrations_folder() -> Path:
    """Inside the package in a wheel, beside it in a checkout."""
    inside = PACKAGE / "migrations"
    return inside if inside.is_dir() else PACKAGE.parent / "migrations"


def check_current(store: Store, folder: Path | None = None) -> None:
    """Nothing when the database is exactly what this code expects.

    Raises:  DatabaseBehind, DatabaseAhead, DatabaseUnreachable.
    """
    known, head = _revisions(folder or migrations_folder())
    found = current(store)
    if found is not None and found not in known:
        raise DatabaseAhead(found=found)
    if found != head:
        raise DatabaseBehind(found=found or "empty", wanted=head)


def is_current(store: Store, folder: Path | None = None) -> bool:
    try:
        check_current(store, folder)
    except (DatabaseBehind, DatabaseAhead):
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
    with store.read() as session:
        if not inspect(session.connection()).has_table("alembic_version"):
            return None
        found = session.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _revisions(folder: Path) -> tuple[set[str], str | None]:
    """All revisions in `folder`, and the one that nothing follows."""
    sources = [path.read_text("utf-8") for path in sorted((folder / "versions").glob("*.py"))]
    known = {match[1] for source in sources if (match := _REVISION.search(source))}
    parents = {match[1] for source in sources if (match := _PARENT.search(source))}
    heads = known - parents
    if len(heads) > 1:
        raise RuntimeError(f"migrations must form one line, but they end in {sorted(heads)}")
    return known, heads.pop() if heads else None
