"""Fixtures of cards, of changes, and of transactions that overtake each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from agent.rack import Rack
from sqlalchemy import func, select, text

from webapp.domain.workspace import Phase
from webapp.services import changes, gpus, inventory, observations, volumes, workspaces
from webapp.services.changes import ChangeRequest
from webapp.services.inventory import Look
from webapp.store.tables import Host, Workspace, WorkspaceMount


@pytest.fixture
def see(store, cast, now):
    """see(rack or look, host) = the agent looked at the host's cards."""
    def run(seen, host_id=cast.host_id) -> None:
        look = seen if isinstance(seen, Look) else seen.look()
        with store.write() as session:
            assert inventory.record(session, host_id, look, epoch=cast.epoch, now=now)
    return run


@pytest.fixture
def rack(see) -> Rack:
    """Four cards in two pairs."""
    rack = Rack(4)
    see(rack)
    return rack


@pytest.fixture
def second_host(store, now) -> str:
    with store.write() as session:
        session.add(Host(id="h2", name="gpu2", engine_url="unix:///other", created_at=now + timedelta(days=1)))
    return "h2"


@pytest.fixture
def held(store):
    def read(workspace) -> list[str]:
        with store.read() as session:
            return list(gpus.held(session, workspace.id))
    return read


@pytest.fixture
def down(store, cast, seen, now):
    """down(workspace) = stopped, and the agent saw it and gave its cards back."""
    def run(workspace) -> None:
        seen(workspace, Phase.STOPPED)
        with store.write() as session:
            generation = session.get_one(Workspace, workspace.id).generation
            assert observations.release_gpus(session, workspace.id, generation=generation, epoch=cast.epoch, now=now)
    return run


@pytest.fixture
def stopped(do, launch, alice, down):
    """stopped(gpus="1") = a workspace that ran and holds nothing now."""
    def run(name: str = "run-1", **typed):
        workspace = launch(alice, name, **typed)
        do(workspaces.stop, alice, workspace.id)
        down(workspace)
        return workspace
    return run


@pytest.fixture
def change(do, house):
    """change(alice, workspace, memory="4GiB", …)"""
    def run(actor, workspace, *, start=False, **typed):
        return do(changes.change, actor, workspace.id, ChangeRequest(**typed), house=house, start=start)
    return run


@pytest.fixture
def runs(launch, alice, seen):
    """runs(gpus="1") = a workspace that runs."""
    def run(**typed):
        workspace = launch(alice, **typed)
        seen(workspace, Phase.RUNNING)
        return workspace
    return run


@pytest.fixture
def volume(do, cast, carol):
    def create(name, **changes):
        return do(volumes.create_volume, carol, name=name, roots=(), **{
            "team_id": cast.team_id, "host_folder": None, "target": None, "read_only": False, **changes})
    return create


@pytest.fixture
def mounts(store):
    def read(workspace):
        with store.read() as session:
            rows = session.scalars(select(WorkspaceMount).where(WorkspaceMount.workspace_id == workspace.id))
            return {row.volume_id: row.read_only for row in rows}
    return read


@dataclass
class Second:
    waited: bool
    result: Any = None
    error: BaseException | None = None


@pytest.fixture
def overtake(store):
    def run(first: Callable[..., Any], second: Callable[..., Any]) -> Second:
        def later() -> Any:
            with store.write() as session:
                return second(session)

        with ThreadPoolExecutor(1) as pool:
            with store.write() as session:
                first(session)
                session.flush()
                future = pool.submit(later)
                waited = waits(future)
            error = future.exception()
        return Second(waited, None if error else future.result(), error)

    def waits(future: Future[Any]) -> bool:
        """Until it waits for somebody's lock, or is done without."""
        waiting = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                       "AND wait_event_type = 'Lock'")
        while not wait([future], timeout=0.01).done:
            with store.read() as session:
                if session.scalar(waiting):
                    return True
        return False
    return run


@pytest.fixture
def rows(store):
    def count(table, *where) -> int:
        with store.read() as session:
            return session.scalar(select(func.count()).select_from(table).where(*where)) or 0
    return count
