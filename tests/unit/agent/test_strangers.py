"""What is not Berth's is never touched, whatever it is called or labelled; and what is Berth's is never left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.stage import HOST, Stage, check_at_rest
from webapp.domain.workspace import Phase
from webapp.engines.fake import FakeEngine
from webapp.store.tables import Workspace


def stranger(stage: Stage, workspace: Workspace, *, name: str, **labels: str) -> str:
    """A running container made by hand from a look at the real one."""
    spec = stage.machine.containers[stage.name(workspace)].spec
    mine = replace(spec, name=name, labels={**spec.labels, **labels}, ports=(), mounts=())
    engine = FakeEngine(instance=labels.get("berth.instance", "test1"), host=HOST, machine=stage.machine)
    engine.create(mine)
    engine.start(name)
    return name


STRANGERS: list[tuple[str, dict[str, str]]] = [
    ("copied-labels", {}),
    ("berth-test1-w-abc", {"berth.workspace": "abc"}),
    ("{name}x", {}),
    ("look-alike-revision", {"berth.revision": "2"}),
    ("other-berth", {"berth.instance": "other"}),
]


@pytest.mark.parametrize(("name", "labels"), STRANGERS)
def test_foreign_container_is_untouched(stage: Stage, name: str, labels: dict[str, str]) -> None:
    """F29"""
    workspace = stage.running()
    name = stranger(stage, workspace, name=name.format(name=stage.name(workspace)), **labels)
    stage.forget_calls()
    stage.settle()
    assert stage.deeds() == []

    stage.stop(workspace)
    stage.settle()
    stage.start(workspace)
    stage.settle()
    stage.remove(workspace)
    stage.settle()

    assert not [call for call in stage.engine.calls if name in call[1:]]
    assert stage.machine.containers[name].is_up


def test_foreign_container_under_a_name_that_berth_needs_fails_the_launch_and_stays(stage: Stage) -> None:
    template = stage.running()
    workspace = stage.launch(name="run-2")
    name = stranger(stage, template, name=stage.name(workspace), **{"berth.workspace": "somebody-elses"})
    stage.settle()
    assert stage.row(workspace).phase == Phase.FAILED
    assert "is taken by a container that is not this workspace's" in str(stage.said(workspace))
    assert stage.machine.containers[name].is_up


def test_workspace_of_no_row_is_left_alone(stage: Stage) -> None:
    """P6: a database from a backup lacks what was launched since; missing data is no reason to destroy."""
    workspace = stage.running()
    name = stranger(stage, workspace, name="berth-test1-w-zzzzzzzzzzzz-r1", **{"berth.workspace": "zzzzzzzzzzzz"})
    stage.settle()
    assert stage.machine.containers[name].is_up


def test_what_a_replaced_agent_makes_after_the_removal_is_taken_down(stage: Stage) -> None:
    workspace = stage.running()
    spec = stage.machine.containers[stage.name(workspace)].spec
    stage.remove(workspace)
    stage.settle()
    stage.engine.create(spec)
    stage.engine.start(spec.name)
    stage.settle()
    check_at_rest(stage)


def test_container_up_without_its_claim_is_stopped_in_the_same_pass(stage: Stage) -> None:
    workspace = stage.running()
    stage.stop(workspace)
    stage.settle()
    stage.engine.start(stage.name(workspace))
    stage.loop.one_pass()
    assert not stage.containers()[0].is_up
    stage.settle()
    check_at_rest(stage)


def test_old_container_of_a_move_started_by_hand_is_stopped_and_removed(stage: Stage) -> None:
    workspace = stage.running()
    stage.stop(workspace)
    stage.settle()
    stage.engine.taken_ports.add(stage.ports(workspace)["ssh"])
    start: Any = stage.engine.start

    def also_the_old_one(name: str) -> None:
        start(name)
        if name.endswith("r2"):
            stage.engine.taken_ports.clear()
            old = stage.machine.containers[stage.name(workspace)]
            old.spec = replace(old.spec, ports=old.spec.ports[1:])      # the other port is the new one's
            start(old.name)

    stage.engine.start = also_the_old_one  # type: ignore[method-assign]
    stage.start(workspace)
    stage.settle()
    check_at_rest(stage)
