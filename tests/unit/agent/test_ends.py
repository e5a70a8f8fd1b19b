"""When a container ends by itself, or by somebody's hand: the table of what Berth makes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from agent.faults import Crash, MomentousEngine, Moments, die
from agent.stage import Stage, check_at_rest
from webapp.domain.workspace import Health, Phase, Service
from webapp.engines.fake_state import FakeContainer
from webapp.store.tables import Workspace


@pytest.fixture
def workspace(stage: Stage) -> Workspace:
    return stage.running()


def crash(stage: Stage, workspace: Workspace, exit_code: int = 3) -> None:
    stage.engine.end(stage.name(workspace), exit_code)


def assert_rests(stage: Stage, workspace: Workspace, phase: Phase) -> None:
    """Nothing moves any more, whatever time goes by."""
    assert stage.row(workspace).phase == phase
    stage.forget_calls()
    stage.live(120)
    assert stage.deeds() == []
    assert stage.row(workspace).phase == phase
    check_at_rest(stage)


class TestByHand:
    @pytest.mark.parametrize("exit_code", [0, 137, 143])
    def test_stopped_by_hand_stays_stopped(self, stage: Stage, workspace: Workspace, exit_code: int) -> None:
        stage.engine.end(stage.name(workspace), exit_code, by_hand=True)
        stage.settle()
        assert "Stopped outside Berth" in str(stage.said(workspace))
        assert_rests(stage, workspace, Phase.STOPPED)

    def test_start_brings_it_back(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.end(stage.name(workspace), 143, by_hand=True)
        stage.settle()
        stage.start(workspace)
        stage.settle()
        assert (stage.row(workspace).phase, stage.row(workspace).reason) == (Phase.RUNNING, None)

    def test_started_by_hand_after_that_it_is_stopped(self, stage: Stage, workspace: Workspace) -> None:
        """Up without its claim."""
        stage.engine.end(stage.name(workspace), 143, by_hand=True)
        stage.settle()
        stage.engine.start(stage.name(workspace))
        stage.settle()
        check_at_rest(stage)

    def test_stopped_by_hand_before_it_was_ready_stays_stopped(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.silent = {Service.SSH}
        stage.on_sleep = lambda: self.stop_once(stage, workspace)
        stage.settle()
        assert_rests(stage, workspace, Phase.STOPPED)

    def stop_once(self, stage: Stage, workspace: Workspace) -> None:
        stage.on_sleep = lambda: None
        stage.engine.end(stage.name(workspace), 143, by_hand=True)

    def test_stopped_by_hand_after_the_agent_that_started_it_died_stays_stopped(self, stage: Stage) -> None:
        """Its start was never written down; the next agent does that before it waits."""
        workspace = stage.launch()
        context = stage.take_over(engine=cast(Any, MomentousEngine(stage.engine, Moments(6, die))))
        with pytest.raises(Crash):
            stage.work_on(workspace, context)
        assert (stage.containers()[0].is_up, stage.row(workspace).observed_generation) == (True, 0)
        stage.take_over()
        stage.silent = {Service.SSH}
        stage.on_sleep = lambda: self.stop_once(stage, workspace)
        stage.settle()
        assert_rests(stage, workspace, Phase.STOPPED)

    def test_docker_restart_by_hand_changes_nothing(self, stage: Stage, workspace: Workspace) -> None:
        before = stage.row(workspace).started_at
        stage.engine.end(stage.name(workspace), 143, by_hand=True)
        inspect = stage.engine.inspect

        def started_meanwhile(name: str) -> Any:
            stage.engine.inspect = inspect  # type: ignore[method-assign]
            stage.engine.start(name)
            return inspect(name)

        stage.engine.inspect = started_meanwhile  # type: ignore[method-assign]
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.reason, row.started_at) == (Phase.RUNNING, None, before)

    def test_removed_by_hand_is_not_made_again(self, stage: Stage, workspace: Workspace) -> None:
        """F28"""
        stage.engine.remove_by_hand(stage.name(workspace))
        stage.settle()
        assert "removed outside Berth on gpu1" in str(stage.said(workspace))
        assert_rests(stage, workspace, Phase.STOPPED)

    def test_list_that_lags_behind_takes_nothing_for_removed(self, stage: Stage, workspace: Workspace) -> None:
        list_, lagging = stage.engine.list, [2]

        def lag() -> Any:
            lagging[0] -= 1
            return [] if lagging[0] >= 0 else list_()

        stage.engine.list = lag  # type: ignore[method-assign]
        stage.forget_calls()
        stage.settle()
        assert (stage.row(workspace).phase, stage.deeds()) == (Phase.RUNNING, [])

    def test_removed_by_hand_before_it_was_ready_is_not_made_again(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.silent = {Service.SSH}

        def remove_once() -> None:
            stage.on_sleep = lambda: None
            stage.engine.remove_by_hand(stage.name(workspace))

        stage.on_sleep = remove_once
        stage.settle()
        assert_rests(stage, workspace, Phase.STOPPED)

    def test_start_after_a_removal_by_hand_makes_a_fresh_one_on_the_same_ports(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        ports = stage.ports(workspace)
        stage.engine.remove_by_hand(stage.name(workspace))
        stage.settle()
        stage.start(workspace)
        stage.settle()
        assert [container.name for container in stage.containers()] == [stage.name(workspace, 2)]
        assert stage.ports(workspace) == ports
        check_at_rest(stage)

    def test_renamed_by_hand_it_is_still_the_workspace(self, stage: Stage, workspace: Workspace) -> None:
        """F28"""
        stage.engine.rename_by_hand(stage.name(workspace), "renamed")
        stage.forget_calls()
        stage.settle()
        assert (stage.deeds(), stage.row(workspace).phase) == ([], Phase.RUNNING)
        stage.remove(workspace)
        stage.settle()
        check_at_rest(stage)

    def test_stop_by_hand_while_no_agent_ran_is_not_undone(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.end(stage.name(workspace), 143, by_hand=True)
        with stage.machine.lock:
            for _ in range(300):                                # the engine forgets all but the last 256
                stage.machine.note(next(iter(stage.machine.containers.values())), "exec_die")
        stage.take_over()
        stage.settle()
        assert_rests(stage, workspace, Phase.STOPPED)


class TestCrash:
    def test_three_tries_with_growing_waits_then_failed_with_the_log(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        waits = []
        for number in range(3):
            crash(stage, workspace)
            stage.settle()
            row = stage.row(workspace)
            assert (row.phase, row.failures) == (Phase.STARTING, number + 1)
            assert f"exit code 3; it is being started again (try {number + 1} of 3)" in str(stage.said(workspace))
            assert row.next_try_at is not None
            waits.append(round((row.next_try_at - stage.clock.time).total_seconds()))
            stage.live(waits[-1] + 1)
            assert (stage.row(workspace).phase, stage.row(workspace).reason) == (Phase.RUNNING, None)
        stage.engine.print_log(stage.name(workspace), "Traceback: boom\n")
        crash(stage, workspace)
        stage.settle()

        assert waits == [1, 5, 15]
        assert stage.row(workspace).log_tail == "Traceback: boom\n"
        assert stage.said(workspace) == "Its main process ended by itself with exit code 3, 4 times."
        assert_rests(stage, workspace, Phase.FAILED)

    def test_one_that_ends_at_once_is_no_hot_loop(self, stage: Stage) -> None:
        """F11"""
        def end_at_once(container: FakeContainer) -> None:
            container.log = "exec format error\n"
            stage.machine.end(container, 1)

        stage.machine.on_start = end_at_once
        workspace = stage.launch()
        stage.live(60)
        starts = [deed for deed in stage.deeds() if deed.startswith("start")]
        assert len(starts) == 4
        assert stage.row(workspace).log_tail == "exec format error\n"
        assert_rests(stage, workspace, Phase.FAILED)

    def test_steady_running_forgives_earlier_crashes(self, stage: Stage, workspace: Workspace) -> None:
        for _ in range(5):
            crash(stage, workspace)
            stage.live(2)
            stage.clock.sleep(timedelta(minutes=11).total_seconds())
        stage.settle()
        assert (stage.row(workspace).phase, stage.row(workspace).failures) == (Phase.RUNNING, 1)

    def test_start_pressed_by_a_person_forgives_them_too(self, stage: Stage, workspace: Workspace) -> None:
        for _ in range(4):
            crash(stage, workspace)
            stage.live(16)
        assert stage.row(workspace).phase == Phase.FAILED
        stage.start(workspace)
        stage.settle()
        assert (stage.row(workspace).phase, stage.row(workspace).failures) == (Phase.RUNNING, 0)

    def test_steps_are_shown_again(self, stage: Stage, workspace: Workspace) -> None:
        crash(stage, workspace)
        stage.settle()
        assert set(stage.steps(workspace).values()) == {"waiting"}
        stage.live(2)
        assert set(stage.steps(workspace).values()) == {"done"}

    @pytest.mark.parametrize(("wish", "phase"), [(Stage.stop, Phase.STOPPED), (Stage.remove, Phase.REMOVED)])
    def test_wish_does_not_wait_for_the_next_try(
        self, stage: Stage, workspace: Workspace, wish: Callable[..., None], phase: Phase,
    ) -> None:
        crash(stage, workspace)
        stage.settle()
        wish(stage, workspace)
        stage.settle()
        assert stage.row(workspace).phase == phase


class TestEngineRestart:
    @pytest.mark.parametrize("orderly", [True, False])
    def test_started_again_with_a_note(self, stage: Stage, workspace: Workspace, orderly: bool) -> None:
        before = stage.row(workspace).started_at
        stage.engine.restart_engine(orderly=orderly)
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.health, row.reason) == (Phase.RUNNING, Health.OK, None)
        assert "gpu1 or its Docker Engine was restarted" in str(stage.noted(workspace))
        assert before is not None and row.started_at is not None and row.started_at > before
        assert set(stage.steps(workspace).values()) == {"done"}
        check_at_rest(stage)

    def test_no_number_of_restarts_is_a_crash(self, stage: Stage, workspace: Workspace) -> None:
        for _ in range(6):
            stage.engine.restart_engine()
            stage.settle()
        assert (stage.row(workspace).phase, stage.row(workspace).failures) == (Phase.RUNNING, 0)

    def test_what_was_stopped_stays_stopped(self, stage: Stage, workspace: Workspace) -> None:
        stage.stop(workspace)
        stage.settle()
        stage.engine.restart_engine()
        stage.settle()
        assert_rests(stage, workspace, Phase.STOPPED)

    def test_during_a_launch_it_comes_up(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.silent = {Service.SSH}

        def restart_once() -> None:
            stage.on_sleep, stage.silent = (lambda: None), set()
            stage.engine.restart_engine()

        stage.on_sleep = restart_once
        stage.live(3)
        assert stage.row(workspace).phase == Phase.RUNNING
        check_at_rest(stage)


class TestOutOfMemory:
    def test_main_process_is_failed_naming_the_limit(self, stage: Stage, workspace: Workspace) -> None:
        """F10"""
        stage.engine.end(stage.name(workspace), 137, oom=True)
        stage.settle()
        assert stage.said(workspace) == "It used all of its 8 GiB of memory and was ended by the kernel."
        assert_rests(stage, workspace, Phase.FAILED)

    def test_child_is_a_note_and_the_workspace_runs_on(self, stage: Stage, workspace: Workspace) -> None:
        """F10"""
        stage.engine.oom_child(stage.name(workspace))
        stage.loop.out_of_memory(stage.name(workspace), stage.clock.now())
        stage.settle()
        assert stage.row(workspace).note is None, "the whole container may end in a moment"
        stage.live(5)
        row = stage.row(workspace)
        assert (row.phase, row.health, row.reason) == (Phase.RUNNING, Health.OK, None)
        assert "A program in it used all of its 8 GiB" in str(stage.noted(workspace))

    def test_event_of_the_main_process_leaves_no_note_on_its_next_run(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        stage.loop.out_of_memory(stage.name(workspace), stage.clock.now())
        stage.engine.end(stage.name(workspace), 137, oom=True)
        stage.settle()
        stage.start(workspace)
        stage.live(10)
        assert (stage.row(workspace).phase, stage.row(workspace).note) == (Phase.RUNNING, None)

    def test_event_of_a_stranger_is_borne(self, stage: Stage, workspace: Workspace) -> None:
        stage.loop.out_of_memory("postgres", stage.clock.now())
        stage.live(70)
        assert stage.row(workspace).note is None
