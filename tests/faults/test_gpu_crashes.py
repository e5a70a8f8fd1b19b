"""The agent of workspaces with cards dies, or stands still while another one takes over, at each call to the engine.

No card ever gets two holders, none is in a container whose workspace does not hold it, and all ends as wished.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.conftest import MakeHouse
from faults.crashing_agent import KILLED
from faults.invariants import check_always, check_at_rest, until_at_rest
from faults.scene import Flow, Scene, flows, scene_with_cards, stopped
from faults.test_restarts import needs_root
from faults.waiting import until
from faults.workspace import Workspace
from webapp.domain.workspace import RESTING, Phase

pytestmark = [pytest.mark.docker, needs_root]

# What each flow asks of the engine, in order; the first test says whether this is still true.
CALLS = {
    "launch": ("create", "put", "start", "exec"),
    "stop": ("stop",),
    "start": ("put", "start", "exec"),
    "move": ("remove_image", "commit", "create", "put", "start", "exec", "remove"),
    "remove": ("stop", "remove", "remove_volume"),
}
STEPS = [(flow, number) for flow, calls in CALLS.items() for number in range(1, len(calls) + 1)]


def _id(step: tuple[str, int]) -> str:
    flow, number = step
    return f"{flow}-{number}-{CALLS[flow][number - 1]}"


@pytest.fixture(scope="module")
def shared_scene(make_house: MakeHouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_with_cards(make_house, "gpucrash", tmp_path_factory.mktemp("orders"), gpus="2") as scene:
        yield scene


@pytest.fixture
def scene(shared_scene: Scene) -> Iterator[Scene]:
    """With a living agent that has no orders, and all four cards free."""
    shared_scene.prepare()
    check_at_rest(shared_scene.house)
    assert shared_scene.house.workspaces() == []
    yield shared_scene
    shared_scene.leave()


def _stopped_and_its_cards_taken(scene: Scene) -> Workspace:
    workspace = stopped(scene)
    scene.launch(gpu_uuids=tuple(workspace.row().gpu_uuids)).until(Phase.RUNNING)
    return workspace


FLOWS = flows(_stopped_and_its_cards_taken)


@pytest.mark.parametrize("name", FLOWS)
def test_flow_makes_the_calls_that_are_broken_below(scene: Scene, name: str) -> None:
    flow = FLOWS[name]
    prepared = flow.prepare(scene)
    scene.order()

    workspace = flow.wish(scene, prepared)
    workspace.until(flow.ends_in)
    until_at_rest(scene.house)

    assert scene.calls() == CALLS[name]
    _settle(scene, workspace, flow)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=_id)
def test_next_agent_finishes_what_a_killed_one_began(scene: Scene, step: tuple[str, int], side: str) -> None:
    name, number = step
    flow = FLOWS[name]
    prepared = flow.prepare(scene)
    scene.order(crash=number, side=side)

    workspace = flow.wish(scene, prepared)
    assert scene.agent.wait_dead() == KILLED
    assert scene.calls() == CALLS[name][:number]
    check_always(scene.house)
    scene.order()
    scene.start_agent()

    workspace.until(flow.ends_in)
    _settle(scene, workspace, flow)


@pytest.mark.sqlite     # PostgreSQL's lock stays with the one that stands still: nobody takes over
@pytest.mark.parametrize("step", STEPS, ids=_id)
def test_one_that_stood_still_does_no_harm_when_it_goes_on(scene: Scene, step: tuple[str, int]) -> None:
    """Meanwhile the cards have become somebody else's. Its call comes late, and what it starts by it is taken down."""
    name, number = step
    flow, house = FLOWS[name], scene.house
    prepared = flow.prepare(scene)
    scene.order(crash=number, side="pause")
    workspace = flow.wish(scene, prepared)
    until(lambda: scene.agent.is_paused, what=house.how_it_is)
    check_always(house)

    rival = house.start_rival()
    workspace.until(flow.ends_in)
    if flow.ends_in not in RESTING:
        workspace.stop().until(Phase.STOPPED)
    assert workspace.cards() == []
    heir = scene.launch(gpu_uuids=tuple(workspace.row().gpu_uuids))
    heir.until(Phase.RUNNING)
    check_always(house)
    before = (heir.cards(), heir.container().id, heir.container().attrs["State"]["StartedAt"])

    scene.agent.resume()
    scene.agent.wait_dead()                 # it learns that it was replaced
    if CALLS[name][number - 1] == "start":
        assert house.toolkit is not None
        until(lambda: "workspace.fenced" in rival.said(), what=house.how_it_is)
        assert house.toolkit.given(workspace.container().id)[-2:] == [",".join(heir.cards())] * 2
    until_at_rest(house)

    assert (heir.cards(), heir.container().id, heir.container().attrs["State"]["StartedAt"]) == before
    assert heir.cards_inside() == heir.cards() == sorted(workspace.row().gpu_uuids)
    assert workspace.row().phase in RESTING
    rival.stop()
    scene.prepare()
    _settle(scene, workspace, flow)


def _settle(scene: Scene, workspace: Workspace, flow: Flow) -> None:
    """All is as it should be; then the workspaces are removed, and nothing is left."""
    until_at_rest(scene.house)
    if workspace.row().phase == Phase.RUNNING:
        assert workspace.cards_inside() == workspace.cards()
    if flow.keeps_layer:
        assert workspace.read_file("/opt/layer") == workspace.read_file("/home/alice/file") == b"kept\n"
    there = [Workspace(scene.house, scene.alice, row.id) for row in scene.house.workspaces()]
    for one in there:
        one.remove()
    for one in there:
        one.until(Phase.REMOVED)
    check_at_rest(scene.house)
    assert workspace.containers() == [] and workspace.cards() == []
