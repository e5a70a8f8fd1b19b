"""A workspace in which something was installed, and what must be true of it after a move."""

from __future__ import annotations

from typing import Any

from agent.stage import HOST, Stage, check_at_rest
from webapp.domain.container import ContainerState, File
from webapp.domain.workspace import Phase
from webapp.engines.fake_state import FakeContainer
from webapp.errors import EngineUnreachable
from webapp.store.tables import Workspace

INSTALLED = File("/opt/berth/py/installed", 0o644, 10000, 10000, b"with pip")
SILENCE = EngineUnreachable(host=HOST, detail="timed out")


def used(stage: Stage, **typed: Any) -> Workspace:
    """It runs, and something was installed in it."""
    workspace = stage.running(**typed)
    stage.engine.put(stage.name(workspace), [INSTALLED])
    stage.forget_calls()
    return workspace


def the_container(stage: Stage) -> FakeContainer:
    (container,) = stage.machine.containers.values()
    return container


def assert_moved(stage: Stage, workspace: Workspace, ports: dict[str, int]) -> FakeContainer:
    """Anew, with all that was in it, and the same way in."""
    stage.settle()
    container = the_container(stage)
    assert container.name == stage.name(workspace, 2) and container.state is ContainerState.RUNNING
    assert stage.engine.read_file(container.name, INSTALLED.path) == INSTALLED.content
    assert stage.ports(workspace) == ports
    row = stage.row(workspace)
    assert (row.phase, row.reason, row.note) == (Phase.RUNNING, None, None)
    assert list(stage.steps(workspace)) == [
        "kept", "created", "ssh", *(["gpus"] if row.gpu_count else []), "jupyter", "ready"]
    assert set(stage.steps(workspace).values()) == {"done"}
    check_at_rest(stage)
    stage.forget_calls()
    stage.settle()
    assert stage.deeds() == [], "a second look changed something"
    return container
