"""A worker that waits for SSH and Jupyter looks with the loop's eyes."""

from __future__ import annotations

import pytest

from agent.stage import Stage
from webapp.agent.sightings import Sighting, Sightings
from webapp.domain.workspace import Phase, Service

WAITS = 40      # sleeps: some fifteen seconds


def note(stage: Stage) -> None:
    """What the loop's thread would see now."""
    began = stage.clock.monotonic()
    listed = tuple(container.listed() for container in stage.machine.containers.values())
    stage.context.sightings.note(Sighting(began, listed))


def lists(stage: Stage) -> int:
    return [call[0] for call in stage.engine.calls].count("list")


def wait_long(stage: Stage, each_time: object = None) -> None:
    """SSH answers after WAITS sleeps."""
    waited = []

    def slept() -> None:
        waited.append(1)
        if callable(each_time):
            each_time()
        if len(waited) == WAITS:
            stage.silent = set()

    stage.silent, stage.on_sleep = {Service.SSH}, slept


def test_a_waiting_worker_makes_no_list_of_its_own(stage: Stage) -> None:
    wait_long(stage, lambda: note(stage))
    workspace = stage.launch()
    stage.loop.one_pass()
    assert stage.row(workspace).phase == Phase.RUNNING
    assert lists(stage) == 1    # the pass's


def test_a_waiting_worker_looks_itself_when_the_loop_does_not(stage: Stage) -> None:
    wait_long(stage)
    workspace = stage.launch()
    stage.loop.one_pass()
    assert stage.row(workspace).phase == Phase.RUNNING
    assert 2 <= lists(stage) <= 4


def test_a_container_that_the_loop_sees_down_is_not_waited_for(stage: Stage) -> None:
    def break_down() -> None:
        for container in stage.machine.containers.values():
            if container.is_up:
                stage.engine.end(container.spec.name, exit_code=3)
        note(stage)

    wait_long(stage, break_down)
    workspace = stage.launch()
    began = stage.clock.time
    stage.loop.one_pass()
    assert stage.row(workspace).phase != Phase.RUNNING
    assert (stage.clock.time - began).total_seconds() < 2


@pytest.mark.parametrize(("moment", "found"), [(9.9, True), (10.0, False), (10.1, False)])
def test_only_what_was_seen_after_a_moment_counts(moment: float, found: bool) -> None:
    sightings = Sightings()
    assert sightings.since(0.0) is None
    sightings.note(Sighting(10.0, ()))
    assert (sightings.since(moment) is not None) is found
