"""A SQLite database copied while it is written to, and put in the place of another one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from webapp.errors import N_, AppError
from webapp.store.files import as_owner_of, fsync_folder

BUSY_SECONDS = 5.0


class DatabaseInUse(AppError):
    """Somebody has it open; nothing was changed."""

    code, status, retry = "database_in_use", 409, True
    title = N_("The database %(database)s is in use: %(who)s. Stop web and agent first.")


class DatabaseDamaged(AppError):
    code, status = "database_damaged", 500
    title = N_("The database %(database)s cannot be read: %(why)s")


def copy(source: Path, target: Path, *, emptied: Iterable[str] = ()) -> None:
    """One moment of `source`, whole, whoever writes meanwhile: a reader of a WAL sees one state, and nobody waits.

    Args:    emptied: tables whose rows are left out, also from the pages that they were on.
    Raises:  DatabaseDamaged.
    """
    try:
        with closing(sqlite3.connect(source, timeout=BUSY_SECONDS)) as reader, closing(_open(target)) as copied:
            reader.backup(copied)
            copied.execute("PRAGMA journal_mode=DELETE")    # one file, without a -wal beside it
            for table in emptied:
                copied.execute(f'DELETE FROM "{table}"')    # noqa: S608
            copied.execute("VACUUM")
            _refuse_damage(copied, source)
    except sqlite3.DatabaseError as error:
        raise DatabaseDamaged(database=source, why=error) from error


def replace(live: Path, prepared: Path, kept: Path) -> None:
    """`prepared` is the database from here on, and the one before it is called `kept`. At every moment one of the two
    has the name `live`.

    Raises:  DatabaseInUse: some process has it open; nothing was changed.
    """
    if live.exists():
        _settle(live, kept)
        as_owner_of(live, prepared)
        os.link(live, kept)
    _sync(prepared)
    prepared.replace(live)
    fsync_folder(live.parent)


def settled(path: Path) -> None:
    """Nothing of it is in a -wal any more, and nobody uses it."""
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def _settle(live: Path, kept: Path) -> None:
    """Leaving WAL needs the database alone, so that it also tells whether anybody has it open (sqlite.org/wal.html).

    A damaged one tells nothing: what belongs to it goes along with it, or it would be played into the new one.
    """
    try:
        settled(live)
    except sqlite3.OperationalError as error:
        raise DatabaseInUse(database=live, who=error) from error
    except sqlite3.DatabaseError:
        for end in ("-wal", "-shm"):
            beside = live.with_name(live.name + end)
            if beside.exists():
                beside.rename(kept.with_name(kept.name + end))


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA secure_delete=ON")
    return connection


def _refuse_damage(connection: sqlite3.Connection, source: Path) -> None:
    said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        raise DatabaseDamaged(database=source, why=said)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
