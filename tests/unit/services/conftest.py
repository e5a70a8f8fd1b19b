"""Fixtures of cards and of changes: what the agent saw of a host, who holds what, and how it ends."""

from __future__ import annotations

from datetime import timedelta

import pytest
from agent.rack import Rack
from sqlalchemy import select

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
