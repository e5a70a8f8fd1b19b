"""The agent dies before or after each call by which it changes something on the engine; the next one puts it right."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from faults import standin
from faults.conftest import MakeHouse
from faults.crashing_agent import KILLED
from faults.invariants import check_always, check_at_rest, until_at_rest
from faults.scene import Flow, Scene, flows, stopped_and_its_port_taken
from faults.workspace import Workspace
from webapp.domain.workspace import Phase

pytestmark = pytest.mark.docker

# What each flow asks of the engine, in order; the first test says whether this is still true.
CALLS = {
    "launch": ("create", "put", "start"),
    "stop": ("stop",),
    "start": ("put", "start"),
    "move": ("put", "start", "remove_image", "commit", "create", "put", "start", "remove"),
    "remove": ("stop", "remove", "remove_volume"),
}
CASES = [
    pytest.param(flow, number, side, id=f"{flow}-{side}-{number}-{call}")
    for flow, calls in CALLS.items() for number, call in enumerate(calls, 1) for side in ("before", "after")
]
FLOWS = flows(stopped_and_its_port_taken)


@pytest.fixture(scope="module")
def shared_scene(make_house: MakeHouse, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    house = make_house("crashes")
    alice, image = house.add_person("alice"), house.add_image(standin.WORKSPACE)
    scene = Scene(house, alice, image, orders=tmp_path_factory.mktemp("orders"))
    scene.start_agent()
    return scene


@pytest.fixture
def scene(shared_scene: Scene) -> Iterator[Scene]:
    """With a living agent that has no orders."""
    shared_scene.prepare()
    yield shared_scene
    shared_scene.leave()


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


@pytest.mark.parametrize(("name", "number", "side"), CASES)
def test_next_agent_finishes_what_a_killed_one_began(scene: Scene, name: str, number: int, side: str) -> None:
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


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(20))
@pytest.mark.parametrize("name", FLOWS)
def test_agent_killed_at_any_moment_twice_in_a_row(scene: Scene, name: str, turn: int) -> None:
    """Also in the middle of a call, and the second one while it clears up."""
    flow, chance = FLOWS[name], random.Random(f"{name}{turn}")
    prepared = flow.prepare(scene)

    scene.order(crash=chance.randint(1, len(CALLS[name])), side=chance.choice(["before", "during", "after"]))
    workspace = flow.wish(scene, prepared)
    assert scene.agent.wait_dead() == KILLED
    check_always(scene.house)
    scene.order(crash=chance.randint(1, 3), side=chance.choice(["before", "during", "after"]))
    scene.start_agent()
    if workspace.until_row(lambda row: _arrived(row, flow) or not scene.agent.is_alive):
        scene.agent.kill()
    check_always(scene.house)
    scene.order()
    scene.start_agent()

    workspace.until(flow.ends_in)
    _settle(scene, workspace, flow)


def _arrived(row: Any, flow: Flow) -> bool:
    return row.observed_generation == row.generation and row.phase == flow.ends_in


def _settle(scene: Scene, workspace: Workspace, flow: Flow) -> None:
    """All is as it should be; then the workspace is removed, and nothing is left."""
    until_at_rest(scene.house)
    if flow.keeps_layer:
        assert workspace.read_file("/opt/layer") == workspace.read_file("/home/alice/file") == b"kept\n"
    workspace.remove().until(Phase.REMOVED)
    check_at_rest(scene.house)
    assert workspace.containers() == [] and workspace.ports() == {}
