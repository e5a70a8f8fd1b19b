"""Keys that were in no backup: read back from the workspace itself, made anew only where nothing is left."""

from __future__ import annotations

import pytest
from datakey import SEAL

from agent.stage import Stage, check_at_rest
from agent.yesterday import put_on
from webapp.domain.container import File
from webapp.domain.workspace import Phase
from webapp.errors import EngineUnreachable
from webapp.services import workspaces
from webapp.services.workspaces import KeysNotBack
from webapp.store import sealing
from webapp.store.tables import Workspace, WorkspaceSecret

KEY = "/etc/berth/ssh_host_ed25519_key"


def secret(stage: Stage, workspace: Workspace) -> tuple[str, str, str] | None:
    with stage.store.read() as session:
        row = session.get(WorkspaceSecret, workspace.id)
        return row and (row.jupyter_token, row.host_private_key, row.host_public_key)


def lose(stage: Stage, workspace: Workspace) -> None:
    with stage.store.write() as session:
        session.delete(session.get_one(WorkspaceSecret, workspace.id))


@pytest.mark.parametrize("held", [False, True])
def test_running_one_has_its_own(stage: Stage, held: bool) -> None:
    workspace = stage.running()
    before = secret(stage, workspace)
    lose(stage, workspace)
    if held:
        put_on(stage)
    with pytest.raises(KeysNotBack):
        stage.do(workspaces.reveal, stage.cast.alice, workspace.id)
    stage.forget_calls()
    stage.live(15)
    assert secret(stage, workspace) == before and stage.deeds() == []
    assert stage.do(workspaces.reveal, stage.cast.alice, workspace.id).jupyter_token == (before or ("",))[0]


def test_stopped_one_starts_with_its_own(stage: Stage) -> None:
    workspace = stage.running()
    before = secret(stage, workspace)
    stage.stop(workspace)
    stage.settle()
    lose(stage, workspace)
    stage.start(workspace)
    stage.settle()
    assert secret(stage, workspace) == before and stage.noted(workspace) is None
    check_at_rest(stage)


def test_new_container_on_the_old_volume_has_its_own(stage: Stage) -> None:
    workspace = stage.running()
    before = secret(stage, workspace)
    stage.stop(workspace)
    stage.settle()
    stage.engine.remove_by_hand(stage.name(workspace))
    lose(stage, workspace)
    stage.start(workspace)
    stage.settle()
    assert secret(stage, workspace) == before


@pytest.mark.parametrize("left", [None, b"", b"no key", b"\xff"])
def test_where_nothing_is_left_it_gets_new_ones_and_says_so(stage: Stage, left: bytes | None) -> None:
    workspace = stage.running()
    before = secret(stage, workspace)
    stage.stop(workspace)
    stage.settle()
    stage.engine.remove_by_hand(stage.name(workspace))
    volume = stage.machine.volumes[f"berth-test1-w-{workspace.id}"]
    volume.clear()
    if left is not None:
        volume[KEY] = File(KEY, 0o600, 0, 0, left)
    lose(stage, workspace)
    stage.start(workspace)
    stage.settle()
    after = secret(stage, workspace)
    assert after is not None and after != before and stage.row(workspace).phase == Phase.RUNNING
    assert "keys were lost" in (stage.noted(workspace) or "")
    assert stage.engine.files(stage.name(workspace, 2))[KEY].content == after[1].encode()


def test_silent_engine_is_asked_again(stage: Stage) -> None:
    workspace = stage.running()
    before = secret(stage, workspace)
    lose(stage, workspace)
    stage.engine.fail_next("read_file", EngineUnreachable(host="gpu1", detail="late"))
    stage.live(30)
    assert secret(stage, workspace) == before


def test_removed_one_gets_none_back(stage: Stage) -> None:
    workspace = stage.running()
    stage.remove(workspace)
    stage.settle()
    stage.live(30)
    assert secret(stage, workspace) is None


def test_data_key_that_is_lost_is_said_and_loses_nothing(stage: Stage) -> None:
    workspace = stage.running()
    before = secret(stage, workspace)
    stage.stop(workspace)
    stage.settle()
    stage.engine.remove_by_hand(stage.name(workspace))
    dialect = stage.store.engine.dialect
    sealing.use(dialect, sealing.Seal(lambda: ("f" * 64,)))
    try:
        stage.start(workspace)
        stage.settle()
        assert stage.row(workspace).phase == Phase.FAILED and "data_key" in (stage.said(workspace) or "")
    finally:
        sealing.use(dialect, SEAL)
    stage.start(workspace)
    stage.settle()
    assert stage.row(workspace).phase == Phase.RUNNING and secret(stage, workspace) == before
