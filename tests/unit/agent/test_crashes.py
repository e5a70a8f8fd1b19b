"""kill -9 at every moment of every flow: the next agent finishes what was begun, and nothing is there twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from sqlalchemy import select

from agent.faults import Crash, MomentousEngine, MomentousStore, Moments, die
from agent.rack import card
from agent.stage import HOST, Stage, check, check_at_rest, trespassing
from webapp.domain.container import File, Room
from webapp.domain.sizes import GIB, MIB
from webapp.domain.workspace import Desired, Phase
from webapp.errors import EngineRejected
from webapp.store.tables import Workspace

INSTALLED = File("/opt/berth/py/installed", 0o644, 10000, 10000, b"with pip")


def launched(stage: Stage, name: str) -> Workspace:
    return stage.launch(name=name)


def started(stage: Stage, name: str) -> Workspace:
    workspace = stopped(stage, name)
    stage.start(workspace)
    return workspace


def stopped(stage: Stage, name: str) -> Workspace:
    workspace = stopping(stage, name)
    stage.settle()
    return workspace


def stopping(stage: Stage, name: str) -> Workspace:
    workspace = stage.running(name=name)
    stage.engine.put(stage.name(workspace), [INSTALLED])
    stage.stop(workspace)
    return workspace


def removing(stage: Stage, name: str) -> Workspace:
    workspace = stage.running(name=name)
    stage.remove(workspace)
    return workspace


def moving(stage: Stage, name: str) -> Workspace:
    workspace = stopped(stage, name)
    stage.engine.taken_ports.add(stage.ports(workspace)["ssh"])
    stage.start(workspace)
    return workspace


def launched_on_a_taken_port(stage: Stage, name: str) -> Workspace:
    workspace = stage.launch(name=name)
    stage.engine.taken_ports.add(stage.ports(workspace)["ssh"])
    return workspace


def ended_in_a_crash(stage: Stage, name: str) -> Workspace:
    workspace = stage.running(name=name)
    stage.engine.put(stage.name(workspace), [INSTALLED])
    stage.engine.end(stage.name(workspace), 1)
    return workspace


def on_cards(stage: Stage) -> None:
    """The host has three cards, and nobody has one of them."""
    if not stage.rack.uuids:
        stage.add_cards(3)
    with stage.store.read() as session:
        holders = session.scalars(select(Workspace).where(Workspace.desired != Desired.REMOVED)).all()
    for workspace in holders:
        stage.remove(workspace)
    stage.settle()


def launched_on_cards(stage: Stage, name: str) -> Workspace:
    on_cards(stage)
    return stage.launch(name=name, gpus="2")


def stopping_with_cards(stage: Stage, name: str) -> Workspace:
    on_cards(stage)
    workspace = stage.running(name=name, gpus="2")
    stage.engine.put(stage.name(workspace), [INSTALLED])
    stage.stop(workspace)
    return workspace


def started_on_its_cards(stage: Stage, name: str) -> Workspace:
    workspace = stopping_with_cards(stage, name)
    stage.settle()
    stage.start(workspace)
    return workspace


def started_on_other_cards(stage: Stage, name: str) -> Workspace:
    workspace = stopping_with_cards(stage, name)
    stage.settle()
    stage.running(name=f"{name}-faster", gpu_uuids=(card(0),))
    stage.start(workspace)
    return workspace


def removing_with_cards(stage: Stage, name: str) -> Workspace:
    on_cards(stage)
    workspace = stage.running(name=name, gpus="2")
    stage.remove(workspace)
    return workspace


def ended_by_hand_with_cards(stage: Stage, name: str) -> Workspace:
    on_cards(stage)
    workspace = stage.running(name=name, gpus="2")
    stage.engine.end(stage.name(workspace), 143, by_hand=True)
    return workspace


def used(stage: Stage, name: str, **typed: Any) -> Workspace:
    if typed:
        on_cards(stage)
    workspace = stage.running(name=name, **typed)
    stage.engine.put(stage.name(workspace), [INSTALLED])
    return workspace


def given_other_limits(stage: Stage, name: str) -> Workspace:
    workspace = used(stage, name)
    stage.change(workspace, cpus="4", memory="16GiB")
    return workspace


def given_other_memory_to_share(stage: Stage, name: str) -> Workspace:
    workspace = used(stage, name)
    stage.change(workspace, shm="4GiB")
    return workspace


def given_another_card(stage: Stage, name: str) -> Workspace:
    workspace = used(stage, name, gpus="2")
    stage.change(workspace, gpu_uuids=(card(1), card(2)), memory="4GiB")
    return workspace


def left_without_cards(stage: Stage, name: str) -> Workspace:
    workspace = used(stage, name, gpus="1")
    stage.change(workspace, gpus="0")
    return workspace


def started_with_more_cards(stage: Stage, name: str) -> Workspace:
    workspace = used(stage, name, gpus="1")
    stage.stop(workspace)
    stage.settle()
    stage.change(workspace, start=True, gpus="3")
    return workspace


def changed_without_room(stage: Stage, name: str) -> Workspace:
    workspace = used(stage, name, gpus="1")
    stage.machine.room = Room(MIB, GIB)
    stage.change(workspace, gpu_uuids=(card(1), card(2)))
    return workspace


def changed_and_not_kept(stage: Stage, name: str) -> Workspace:
    """It is stopped already when the engine refuses."""
    stage.engine._failures.clear()
    workspace = used(stage, name, gpus="1")
    for _ in range(2):
        stage.engine.fail_next("commit", EngineRejected(host=HOST, detail="max depth exceeded"))
    stage.change(workspace, gpu_uuids=(card(1), card(2)))
    return workspace


Begin = Callable[[Stage, str], Workspace]
FLOWS: dict[Begin, tuple[Phase, int]] = {       # how it begins: where it ends, how many moments it has at least
    launched: (Phase.RUNNING, 10),
    launched_on_a_taken_port: (Phase.RUNNING, 15),
    stopping: (Phase.STOPPED, 5),
    started: (Phase.RUNNING, 7),
    removing: (Phase.REMOVED, 9),
    moving: (Phase.RUNNING, 15),
    ended_in_a_crash: (Phase.RUNNING, 7),
    launched_on_cards: (Phase.RUNNING, 11),
    stopping_with_cards: (Phase.STOPPED, 6),
    started_on_its_cards: (Phase.RUNNING, 8),
    started_on_other_cards: (Phase.RUNNING, 15),
    removing_with_cards: (Phase.REMOVED, 10),
    ended_by_hand_with_cards: (Phase.STOPPED, 2),
    given_other_limits: (Phase.RUNNING, 4),
    given_other_memory_to_share: (Phase.RUNNING, 18),
    given_another_card: (Phase.RUNNING, 20),
    left_without_cards: (Phase.RUNNING, 18),
    started_with_more_cards: (Phase.RUNNING, 18),
    changed_without_room: (Phase.RUNNING, 2),
    changed_and_not_kept: (Phase.RUNNING, 9),
}
CHANGES = list(FLOWS)[-7:]
soak = pytest.mark.soak


def run_into(stage: Stage, workspace: Workspace, moments: Moments) -> None:
    """An agent works on it until it rests or dies."""
    engine, store = MomentousEngine(stage.engine, moments), MomentousStore(stage.store, moments)
    context = stage.take_over(engine=cast(Any, engine), store=cast(Any, store))
    stage.work_on(workspace, context)
    if stage.row(workspace).next_try_at is not None:
        stage.clock.sleep(5)
        stage.work_on(workspace, context)


def finish(stage: Stage, workspace: Workspace) -> None:
    stage.settle()
    if stage.row(workspace).next_try_at is not None:
        stage.live(6)


@pytest.mark.parametrize("begin", [pytest.param(begin, marks=[soak] if begin is launched_on_a_taken_port else [])
                                   for begin in FLOWS])
def test_killed_at_any_moment(stage: Stage, begin: Begin) -> None:
    """F2, F3"""
    came, done, (end, least) = True, list[Workspace](), FLOWS[begin]
    while came:
        workspace, moments = begin(stage, f"run-{len(done)}"), Moments(len(done) + 1, die)
        with suppress(Crash):
            run_into(stage, workspace, moments)
        came = moments.came
        check(stage)
        assert not trespassing(stage)
        if begin in CHANGES:
            assert is_somewhere_whole(stage, workspace)
        stage.take_over()
        finish(stage, workspace)
        _assert_ended(stage, workspace, end)
        done.append(workspace)
    assert len(done) > least, "the flow has fewer moments than it should"
    leave_nothing(stage, done)


def is_somewhere_whole(stage: Stage, workspace: Workspace) -> bool:
    """What was installed is in a container of it, or in an image that one can be made from."""
    machine = stage.machine
    mine = [one for one in machine.containers.values() if one.spec.labels["berth.workspace"] == workspace.id]
    images = [image for name, image in machine.images.items() if f"w-{workspace.id}:" in name]
    return any(machine.file_in(one, INSTALLED.path) for one in mine) or any(
        INSTALLED.path in image.files for image in images)


def _assert_ended(stage: Stage, workspace: Workspace, end: Phase) -> None:
    row = stage.row(workspace)
    assert row.phase == end
    check_at_rest(stage)
    if end is Phase.RUNNING:
        assert set(stage.steps(workspace).values()) == {"done"}
    mine = [one for one in stage.machine.containers.values() if one.spec.labels["berth.workspace"] == workspace.id]
    if stage.engine.calls and end is not Phase.REMOVED and row.generation > 1:
        kept = [stage.engine.read_file(container.name, INSTALLED.path) for container in mine]
        assert kept == [INSTALLED.content], "what was installed is gone"


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=soak)])
@pytest.mark.parametrize("begin", FLOWS)
def test_held_up_at_any_moment_while_another_agent_does_the_work(stage: Stage, begin: Begin, stride: int) -> None:
    """The lock keeps two agents apart; where it fails, the older one does one more deed at most, and it is undone."""
    came, done = True, list[Workspace]()
    while came:
        workspace = begin(stage, f"run-{len(done)}")
        moments = Moments(len(done) * stride + 1, lambda: another_agent(stage, workspace))  # noqa: B023 - in this round
        run_into(stage, workspace, moments)
        came = moments.came
        stage.take_over()
        finish(stage, workspace)
        check_at_rest(stage)
        done.append(workspace)
    leave_nothing(stage, done)


@pytest.mark.parametrize("begin", [launched_on_cards, started_on_its_cards,
                                   pytest.param(started_on_other_cards, marks=soak)])
def test_held_up_at_any_moment_while_its_cards_go_to_another(stage: Stage, begin: Begin) -> None:
    """What it still does is undone by the next pass of the newer agent: no card has two users after it."""
    came, number = True, 0
    while came:
        number += 1
        workspace = begin(stage, f"run-{number}")
        moments = Moments(number, lambda: cards_go_to_another(stage, workspace))    # noqa: B023 - in this round
        run_into(stage, workspace, moments)
        came = moments.came
        stage.take_over()
        stage.loop.one_pass()
        assert not trespassing(stage), f"after moment {number}"
        stage.settle()
        check_at_rest(stage)
        assert stage.row(workspace).phase == (Phase.STOPPED if came else Phase.RUNNING)
    assert number > FLOWS[begin][1]


def cards_go_to_another(stage: Stage, workspace: Workspace) -> None:
    held_up = stage.loop, stage.context
    stage.take_over()
    cards = stage.row(workspace).gpu_uuids
    stage.stop(workspace)
    stage.settle()
    stage.running(name=f"{workspace.name}-next", gpu_uuids=tuple(cards))
    stage.loop, stage.context = held_up


def leave_nothing(stage: Stage, done: list[Workspace]) -> None:
    for workspace in done:
        stage.remove(workspace)
    stage.settle()
    check_at_rest(stage)


def another_agent(stage: Stage, workspace: Workspace) -> None:
    """Takes over and does all there is to do; then the one that was held up goes on."""
    held_up = stage.loop, stage.context
    stage.take_over()
    finish(stage, workspace)
    stage.loop, stage.context = held_up
