"""Looking who is connected by SSH, and ending that, on the engine's twin."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from unit.test_ssh_connections import OF_BOOKWORM

from agent.stage import Stage
from agent.yesterday import put_on
from webapp.domain import ssh_connections
from webapp.domain.operation import OperationState
from webapp.engines import ExecResult
from webapp.errors import EngineUnreachable, InvalidInput, NotFound
from webapp.services import connections
from webapp.store.tables import Event, Operation, Workspace


class Inside:
    """A container in which somebody is connected, until that is ended."""

    def __init__(self, stage: Stage) -> None:
        self.output, self.ended = OF_BOOKWORM, list[str]()
        stage.engine.on_exec = self

    def __call__(self, _name: str, argv: Sequence[str]) -> ExecResult | None:
        if argv[:2] != ("bash", "-c"):
            return None
        if argv[2] == ssh_connections.LOOK:
            lines = [line for line in self.output.splitlines() if not any(f" {end.partition('-')[0]} " in line
                                                                         for end in self.ended)]
            return ExecResult(0, "\n".join(lines))
        self.ended += argv[4:]
        return ExecResult(0, "")


@pytest.fixture
def workspace(stage: Stage) -> Workspace:
    return stage.running()


@pytest.fixture
def inside(stage: Stage, workspace: Workspace) -> Inside:
    return Inside(stage)


def done(stage: Stage, operation: Operation) -> list[str]:
    stage.live(3)
    row = stage.operation(operation)
    assert row.state == OperationState.DONE, row.reason
    return [one["id"] for one in (row.result or {})["connections"]]


def test_look_lists_and_touches_nothing(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    stage.forget_calls()
    assert done(stage, stage.do(connections.look, stage.cast.alice, workspace.id)) == ["30-11050", "40-16050"]
    assert inside.ended == [] and [deed.split()[0] for deed in stage.deeds()] == ["exec"]


def test_one_is_ended_with_all_its_processes(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    cut = stage.do(connections.cut, stage.cast.alice, workspace.id, connections=["30-11050"])
    assert done(stage, cut) == ["40-16050"] and inside.ended == ["30-11050", "31-11060"]


def test_all_are_ended(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    assert done(stage, stage.do(connections.cut, stage.cast.carol, workspace.id, connections=None)) == []
    assert inside.ended == ["30-11050", "31-11060", "40-16050", "41-16051"]


def test_what_is_no_connection_now_is_left_alone(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    done(stage, stage.do(connections.cut, stage.cast.alice, workspace.id, connections=["30-9", "8-1000", "20-1000"]))
    assert inside.ended == []


def test_two_wishes_before_the_agent_comes_are_one(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    first = stage.do(connections.cut, stage.cast.alice, workspace.id, connections=["30-11050"])
    second = stage.do(connections.cut, stage.cast.alice, workspace.id, connections=["40-16050"])
    assert first.id == second.id and done(stage, first) == [] and len(inside.ended) == 4


def test_stopped_one_has_none(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    stage.stop(workspace)
    stage.settle()
    for wish in (connections.look, lambda *a, **k: connections.cut(*a, connections=None, **k)):
        assert done(stage, stage.do(wish, stage.cast.alice, workspace.id)) == []
    assert inside.ended == []


def test_silent_host_is_asked_again_to_end_one(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    stage.engine.fail_next("exec", EngineUnreachable(host="gpu1", detail="late"))
    cut = stage.do(connections.cut, stage.cast.alice, workspace.id, connections=None)
    stage.live(20)
    assert stage.operation(cut).state == OperationState.DONE and len(inside.ended) == 4


def test_look_that_fails_says_why(stage: Stage, workspace: Workspace) -> None:
    stage.engine.on_exec = lambda name, argv: ExecResult(127, "bash: not found")
    asked = stage.do(connections.look, stage.cast.alice, workspace.id)
    stage.live(3)
    row = stage.operation(asked)
    assert row.state == OperationState.FAILED and "bash: not found" in str(row.reason)


def test_on_hold_it_is_looked_and_nothing_ended(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    put_on(stage)
    look = stage.do(connections.look, stage.cast.alice, workspace.id)
    cut = stage.do(connections.cut, stage.cast.alice, workspace.id, connections=None)
    stage.live(5)
    assert stage.operation(look).state == OperationState.DONE
    assert stage.operation(cut).state == OperationState.WAITING and inside.ended == []


def test_others_cannot_and_bad_ids_are_refused(stage: Stage, workspace: Workspace) -> None:
    for wish in (connections.look, lambda *a, **k: connections.cut(*a, connections=None, **k)):
        with pytest.raises(NotFound):
            stage.do(wish, stage.cast.bob, workspace.id)
    with pytest.raises(InvalidInput):
        stage.do(connections.cut, stage.cast.alice, workspace.id, connections=["$(reboot)-1"])


def test_ending_is_in_the_history(stage: Stage, workspace: Workspace, inside: Inside) -> None:
    stage.do(connections.cut, stage.cast.carol, workspace.id, connections=None)
    with stage.store.read() as session:
        event = session.query(Event).filter_by(action="workspace.cut_connections").one()
        assert event.object_id == workspace.id
