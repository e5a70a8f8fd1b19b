"""The agent dies at each call to the engine while it changes a workspace that runs.

Whatever the moment, one of the two containers is whole, no card is in two, and the next agent ends it as wished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from faults.conftest import MakeHouse
from faults.crashing_agent import KILLED
from faults.invariants import check_always, check_at_rest, until_at_rest
from faults.scene import Scene, running, scene_with_cards, stopped
from faults.test_restarts import needs_root
from faults.workspace import Workspace
from webapp.domain.sizes import MIB
from webapp.domain.workspace import Phase

pytestmark = [pytest.mark.docker, needs_root]


@dataclass(frozen=True)
class Change:
    """`calls`: what is asked of the engine, in order; the first test says whether this is still true."""

    prepare: Callable[[Scene], Workspace]
    wish: Callable[[Workspace], Workspace]
    holds: Callable[[Workspace], bool]      # of one that was changed
    calls: tuple[str, ...]


def _other_cards(workspace: Workspace) -> Workspace:
    assert workspace.house.toolkit is not None
    others = set(workspace.house.toolkit.uuids) - set(workspace.cards())
    return workspace.change(gpu_uuids=tuple(sorted(others)), shm="80MiB")


def _shared_memory(workspace: Workspace) -> int:
    size = workspace.container().attrs["HostConfig"]["ShmSize"]
    assert isinstance(size, int)
    return size


MOVED = ("stop", "remove_image", "commit", "create", "put", "start", "exec", "remove")
CHANGES = {
    "others": Change(running, _other_cards, lambda one: len(one.cards()) == 2 and _shared_memory(one) == 80 * MIB,
                     MOVED),
    "none": Change(running, lambda one: one.change(gpus="0"), lambda one: one.cards() == [],
                   tuple(call for call in MOVED if call != "exec")),
    "limits": Change(running, lambda one: one.change(memory="300MiB", cpus="0.5"),
                     lambda one: one.container().attrs["HostConfig"]["Memory"] == 300 * MIB, ("update",)),
    "start": Change(stopped, lambda one: one.change(gpus="1", memory="300MiB", start=True),
                    lambda one: len(one.cards()) == 1, MOVED[1:]),
}
BROKEN = ("others", "limits", "start")      # to none it moves as to others
STEPS = [(name, number) for name in BROKEN for number in range(1, len(CHANGES[name].calls) + 1)]


def _id(step: tuple[str, int]) -> str:
    name, number = step
    return f"{name}-{number}-{CHANGES[name].calls[number - 1]}"


@pytest.fixture(scope="module")
def shared_scene(make_house: MakeHouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_with_cards(make_house, "changes", tmp_path_factory.mktemp("orders"), gpus="2") as scene:
        yield scene


@pytest.fixture
def scene(shared_scene: Scene) -> Iterator[Scene]:
    shared_scene.prepare()
    check_at_rest(shared_scene.house)
    assert shared_scene.house.workspaces() == []
    yield shared_scene


@pytest.mark.parametrize("name", CHANGES)
def test_change_makes_the_calls_that_are_broken_below(scene: Scene, name: str) -> None:
    change = CHANGES[name]
    workspace = change.prepare(scene)
    scene.order()

    change.wish(workspace).until(Phase.RUNNING)
    until_at_rest(scene.house)

    assert scene.calls() == change.calls
    _settle(scene, workspace, change)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=_id)
def test_next_agent_finishes_what_a_killed_one_began(scene: Scene, step: tuple[str, int], side: str) -> None:
    name, number = step
    change = CHANGES[name]
    workspace = change.prepare(scene)
    scene.order(crash=number, side=side)

    change.wish(workspace)
    assert scene.agent.wait_dead() == KILLED
    assert scene.calls() == change.calls[:number]
    check_always(scene.house)
    assert _is_kept_somewhere(workspace)
    scene.order()
    scene.start_agent()

    workspace.until(Phase.RUNNING)
    _settle(scene, workspace, change)


def _is_kept_somewhere(workspace: Workspace) -> bool:
    """What was written is in a container, whatever became of the others."""
    names = [one.attrs["Names"][0].lstrip("/") for one in workspace.containers()]
    return any(workspace.has_file("/opt/layer", name) for name in names)


def _settle(scene: Scene, workspace: Workspace, change: Change) -> None:
    """All is as it should be; then it is removed, and nothing is left."""
    until_at_rest(scene.house)
    assert change.holds(workspace) and workspace.row().before_change is None
    if workspace.cards():
        assert workspace.cards_inside() == workspace.cards()
    assert workspace.read_file("/opt/layer") == workspace.read_file("/home/alice/file") == b"kept\n"
    workspace.remove().until(Phase.REMOVED)
    check_at_rest(scene.house)
    assert workspace.containers() == [] and workspace.cards() == [] and scene.house.nameless_images() == []
