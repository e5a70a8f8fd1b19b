"""Bring the database to what this code expects: one at a time, all of it or nothing."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from webapp.errors import N_, AppError
from webapp.store.schema import DatabaseAhead, DatabaseBehind, check_current, current, migrations_folder
from webapp.store.session import Store

LOCK_SECONDS = 60.0     # another process that migrates is given this long


class MigrationBusy(AppError):
    """Somebody else migrates this database and takes very long."""

    code, status, retry = "migration_busy", 503, True
    title = N_("Another process is upgrading the database. Wait for it to end, then try again.")


class MigrationBroken(AppError):
    """A migration would leave rows that point nowhere; nothing was changed."""

    code, status = "migration_broken", 500
    title = N_("The upgrade of the database was undone: rows of %(tables)s would point nowhere. "
               "Keep a copy of the database and report this.")


def upgrade(store: Store, folder: Path | None = None, *, lock_seconds: float = LOCK_SECONDS) -> bool:
    """Run the migrations that are missing; True if there were any.

    Raises:  DatabaseAhead: a newer Berth was here; MigrationBusy; MigrationBroken.
    """
    folder = folder or migrations_folder()
    path = store.sqlite_path
    if path is None:
        raise ValueError("only SQLite so far")
    with _alone(path.with_name(f"{path.name}.migrate.lock"), lock_seconds):
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
    """SQLite changes tables inside a transaction like anything else, so the whole upgrade is one.

    Foreign keys are off meanwhile: a table that is made anew is dropped first, which would take its children along
    (sqlite.org/lang_altertable.html, the twelve steps). They are checked before the commit.
    """
    with store.engine.execution_options(berth_write=True).connect() as connection:
        _foreign_keys(connection, "OFF")
        try:
            with connection.begin():
                command.upgrade(_config(folder, connection), "head")
                _check_foreign_keys(connection)
        finally:
            _foreign_keys(connection, "ON")


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
def _alone(path: Path, seconds: float) -> Iterator[None]:
    """flock, so that a killed process leaves no lock behind."""
    deadline = time.monotonic() + seconds
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise MigrationBusy from None
                time.sleep(0.1)
        yield


__all__ = ["DatabaseAhead", "DatabaseBehind", "MigrationBroken", "MigrationBusy", "check_current", "current", "upgrade"]
