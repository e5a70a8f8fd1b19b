"""Upgrades of the database: whole or not at all, one at a time, and never by an older Berth."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from databases import Databases
from datakey import SEAL
from sqlalchemy import inspect, text

from webapp.store.migrate import MigrationBroken, MigrationBusy, upgrade
from webapp.store.revisions import migrations_folder
from webapp.store.schema import DatabaseAhead, DatabaseBehind, check_current, current, is_current
from webapp.store.session import Store
from webapp.store.tables import Base

STEP = """
import sqlalchemy as sa
from alembic import op
revision = "{revision}"
down_revision = {parent!r}
def upgrade():
    {body}
"""


@pytest.fixture
def store(databases: Databases) -> Iterator[Store]:
    store = Store(databases.make("migrated"), seal=SEAL)
    yield store
    store.close()
    databases.drop("migrated")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Migrations of a house with parents and children."""
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    shutil.copy(migrations_folder() / "env.py", folder)
    write(folder, "0001", None, 'op.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)"); '
                                'op.execute("CREATE TABLE child (id INTEGER PRIMARY KEY, '
                                'parent_id INTEGER NOT NULL REFERENCES parent (id) ON DELETE CASCADE)")')
    return folder


def write(folder: Path, revision: str, parent: str | None, body: str) -> None:
    (folder / "versions" / f"{revision}.py").write_text(STEP.format(revision=revision, parent=parent, body=body))


def rows(store: Store, table: str) -> int:
    with store.engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


def add_family(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("INSERT INTO parent VALUES (1)"))
        connection.execute(text("INSERT INTO child VALUES (1, 1)"))


def test_migrations_make_the_tables_that_the_code_has(store: Store) -> None:
    assert upgrade(store)
    with store.read() as session:
        made = set(inspect(session.connection()).get_table_names())
    assert made - {"alembic_version"} == set(Base.metadata.tables)
    assert is_current(store)


def test_second_upgrade_changes_nothing(store: Store) -> None:
    assert upgrade(store)
    assert not upgrade(store)


def test_empty_database_counts_as_behind(store: Store) -> None:
    with pytest.raises(DatabaseBehind, match="berth migrate"):
        check_current(store)


@pytest.mark.sqlite
def test_database_that_is_not_there_stays_away(store: Store) -> None:
    assert current(store) is None
    assert store.sqlite_path is not None and not store.sqlite_path.exists()


def test_newer_database_is_refused(store: Store, folder: Path) -> None:
    write(folder, "0002", "0001", "pass")
    upgrade(store, folder)
    (folder / "versions" / "0002.py").unlink()
    for refused in (check_current, upgrade):
        with pytest.raises(DatabaseAhead, match="newer Berth"):
            refused(store, folder)


def test_upgrade_that_fails_half_way_leaves_nothing(store: Store, folder: Path) -> None:
    upgrade(store, folder)
    write(folder, "0002", "0001", 'op.add_column("parent", sa.Column("name", sa.String())); raise OSError("disk full")')
    with pytest.raises(OSError, match="disk full"):
        upgrade(store, folder)
    assert current(store) == "0001"
    with store.engine.connect() as connection:
        assert [column["name"] for column in inspect(connection).get_columns("parent")] == ["id"]


@pytest.mark.sqlite
def test_table_made_anew_keeps_the_rows_that_point_to_it(store: Store, folder: Path) -> None:
    upgrade(store, folder)
    add_family(store)
    write(folder, "0002", "0001", 'batch = op.batch_alter_table("parent", recreate="always"); '
                                  'b = batch.__enter__(); b.add_column(sa.Column("name", sa.String())); '
                                  'batch.__exit__(None, None, None)')
    upgrade(store, folder)
    assert (rows(store, "parent"), rows(store, "child")) == (1, 1)


@pytest.mark.sqlite
def test_upgrade_that_orphans_rows_is_undone(store: Store, folder: Path) -> None:
    upgrade(store, folder)
    add_family(store)
    write(folder, "0002", "0001", 'op.execute("DELETE FROM parent")')
    with pytest.raises(MigrationBroken, match="child"):
        upgrade(store, folder)
    assert (rows(store, "parent"), current(store)) == (1, "0001")


@pytest.mark.sqlite
def test_foreign_keys_hold_again_after_an_upgrade(store: Store, folder: Path) -> None:
    upgrade(store, folder)
    with store.engine.connect() as connection:
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1


@pytest.mark.sqlite
def test_second_upgrade_at_the_same_time_waits_then_says_so(store: Store) -> None:
    assert store.sqlite_path is not None
    with Path(f"{store.sqlite_path}.migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(MigrationBusy):
            upgrade(store, lock_seconds=0)
