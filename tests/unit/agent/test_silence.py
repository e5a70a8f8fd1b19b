"""An engine that does not answer, and an agent that is not the newest any more: nothing is decided on a guess."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from agent.rack import card
from agent.stage import Stage, check_at_rest
from webapp.agent import operations as carrying
from webapp.agent.desk import Desk, Stale
from webapp.agent.reconciler import SILENT_PASS_SECONDS
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Health, Phase
from webapp.errors import EngineRejected, EngineUnreachable, NoCapacity, PortTaken
from webapp.services import observations, operations
from webapp.store.tables import AgentState, Host, Workspace


def host(stage: Stage) -> Host:
    with stage.store.read() as session:
        return session.get_one(Host, stage.cast.host_id)


class TestSilentEngine:
    def test_running_becomes_unknown_and_nothing_is_freed(self, stage: Stage) -> None:
        """P6"""
        workspace = stage.running()
        ports = stage.ports(workspace)
        stage.engine.down = True
        assert stage.loop.one_pass() == SILENT_PASS_SECONDS

        row = stage.row(workspace)
        assert (row.phase, row.health, stage.ports(workspace)) == (Phase.UNKNOWN, Health.UNKNOWN, ports)
        assert "gpu1 does not answer since" in str(stage.said(workspace))
        assert host(stage).unreachable_since is not None and "Connection refused" in str(host(stage).trouble)

    def test_begin_of_the_silence_is_kept(self, stage: Stage) -> None:
        stage.settle()
        stage.engine.down = True
        stage.loop.one_pass()
        began = host(stage).unreachable_since
        stage.live(30)
        assert host(stage).unreachable_since == began

    def test_back_again_it_runs_as_before(self, stage: Stage) -> None:
        workspace = stage.running()
        before = stage.row(workspace).started_at
        stage.engine.down = True
        stage.live(60)
        stage.engine.down = False
        stage.forget_calls()
        stage.settle()

        row = stage.row(workspace)
        assert (row.phase, row.health, row.reason, row.started_at) == (Phase.RUNNING, Health.OK, None, before)
        assert stage.deeds() == []
        assert (host(stage).unreachable_since, host(stage).trouble) == (None, None)
        check_at_rest(stage)

    @pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.FAILED])
    def test_what_rests_stays_as_it_is(self, stage: Stage, phase: Phase) -> None:
        if phase is Phase.FAILED:
            stage.engine.fail_next("create", EngineRejected(host="gpu1", detail="no"))
        workspace = stage.launch()
        stage.settle()
        if phase is Phase.STOPPED:
            stage.stop(workspace)
            stage.settle()
        stage.engine.down = True
        stage.live(10)
        assert stage.row(workspace).phase == phase

    @pytest.mark.parametrize(("wish", "phase"), [(Stage.stop, Phase.STOPPED), (Stage.remove, Phase.REMOVED)])
    def test_wish_during_the_silence_is_carried_out_after_it(self, stage: Stage, wish: Any, phase: Phase) -> None:
        workspace = stage.running()
        stage.engine.down = True
        stage.live(5)
        wish(stage, workspace)
        stage.live(60)
        assert stage.ports(workspace) != {} and stage.row(workspace).observed_generation == 1
        stage.engine.down = False
        stage.live(6)
        assert stage.row(workspace).phase == phase
        check_at_rest(stage)

    def test_stop_by_hand_during_the_silence_is_seen_after_it(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.engine.down = True
        stage.live(5)
        stage.engine.end(stage.name(workspace), 143, by_hand=True)
        stage.engine.down = False
        stage.settle()
        assert stage.row(workspace).phase == Phase.STOPPED

    def test_engine_that_refuses_to_be_prepared_is_looked_after_all_the_same(self, stage: Stage, log: Any) -> None:
        workspace = stage.running()
        stage.take_over()
        stage.engine.fail_next("prepare", EngineRejected(host="gpu1", detail="all address pools are used"))
        stage.stop(workspace)
        stage.settle()
        assert stage.row(workspace).phase == Phase.STOPPED
        assert "engine.not_prepared" in [entry["event"] for entry in log]

    def test_engine_that_refuses_the_list_leaves_all_as_it_is(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.engine.fail_next("list", EngineRejected(host="gpu1", detail="internal error"))
        assert stage.loop.one_pass() == SILENT_PASS_SECONDS
        assert stage.row(workspace).phase == Phase.RUNNING


class TestCards:
    """What is silent may run: its cards are kept whatever people ask, and free when it was seen down (36, 37)."""

    @pytest.fixture
    def workspace(self, stage: Stage) -> Workspace:
        stage.add_cards(2)
        workspace = stage.running(gpus="1")
        stage.engine.down = True
        stage.live(5)
        return workspace

    @pytest.mark.parametrize(("wish", "phase"), [(Stage.stop, Phase.STOPPED), (Stage.remove, Phase.REMOVED)])
    def test_wish_frees_nothing_before_the_engine_answers(
        self, stage: Stage, workspace: Workspace, wish: Any, phase: Phase,
    ) -> None:
        wish(stage, workspace)
        stage.live(120)
        assert stage.cards(workspace) == [card(0)]
        assert stage.containers()[0].is_up
        stage.engine.down = False
        stage.live(6)
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (phase, [])
        check_at_rest(stage)

    def test_new_agent_frees_nothing_either(self, stage: Stage, workspace: Workspace) -> None:
        stage.stop(workspace)
        stage.take_over()
        stage.live(60)
        assert stage.cards(workspace) == [card(0)]

    @pytest.mark.parametrize("wish", [Stage.stop, Stage.remove])
    @pytest.mark.parametrize("call", ["list", "inspect", "stop"])
    def test_silence_in_the_middle_frees_nothing(self, stage: Stage, call: str, wish: Any) -> None:
        stage.add_cards(2)
        workspace = stage.running(gpus="1")
        wish(stage, workspace)
        for _ in range(3):
            stage.engine.fail_next(call, EngineUnreachable(host="gpu1", detail="timed out"))
        stage.loop.one_pass()
        assert stage.cards(workspace) == [card(0)]
        stage.live(30)
        assert stage.cards(workspace) == []
        check_at_rest(stage)

    def test_its_cards_and_the_free_ones_of_the_host_are_not_offered(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        with pytest.raises(NoCapacity) as caught:
            stage.launch(name="other", gpus="1")
        assert {why["code"] for why in caught.value.facts["why"]} == {"gpu_host_silent"}

    def test_started_again_before_it_answers_it_runs_on_with_the_same_card(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        stage.stop(workspace)
        stage.live(10)
        stage.start(workspace)
        stage.engine.down = False
        stage.forget_calls()
        stage.live(6)
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.RUNNING, [card(0)])
        assert not [deed for deed in stage.deeds() if deed.startswith(("stop", "start", "create"))]
        check_at_rest(stage)

    def test_back_again_with_the_container_down_it_is_freed(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.end(stage.name(workspace), 143, by_hand=True)
        stage.live(60)
        assert stage.cards(workspace) == [card(0)]
        stage.engine.down = False
        stage.live(6)
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.STOPPED, [])


class TestClock:
    """F14"""

    @pytest.mark.parametrize("jump", [3600, -3600])
    def test_jump_disturbs_nothing_that_runs(self, stage: Stage, jump: int) -> None:
        workspace = stage.running()
        stage.clock.sleep(jump)
        stage.forget_calls()
        stage.live(10)
        assert (stage.deeds(), stage.row(workspace).phase) == ([], Phase.RUNNING)

    def test_clock_set_back_delays_no_retry(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.engine.end(stage.name(workspace), 1)
        stage.settle()
        stage.clock.sleep(-3600)
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING


class TestReplacedAgent:
    def test_its_records_are_refused(self, stage: Stage) -> None:
        workspace = stage.running()
        desk = Desk.open(stage.context, workspace.id)
        assert desk is not None
        stage.take_over()
        assert not desk.record_if_current(phase=Phase.FAILED)
        with pytest.raises(Stale):
            desk.record(phase=Phase.FAILED)
        with pytest.raises(Stale):
            desk.check_current()
        assert stage.row(workspace).phase == Phase.RUNNING

    def test_it_takes_up_nothing(self, stage: Stage) -> None:
        old = stage.context
        workspace = stage.launch()
        stage.take_over()
        stage.forget_calls()
        stage.work_on(workspace, old)
        assert stage.engine.calls == []

    def test_it_does_nothing_after_the_step_it_is_at(self, stage: Stage) -> None:
        old = stage.context
        workspace = stage.launch()
        create = stage.engine.create

        def replaced_meanwhile(spec: Any) -> str:
            stage.engine.create = create  # type: ignore[method-assign]
            stage.take_over()
            return create(spec)

        stage.engine.create = replaced_meanwhile  # type: ignore[method-assign]
        stage.work_on(workspace, old)
        assert [deed.split()[0] for deed in stage.deeds()] == ["create"]
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING
        check_at_rest(stage)

    def test_it_claims_no_port(self, stage: Stage) -> None:
        """Held up in a start; meanwhile the workspace was removed, and what it finds taken is somebody else's."""
        workspace, old = stage.launch(), stage.context
        start = stage.engine.start

        def removed_meanwhile(name: str) -> None:
            stage.engine.start = start  # type: ignore[method-assign]
            stage.take_over()
            stage.remove(workspace)
            stage.settle()
            raise PortTaken(host="gpu1", port=20000, detail="port is already allocated")

        stage.engine.start = removed_meanwhile  # type: ignore[method-assign]
        stage.work_on(workspace, old)
        assert stage.ports(workspace) == {}
        check_at_rest(stage)

    def test_it_says_nothing_about_the_host(self, stage: Stage) -> None:
        stage.settle()
        old = stage.context
        stage.take_over()
        with stage.store.write() as session:
            observations.record_host_silent(
                session, stage.cast.host_id, trouble="gone", epoch=old.epoch, now=stage.clock.now())
        assert host(stage).unreachable_since is None
        with stage.store.write() as session:
            observations.record_host_silent(
                session, stage.cast.host_id, trouble="gone", epoch=stage.context.epoch, now=stage.clock.now())
            observations.record_host_seen(
                session, stage.cast.host_id, capabilities=None, epoch=old.epoch, now=stage.clock.now())
        assert host(stage).unreachable_since is not None

    def test_it_takes_no_operation(self, stage: Stage) -> None:
        workspace, old = stage.running(), stage.context
        asked = stage.do(operations.request, stage.cast.alice, OperationKind.WORKSPACE_LOGS,
                         workspace_id=workspace.id, arguments={})
        stage.take_over()
        carrying.carry_out(old, asked.id)
        assert stage.operation(asked).state == OperationState.WAITING

    def test_it_hears_that_it_was_replaced(self, stage: Stage) -> None:
        old = stage.context
        stage.take_over()
        with stage.store.write() as session:
            assert not observations.still_alive(session, epoch=old.epoch, now=stage.clock.now())
            assert observations.still_alive(session, epoch=stage.context.epoch, now=stage.clock.now())

    def test_epochs_grow(self, stage: Stage) -> None:
        before = stage.context.epoch
        with stage.store.read() as session:
            assert session.scalar(select(AgentState.epoch)) == before
        assert stage.take_over().epoch == before + 1


def test_stopping_agent_takes_up_nothing_more(stage: Stage) -> None:
    """P2: and it stops no workspace."""
    workspace = stage.launch()
    put = stage.engine.put
    stopping: list[bool] = []
    object.__setattr__(stage.context, "stopping", lambda: bool(stopping))

    def stop_meanwhile(*arguments: Any) -> None:
        put(*arguments)
        stopping.append(True)

    stage.engine.put = stop_meanwhile  # type: ignore[method-assign]
    stage.work_on(workspace)
    assert [deed.split()[0] for deed in stage.deeds()] == ["create", "put"]

    stage.engine.put = put  # type: ignore[method-assign]
    stage.take_over()
    stage.settle()
    assert stage.row(workspace).phase == Phase.RUNNING
    assert len([deed for deed in stage.deeds() if deed.startswith("start")]) == 1


def test_phase_keeps_the_time_of_its_beginning(stage: Stage) -> None:
    workspace = stage.running()
    before = stage.row(workspace).phase_at
    with stage.store.write() as session:
        row = session.get_one(Workspace, workspace.id)
        for phase in (Phase.RUNNING, Phase.STOPPED):
            observations.record(session, row.id, generation=row.generation, epoch=stage.context.epoch,
                                now=stage.clock.now(), changes={"phase": phase})
            session.refresh(row)
            assert (row.phase_at == before) == (phase is Phase.RUNNING)
