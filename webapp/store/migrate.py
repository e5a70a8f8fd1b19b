"""Bring the database to what this code expects: one at a time, all of it or nothing."""

from __future__ import annotations

import fcntl
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError, OperationalError

from webapp.errors import N_, AppError
from webapp.store.postgresql import Lock, connect_alone, try_lock
from webapp.store.revisions import DatabaseAhead, DatabaseBehind, migrations_folder
from webapp.store.schema import check_current, current, reaching
from webapp.store.session import Store

LOCK_SECONDS = 60.0     # another process that migrates is given this long
LOCK_NOT_AVAILABLE = "55P03"
DEADLOCK = "40P01"
GATE_SECONDS = 2.0      # everybody else waits meanwhile, so for one transaction only; then they go first for a while
GATE_TRIES = 10
GATE_PAUSE_SECONDS = 1.0


class MigrationBusy(AppError):
    """Somebody else migrates this database and takes very long."""

    code, status, retry = "migration_busy", 503, True
    title = N_("Another process is upgrading the database. Wait for it to end, then try again.")


class TablesInUse(AppError):
    """Somebody works with the database for longer than a request takes: a backup, or somebody at a prompt."""

    code, status, retry = "tables_in_use", 503, True
    title = N_("The upgrade of the database was undone: somebody used its tables all the while. "
               "Try again, or stop Berth first.")


class MigrationBroken(AppError):
    """A migration would leave rows that point nowhere; nothing was changed."""

    code, status = "migration_broken", 500
    title = N_("The upgrade of the database was undone: rows of %(tables)s would point nowhere. "
               "Keep a copy of the database and report this.")


class MigrationFailed(AppError):
    """The database said no: no room, no right to make tables."""

    code, status = "migration_failed", 500
    title = N_("The upgrade of the database was undone: %(why)s.")


def upgrade(store: Store, folder: Path | None = None, *, lock_seconds: float = LOCK_SECONDS) -> bool:
    """Run the migrations that are missing; True if there were any.

    Others may be at work: the upgrade is one transaction, which falls between two of theirs (session.py).

    Raises:  DatabaseAhead: a newer Berth was here; DatabaseUnreachable; MigrationBusy; MigrationBroken;
             MigrationFailed; TablesInUse.
    """
    folder = folder or migrations_folder()
    with _alone(store, lock_seconds):
        behind = _is_behind(store, folder)
        if behind:
            _run(store, folder)
        return behind


def _is_behind(store: Store, folder: Path) -> bool:
    try:
        check_current(store, folder)
    except DatabaseBehind:
        return True
    return False


def _run(store: Store, folder: Path) -> None:
    """Both kinds change tables inside a transaction like anything else, so the whole upgrade is one."""
    try:
        with store.engine.execution_options(berth_write=True).connect() as connection:
            if store.is_sqlite:
                _run_on_sqlite(connection, folder)
            else:
                _run_on_postgresql(connection, folder)
    except DBAPIError as error:
        if _is_held_up(error):
            raise TablesInUse from error
        raise MigrationFailed(why=str(error.orig).strip().splitlines()[0].rstrip(".")) from error


def _is_held_up(error: DBAPIError) -> bool:
    sqlite_code = getattr(error.orig, "sqlite_errorcode", None)
    return sqlite_code == sqlite3.SQLITE_BUSY or _sqlstate(error) in (LOCK_NOT_AVAILABLE, DEADLOCK)


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _run_on_sqlite(connection: Connection, folder: Path) -> None:
    """Foreign keys are off meanwhile: a table that is made anew is dropped first, which would take its children along
    (sqlite.org/lang_altertable.html, the twelve steps). They are checked before the commit.
    """
    _foreign_keys(connection, "OFF")
    try:
        with connection.begin():
            command.upgrade(_config(folder, connection), "head")
            _check_foreign_keys(connection)
    finally:
        _foreign_keys(connection, "ON")


def _run_on_postgresql(connection: Connection, folder: Path) -> None:
    """Who is in a transaction has asked for the revision, and so holds `alembic_version`: once that is ours, nobody
    uses any table, and none has to be waited for while others wait for us.
    """
    for tries_left in reversed(range(GATE_TRIES)):
        try:
            with connection.begin():
                _take_the_gate(connection)
                command.upgrade(_config(folder, connection), "head")
            return
        except OperationalError as error:
            if not (_is_held_up(error) and tries_left):
                raise
        time.sleep(GATE_PAUSE_SECONDS)


def _take_the_gate(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{GATE_SECONDS:.1f}s'")
    if inspect(connection).has_table("alembic_version"):
        connection.exec_driver_sql("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")


def _config(folder: Path, connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _foreign_keys(connection: Connection, state: str) -> None:
    """Past SQLAlchemy, which would begin a transaction, inside which this pragma does nothing."""
    cursor = connection.connection.cursor()
    cursor.execute(f"PRAGMA foreign_keys={state}")
    cursor.close()


def _check_foreign_keys(connection: Connection) -> None:
    broken = {str(row[0]) for row in connection.exec_driver_sql("PRAGMA foreign_key_check")}
    if broken:
        raise MigrationBroken(tables=", ".join(sorted(broken)))


@contextmanager
def _alone(store: Store, seconds: float) -> Iterator[None]:
    """By locks that a killed process cannot leave behind."""
    path = store.sqlite_path
    if path is None:
        with reaching(store):
            connection = connect_alone(store.url)
        with closing(connection):
            _wait_until(lambda: try_lock(connection, Lock.MIGRATION), seconds)
            yield
    else:
        with path.with_name(f"{path.name}.migrate.lock").open("a") as lock:
            _wait_until(lambda: _try_flock(lock), seconds)
            yield


def _wait_until(taken: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not taken():
        if time.monotonic() >= deadline:
            raise MigrationBusy
        time.sleep(0.1)


def _try_flock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


__all__ = ["DatabaseAhead", "DatabaseBehind", "MigrationBroken", "MigrationBusy", "check_current", "current", "upgrade"]
