"""The database of a restore: what is there before, and the backup in its place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, inspect, select
from sqlalchemy.exc import DatabaseError

from webapp.services import restored
from webapp.services.restored import Restore
from webapp.settings import Settings
from webapp.store import copy_postgresql, copy_sqlite
from webapp.store.files import fsync_folder, unused
from webapp.store.migrate import upgrade
from webapp.store.session import Store
from webapp.store.tables import AgentState, Member, Team, Workspace

UNREADABLE = "an unknown number of"     # of a damaged database, which is a reason to restore one


@dataclass(frozen=True, slots=True)
class House:
    """Somebody's data: there is a member or a workspace, or nobody can tell."""

    members: int | str
    workspaces: int | str
    epoch: int = 0          # of its newest agent; 0 = none, or nobody can tell
    highest_uid: int = 0    # that it has given to a member; the same
    highest_gid: int = 0


def scratch(settings: Settings, store: Store) -> Path:
    """Where to unpack, on the disk of what is replaced."""
    path = store.sqlite_path
    return settings.state_dir / ".restore" if path is None else path.with_name(f".{path.name}.restore")


def house(store: Store) -> House | None:
    """None = nothing that could be lost. Past the sessions: the tables may be those of any version."""
    path = store.sqlite_path
    if path is not None and not path.exists():
        return None
    try:
        with store.engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            if Member.__tablename__ not in tables:
                return None
            members, workspaces = (connection.scalar(select(func.count()).select_from(table)) or 0
                                   for table in (Member, Workspace))
            numbers = (connection.scalar(select(column)) or 0
                       for column in (AgentState.epoch, func.max(Member.uid), func.max(Team.gid)))
            found = House(members, workspaces, *numbers)
    except DatabaseError:
        if path is None:
            raise
        return House(UNREADABLE, UNREADABLE)
    finally:
        store.close()
    return found if members or workspaces else None


def database(store: Store, settings: Settings, new: Path, restore: Restore, kept: str) -> Path | None:
    """`new` in the place of the database, on hold; where the former one is kept, None = there was none."""
    path = store.sqlite_path
    if path is None:
        return _postgresql(store, settings, new, restore, kept)
    _finish_file(new, restore)
    beside = unused(path.with_name(path.name + kept))
    was_there = path.exists()
    copy_sqlite.replace(path, new, beside)
    return beside if was_there else None


def _finish_file(new: Path, restore: Restore) -> None:
    """Upgraded and on hold before it gets its name."""
    prepared = Store(f"sqlite:///{new}")
    try:
        upgrade(prepared)
        with prepared.write() as session:
            restored.finish(session, restore)
    finally:
        prepared.close()
    copy_sqlite.settled(new)


def _postgresql(store: Store, settings: Settings, new: Path, restore: Restore, kept: str) -> Path | None:
    copy_postgresql.refuse_users(store)
    with store.engine.connect() as connection:
        was_there = bool(inspect(connection).get_table_names())
    beside = unused(settings.state_dir / f"postgresql.dump{kept}")
    if was_there:
        scratch = new.with_name("former")
        copy_postgresql.dump(store, scratch)
        scratch.chmod(0o600)
        os.replace(scratch, beside)
        fsync_folder(beside.parent)
    copy_postgresql.restore(store, new, afterwards=[restored.as_sql(restore)])
    upgrade(store)
    with store.write() as session:
        restored.finish(session, restore)
    return beside if was_there else None


