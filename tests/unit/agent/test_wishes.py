"""What people ask for while the agent is at work: the last accepted wish wins."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from agent.stage import Stage, check, check_at_rest
from webapp.agent.desk import Desk, Stale
from webapp.domain.workspace import Phase, Service
from webapp.errors import Conflict, EngineRejected, EngineUnreachable
from webapp.services import workspaces
from webapp.store.tables import WorkspaceSecret

SILENCE = EngineUnreachable(host="gpu1", detail="timed out")
REFUSAL = EngineRejected(host="gpu1", detail="tried to kill container, but did not receive an exit event")


def during(stage: Stage, call: str, act: Callable[[], None]) -> None:
    """The next such call of the engine takes so long that somebody acts before it ends."""
    original = getattr(stage.engine, call)

    def slow(*arguments: Any, **keywords: Any) -> Any:
        setattr(stage.engine, call, original)
        answer = original(*arguments, **keywords)
        act()
        return answer

    setattr(stage.engine, call, slow)


class TestStop:
    def test_stop_keeps_container_layer_and_ports(self, stage: Stage) -> None:
        workspace = stage.running()
        ports, container = stage.ports(workspace), stage.containers()[0].id
        stage.stop(workspace)
        stage.settle()
        assert (stage.ports(workspace), stage.containers()[0].id) == (ports, container)
        check_at_rest(stage)

    def test_start_brings_the_same_container_back(self, stage: Stage) -> None:
        workspace = stage.running()
        container = stage.containers()[0].id
        stage.stop(workspace)
        stage.settle()
        stage.forget_calls()
        stage.start(workspace)
        stage.settle()
        name = stage.name(workspace)
        assert stage.deeds() == [f"put {name}", f"start {name}"]
        assert stage.containers()[0].id == container
        check_at_rest(stage)

    @pytest.mark.parametrize("call", ["image", "create", "put", "start"])
    @pytest.mark.parametrize(("wish", "phase"), [(Stage.stop, Phase.STOPPED), (Stage.remove, Phase.REMOVED)])
    def test_wish_during_a_launch_wins(
        self, stage: Stage, call: str, wish: Callable[..., None], phase: Phase,
    ) -> None:
        workspace = stage.launch()
        during(stage, call, lambda: wish(stage, workspace))
        stage.settle()
        starts = [deed for deed in stage.deeds() if deed.startswith("start")]
        assert (stage.row(workspace).phase, len(starts)) == (phase, 1 if call == "start" else 0)
        check_at_rest(stage)

    def test_wish_while_it_waits_to_be_ready_wins_within_one_check(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.silent = {Service.SSH}
        asked_at = []

        def change_mind() -> None:
            if not asked_at:
                asked_at.append(stage.clock.time)
                stage.stop(workspace)

        stage.on_sleep = change_mind
        stage.settle()
        assert stage.row(workspace).phase == Phase.STOPPED
        assert (stage.clock.time - asked_at[0]).total_seconds() < 2

    def test_stop_that_the_engine_refuses_is_tried_until_it_is_seen_down(self, stage: Stage) -> None:
        """promises.md 36: what a stop frees is free only when the container is seen down."""
        workspace = stage.running()
        for error in [REFUSAL] * 6 + [SILENCE] * 3:
            stage.engine.fail_next("stop", error)
        stage.stop(workspace)
        stage.live(60)
        row = stage.row(workspace)
        assert (row.phase, row.observed_generation) == (Phase.STOPPING, 1)
        assert "did not receive an exit event" in str(stage.said(workspace))
        stage.live(200)
        assert (stage.row(workspace).phase, stage.row(workspace).reason) == (Phase.STOPPED, None)
        check_at_rest(stage)

    def test_stop_and_start_before_the_agent_looks_disturb_nothing(self, stage: Stage) -> None:
        workspace = stage.running()
        before = stage.row(workspace).started_at
        stage.forget_calls()
        stage.stop(workspace)
        stage.start(workspace)
        stage.settle()
        row = stage.row(workspace)
        assert (stage.deeds(), row.phase, row.started_at) == ([], Phase.RUNNING, before)
        assert set(stage.steps(workspace).values()) == {"done"}
        check_at_rest(stage)

    def test_failed_workspace_that_cannot_be_stopped_is_no_hot_loop(self, stage: Stage) -> None:
        stage.silent = {Service.SSH}
        workspace = stage.launch()
        for _ in range(3):
            stage.engine.fail_next("stop", REFUSAL)
        stage.settle()
        assert "ssh did not answer" in str(stage.said(workspace)), "the reason of the failure stays"
        stage.live(30)
        assert len([deed for deed in stage.deeds() if deed.startswith("stop")]) == 4
        check_at_rest(stage)


class TestRemove:
    def test_home_and_team_data_stay_and_the_rest_goes(self, stage: Stage) -> None:
        workspace = stage.running()
        home = f"berth-test1-home-{stage.cast.alice.member_id}"
        assert f"berth-test1-w-{workspace.id}" in stage.machine.volumes
        stage.remove(workspace)
        stage.settle()
        assert list(stage.machine.volumes) == [home]
        with stage.store.read() as session:
            assert session.get(WorkspaceSecret, workspace.id) is None
        check_at_rest(stage)

    @pytest.mark.parametrize("call", ["stop", "remove", "remove_volume"])
    def test_ports_are_given_back_only_after_it_was_seen_gone(self, stage: Stage, call: str) -> None:
        workspace = stage.running()
        ports = stage.ports(workspace)
        stage.engine.fail_next(call, REFUSAL)
        stage.remove(workspace)
        stage.settle()
        assert (stage.row(workspace).phase, stage.ports(workspace)) == (Phase.REMOVING, ports)
        stage.live(4)
        assert stage.ports(workspace) == {}
        check_at_rest(stage)

    @pytest.mark.parametrize("call", ["stop", "remove", "remove_volume", "remove_image"])
    @pytest.mark.parametrize("after", [False, True])
    def test_lost_answer_is_success_in_the_end(self, stage: Stage, call: str, after: bool) -> None:
        """F9"""
        workspace = stage.running()
        stage.engine.fail_next(call, SILENCE, after=after)
        stage.remove(workspace)
        stage.live(6)
        check_at_rest(stage)
        assert stage.row(workspace).phase == Phase.REMOVED

    def test_removed_by_hand_first_is_success(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.engine.remove_by_hand(stage.name(workspace))
        stage.remove(workspace)
        stage.settle()
        check_at_rest(stage)

    def test_start_after_a_removal_is_refused(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.remove(workspace)
        with pytest.raises(Conflict):
            stage.start(workspace)

    def test_launch_that_nobody_took_up_is_removed_without_a_trace(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.remove(workspace)
        stage.settle()
        assert not [deed for deed in stage.deeds() if deed.startswith(("create", "start"))]
        check_at_rest(stage)

    def test_port_given_back_goes_to_others_last(self, stage: Stage) -> None:
        """A port that comes back soon with another host key trips OpenSSH's alarm."""
        first = stage.running()
        ports = set(stage.ports(first).values())
        stage.remove(first)
        stage.settle()
        assert not ports & set(stage.ports(stage.running(name="run-2")).values())


def test_record_for_an_older_wish_is_refused(stage: Stage) -> None:
    workspace = stage.running()
    desk = Desk.open(stage.context, workspace.id)
    assert desk is not None
    stage.stop(workspace)
    assert not desk.record_if_current(phase=Phase.FAILED)
    with pytest.raises(Stale):
        desk.record(phase=Phase.FAILED)
    with pytest.raises(Stale):
        desk.reload()
    assert stage.row(workspace).phase == Phase.RUNNING


def test_double_clicks_from_many_tabs_end_as_the_last_accepted(stage: Stage) -> None:
    """F25: accepted wishes are serialised; each answers "yes" or "not now", and the agent ends where the row ends."""
    workspace = stage.running()
    wishes = [workspaces.stop, workspaces.start, workspaces.stop, workspaces.start] * 3 + [workspaces.remove]

    def press(wish: Callable[..., Any]) -> None:
        with suppress(Conflict):
            stage.ask(wish, workspace)

    with ThreadPoolExecutor(4) as pool:
        pressed = [pool.submit(press, wish) for wish in wishes]
        while not all(one.done() for one in pressed):
            stage.loop.one_pass()
            check(stage)
    stage.settle()
    assert stage.row(workspace).phase == Phase.REMOVED
    check_at_rest(stage)


@pytest.mark.parametrize("last", [Stage.start, Stage.stop])
def test_many_wishes_in_a_row_are_one_answer_to_the_last(stage: Stage, last: Callable[..., None]) -> None:
    workspace = stage.running()
    for wish in (Stage.stop, Stage.start, Stage.stop, Stage.start, last):
        wish(stage, workspace)
    stage.settle()
    check_at_rest(stage)
