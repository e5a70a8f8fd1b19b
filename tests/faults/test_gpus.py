"""Workspaces with cards on a real engine: each has those that it holds, as the toolkit handed them out, and no other.

The engine is this file's own; its toolkit is the stand-in, whose log is the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from docker.types import DeviceRequest

from faults import standin
from faults.conftest import MakeHouse
from faults.invariants import check_always, check_at_rest, until_at_rest
from faults.scene import Scene, scene_with_cards
from faults.test_restarts import needs_root
from faults.toolkit import Toolkit
from faults.waiting import until
from faults.workspace import Workspace, now
from webapp.domain.gpu import Condition
from webapp.domain.workspace import Health, Phase
from webapp.errors import NoCapacity
from webapp.store.tables import Gpu

pytestmark = [pytest.mark.docker, needs_root]

HOUR = 3600.0


@pytest.fixture(scope="module")
def shared_scene(make_house: MakeHouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_with_cards(make_house, "cards", tmp_path_factory.mktemp("orders")) as scene:
        yield scene


@pytest.fixture
def scene(shared_scene: Scene) -> Iterator[Scene]:
    """With a living agent, and all four cards free at the end."""
    shared_scene.prepare()
    yield shared_scene
    left = [Workspace(shared_scene.house, shared_scene.alice, row.id) for row in shared_scene.house.workspaces()]
    for workspace in left:
        workspace.remove()
    for workspace in left:
        workspace.until(Phase.REMOVED)
    check_at_rest(shared_scene.house)


@pytest.fixture
def toolkit(scene: Scene) -> Toolkit:
    assert scene.house.toolkit is not None
    return scene.house.toolkit


# -- as it should be


def test_two_cards_are_inside_and_those_alone(scene: Scene, toolkit: Toolkit) -> None:
    two, none = scene.launch(gpus="2"), scene.launch()
    for workspace in (two, none):
        workspace.until(Phase.RUNNING)

    held = two.cards()

    assert len(held) == 2 and two.cards_inside() == held
    assert toolkit.given(two.container().id) == [",".join(held)]
    assert none.cards() == [] and toolkit.given(none.container().id) == []
    assert none.container().exec_run(["ls", "/usr/bin/nvidia-smi"]).exit_code != 0
    check_at_rest(scene.house)


def test_stop_frees_and_start_takes_the_same(scene: Scene, toolkit: Toolkit) -> None:
    workspace = scene.launch(gpus="1")
    workspace.until(Phase.RUNNING)
    held, container = workspace.cards(), workspace.container()

    workspace.stop().until(Phase.STOPPED)
    assert workspace.cards() == []
    workspace.start().until(Phase.RUNNING)

    assert workspace.cards() == workspace.cards_inside() == held
    assert workspace.container().id == container.id and toolkit.given(container.id) == held * 2


def test_start_moves_to_others_where_its_own_are_taken(scene: Scene, toolkit: Toolkit) -> None:
    first = scene.launch(gpus="2")
    first.until(Phase.RUNNING)
    first.run("sh", "-c", "echo kept > /opt/layer")
    taken = first.cards()
    first.stop().until(Phase.STOPPED)
    second = scene.launch(gpu_uuids=tuple(taken))
    second.until(Phase.RUNNING)

    row = first.start().until(Phase.RUNNING)

    assert second.cards() == second.cards_inside() == taken
    assert first.cards() == first.cards_inside() == sorted(set(toolkit.uuids) - set(taken))
    assert toolkit.given(first.container().id) == [",".join(first.cards())]
    assert first.read_file("/opt/layer") == b"kept\n"
    assert row.note is not None and row.note["code"] == "gpus_changed"
    until_at_rest(scene.house)


def test_nobody_gets_a_card_that_is_held(scene: Scene, toolkit: Toolkit) -> None:
    scene.launch(gpus="3").until(Phase.RUNNING)

    with pytest.raises(NoCapacity) as caught:
        scene.launch(gpus="2")

    assert (caught.value.facts["wanted"], caught.value.facts["largest_free"]) == (2, 1)
    check_at_rest(scene.house)


# -- a toolkit that is wrong, late or at a loss


@pytest.mark.parametrize("which", ["another", "one more"])
def test_other_cards_than_held_are_taken_from_it_at_once(scene: Scene, toolkit: Toolkit, which: str) -> None:
    mine, others = toolkit.uuids[0], toolkit.uuids[3]
    given = [others] if which == "another" else [mine, others]
    toolkit.hand_out_instead(*given)

    workspace = scene.launch(gpu_uuids=(mine,))
    row = workspace.until(Phase.FAILED)

    assert row.reason == {"code": "gpus_differ", "facts": {"held": mine, "seen": ", ".join(sorted(given))}}
    until(lambda: workspace.cards() == [], what=workspace.how_it_is)
    assert [one.attrs["State"] for one in workspace.containers()] == ["exited"]
    until_at_rest(scene.house)
    workspace.start().until(Phase.RUNNING)
    assert workspace.cards_inside() == [mine]


def test_driver_that_comes_late_is_waited_for(scene: Scene, toolkit: Toolkit) -> None:
    before = len(toolkit.errors())
    toolkit.fail_next(2)

    workspace = scene.launch(gpus="1")
    waiting = workspace.until_row(lambda row: row.reason is not None)
    assert waiting.reason is not None and waiting.reason["code"] == "gpus_refused"
    assert "initialization error" in waiting.reason["facts"]["detail"] and len(workspace.cards()) == 1
    row = workspace.until(Phase.RUNNING)

    assert (row.reason, row.failures) == (None, 0) and workspace.cards_inside() == workspace.cards()
    assert len(toolkit.errors()) - before == 2


def test_card_that_the_toolkit_does_not_know_is_named_and_tried_again_in_peace(scene: Scene, toolkit: Toolkit) -> None:
    mine, before = toolkit.uuids[2], len(toolkit.errors())
    with toolkit.without(mine):
        workspace = scene.launch(gpu_uuids=(mine,))
        row = workspace.until_row(lambda row: row.failures == 2)
        assert row.reason is not None and row.reason["code"] == "gpus_refused"
        assert f"device error: {mine}: unknown device" in row.reason["facts"]["detail"]
        assert row.next_try_at is not None and len(toolkit.errors()) - before == 2
        assert workspace.cards() == [mine]

    workspace.until(Phase.RUNNING)
    assert workspace.cards_inside() == [mine]


def test_container_that_got_no_card_has_failed_and_says_what_it_said(scene: Scene, toolkit: Toolkit) -> None:
    """Looked at four times: a driver may be slow."""
    toolkit.hand_out_instead()
    workspace = scene.launch(gpus="1")

    row = workspace.until(Phase.FAILED)

    assert row.reason is not None and row.reason["code"] == "gpus_unseen" and "nvidia-smi" in str(row.reason["facts"])
    until(lambda: workspace.cards() == [], what=workspace.how_it_is)
    until_at_rest(scene.house)


# -- what happens to cards


def test_card_that_falls_off_is_told_of_and_given_to_nobody(scene: Scene, toolkit: Toolkit) -> None:
    workspace = scene.launch(gpus="1")
    workspace.until(Phase.RUNNING)
    [mine] = workspace.cards()
    started = workspace.container().attrs["State"]["StartedAt"]
    with toolkit.fault(mine, "gone"):
        until(lambda: _gpu(scene, mine).condition == Condition.LOST, what=scene.house.how_it_is)
        row = workspace.until_row(lambda row: row.health == Health.DEGRADED)
        assert row.phase == Phase.RUNNING and row.reason is not None and row.reason["code"] == "gpu_vanished"
        assert workspace.cards() == [mine] and workspace.container().attrs["State"]["StartedAt"] == started
        with pytest.raises(NoCapacity):
            scene.launch(gpu_uuids=(mine,))
        workspace.stop().until(Phase.STOPPED)
        assert workspace.cards() == []
        with pytest.raises(NoCapacity) as caught:
            scene.launch(gpus="4")
        assert caught.value.facts["largest_free"] == 3

    until(lambda: _gpu(scene, mine).refusal is None, what=scene.house.how_it_is)
    workspace.start().until(Phase.RUNNING)
    assert workspace.cards_inside() == [mine]


@pytest.mark.parametrize("asks", ["for one", "for all"])
def test_somebody_elses_container_makes_its_cards_busy(scene: Scene, toolkit: Toolkit, asks: str) -> None:
    one = toolkit.uuids[1]
    request = DeviceRequest(device_ids=[one], capabilities=[["gpu"]]) if asks == "for one" else DeviceRequest(
        count=-1, capabilities=[["gpu"]])
    name = f"notebook-{asks.replace(' ', '-')}"
    foreign = scene.house.docker.containers.run(
        standin.WITH_PYTHON, name=name, detach=True, network_mode="none", device_requests=[request])
    try:
        busy = [one] if asks == "for one" else toolkit.uuids
        until(lambda: all(_gpu(scene, uuid).refusal for uuid in busy), what=scene.house.how_it_is)
        refusal = _gpu(scene, one).refusal
        assert refusal is not None and refusal["code"] == "gpu_busy" and refusal["facts"]["who"] == name
        with pytest.raises(NoCapacity):
            scene.launch(gpu_uuids=(one,))
        assert [_gpu(scene, uuid).refusal for uuid in set(toolkit.uuids) - set(busy)] == [None] * (4 - len(busy))
    finally:
        foreign.remove(force=True)

    until(lambda: not any(_gpu(scene, uuid).refusal for uuid in toolkit.uuids), what=scene.house.how_it_is)
    scene.launch(gpu_uuids=(one,)).until(Phase.RUNNING)


# -- the clock (F14)


@pytest.mark.parametrize("hours", [1, -1])
def test_clock_that_jumps_frees_nothing_and_stops_nothing(scene: Scene, hours: int) -> None:
    running, stopped = scene.launch(gpus="2"), scene.launch(gpus="1")
    for workspace in (running, stopped):
        workspace.until(Phase.RUNNING)
    stopped.stop().until(Phase.STOPPED)
    before, held = running.container().attrs["State"]["StartedAt"], running.cards()
    try:
        jumped = _jump(scene, hours * HOUR)
        until(lambda: jumped(scene.house.host().seen_at), what=scene.house.how_it_is)       # a pass, under that clock
        until(lambda: jumped(scene.house.host().gpus_seen_at), what=scene.house.how_it_is)

        assert running.row().phase == Phase.RUNNING and running.cards() == held
        assert running.container().attrs["State"]["StartedAt"] == before and stopped.cards() == []
        check_always(scene.house)
        stopped.start().until(Phase.RUNNING)        # and what is asked for is done as ever
        stopped.stop().until(Phase.STOPPED)
        assert stopped.cards() == [] and running.cards() == held
    finally:
        scene.set_clock(ahead_seconds=0)
    assert running.container().attrs["State"]["StartedAt"] == before
    check_at_rest(scene.house)


def _jump(scene: Scene, seconds: float) -> Callable[[Any], bool]:
    """Sets the agent's clock; the function tells a moment of the new time from one of the old."""
    middle = now() + timedelta(seconds=seconds / 2)
    scene.set_clock(ahead_seconds=seconds)
    return lambda moment: moment > middle if seconds > 0 else moment < middle


def _gpu(scene: Scene, uuid: str) -> Gpu:
    with scene.house.store.read() as session:
        return session.get_one(Gpu, (scene.house.host().id, uuid))
