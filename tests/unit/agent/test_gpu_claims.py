"""When cards are given back: with the engine's own word that the container is down, never before. And fencing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from agent.rack import Rack, card
from agent.stage import HOST, Stage, check, check_at_rest, trespassing
from webapp.agent import fencing
from webapp.domain.container import ContainerState
from webapp.domain.workspace import Phase, Service
from webapp.errors import EngineRejected, EngineUnreachable, ImageNotFound
from webapp.store.tables import Event, Workspace

REFUSAL = EngineRejected(host=HOST, detail="tried to kill container, but did not receive an exit event")
SILENCE = EngineUnreachable(host=HOST, detail="timed out")


@pytest.fixture(autouse=True)
def rack(stage: Stage) -> Rack:
    return stage.add_cards(4)


@pytest.fixture
def workspace(stage: Stage) -> Workspace:
    return stage.running(gpus="1")


def list_shows(stage: Stage, state: ContainerState | None) -> None:
    """The engine's list shows every container in that state, or none at all; an inspect tells the truth."""
    honest = stage.engine.list

    def lagging() -> Any:
        return [] if state is None else [replace(one, state=state) for one in honest()]

    stage.engine.list = lagging  # type: ignore[method-assign]


def once(stage: Stage, call: str, act: Callable[[], None]) -> None:
    """Right after the next such call of the engine somebody acts."""
    original = getattr(stage.engine, call)

    def and_act(*arguments: Any, **keywords: Any) -> Any:
        setattr(stage.engine, call, original)
        answer = original(*arguments, **keywords)
        act()
        return answer

    setattr(stage.engine, call, and_act)


class TestRelease:
    @pytest.mark.parametrize(("wish", "phase"), [(Stage.stop, Phase.STOPPED), (Stage.remove, Phase.REMOVED)])
    def test_wish_frees_them_once_it_is_down(
        self, stage: Stage, workspace: Workspace, wish: Callable[..., None], phase: Phase,
    ) -> None:
        wish(stage, workspace)
        assert stage.cards(workspace) == [card(0)]
        at_the_stop: list[list[str]] = []
        once(stage, "stop", lambda: at_the_stop.append(stage.cards(workspace)))
        stage.settle()
        assert (at_the_stop, stage.cards(workspace), stage.row(workspace).phase) == ([[card(0)]], [], phase)
        check_at_rest(stage)

    @pytest.mark.parametrize("wish", [Stage.stop, Stage.remove])
    @pytest.mark.parametrize("error", [REFUSAL, SILENCE])
    def test_stop_that_fails_frees_nothing(
        self, stage: Stage, workspace: Workspace, wish: Callable[..., None], error: Exception,
    ) -> None:
        stage.engine.fail_next("stop", error)
        wish(stage, workspace)
        stage.settle()
        assert stage.cards(workspace) == [card(0)]
        stage.live(10)
        assert stage.cards(workspace) == []
        check_at_rest(stage)

    @pytest.mark.parametrize("shown", [None, ContainerState.CREATED, ContainerState.EXITED])
    @pytest.mark.parametrize("wish", [Stage.stop, Stage.remove])
    def test_list_that_lags_behind_is_not_believed(
        self, stage: Stage, workspace: Workspace, wish: Callable[..., None], shown: ContainerState | None,
    ) -> None:
        """As after a start whose answer was lost: it is under way, and the list shows what was before."""
        wish(stage, workspace)
        list_shows(stage, shown)
        once(stage, "stop", lambda: check_held(stage, workspace))
        stage.loop.one_pass()
        assert not trespassing(stage)
        assert [deed for deed in stage.deeds() if deed.startswith("stop")]

    def test_start_that_went_unanswered_is_looked_at_before_they_are_freed(self, stage: Stage) -> None:
        workspace = stage.launch(gpus="1")
        stage.engine.fail_next("start", SILENCE, after=True)
        once(stage, "put", lambda: list_shows(stage, ContainerState.CREATED))
        stage.settle()
        stage.stop(workspace)
        stage.loop.one_pass()
        assert not stage.containers()[0].is_up and not trespassing(stage)

    @pytest.mark.parametrize("state", [ContainerState.REMOVING, ContainerState.DEAD])
    @pytest.mark.parametrize("wish", [Stage.stop, Stage.remove])
    def test_removal_that_hangs_keeps_them(
        self, stage: Stage, workspace: Workspace, wish: Callable[..., None], state: ContainerState,
    ) -> None:
        """49: a removal under way counts as done for the engine's adapter, and the process may hang in the driver."""
        stage.machine.containers[stage.name(workspace)].state = state
        remove = stage.engine.remove
        stage.engine.remove = lambda name: None  # type: ignore[method-assign]
        wish(stage, workspace)
        stage.live(60)
        assert stage.cards(workspace) == [card(0)]
        assert "is being removed and not gone yet" in str(stage.said(workspace))
        stage.engine.remove = remove  # type: ignore[method-assign]
        stage.live(100)
        assert stage.cards(workspace) == []
        check_at_rest(stage)

    def test_start_in_the_last_moment_keeps_them(self, stage: Stage, workspace: Workspace) -> None:
        stage.stop(workspace)
        once(stage, "inspect", lambda: stage.start(workspace))
        stage.loop.one_pass()
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.RUNNING, [card(0)])
        assert released(stage) == []
        check_at_rest(stage)

    def test_agent_that_was_replaced_in_the_last_moment_frees_nothing(self, stage: Stage, workspace: Workspace) -> None:
        stage.stop(workspace)
        old = stage.context
        once(stage, "inspect", lambda: (stage.take_over(), None)[1])
        stage.work_on(workspace, old)
        check_held(stage, workspace)
        stage.settle()
        check_at_rest(stage)


def check_held(stage: Stage, workspace: Workspace) -> None:
    assert stage.cards(workspace) == [card(0)]


def released(stage: Stage) -> list[str]:
    with stage.store.read() as session:
        return list(session.scalars(select(Event.object_id).where(Event.action == "workspace.release_gpus")))


class TestEnds:
    """When a container ends by itself, or by somebody's hand."""

    def test_by_hand_frees_them(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.end(stage.name(workspace), 143, by_hand=True)
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.STOPPED, [])
        check_at_rest(stage)

    def test_removed_by_hand_frees_them(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.remove_by_hand(stage.name(workspace))
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.STOPPED, [])

    def test_for_memory_frees_them(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.end(stage.name(workspace), 137, oom=True)
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.FAILED, [])
        check_at_rest(stage)

    @pytest.mark.parametrize("orderly", [True, False])
    def test_restart_of_the_engine_keeps_them(self, stage: Stage, workspace: Workspace, orderly: bool) -> None:
        stage.running(name="other", gpus="1")
        stage.engine.restart_engine(orderly=orderly)
        stage.settle()
        check_held(stage, workspace)
        assert released(stage) == []
        check_at_rest(stage)

    def test_crash_keeps_them_until_it_is_given_up(self, stage: Stage, workspace: Workspace) -> None:
        for wait in (2, 6, 16):
            stage.engine.end(stage.name(workspace), 1)
            stage.settle()
            check_held(stage, workspace)
            stage.live(wait)
            assert stage.row(workspace).phase == Phase.RUNNING
        assert released(stage) == []
        stage.engine.end(stage.name(workspace), 1)
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.FAILED, [])

    def test_launch_that_fails_frees_them(self, stage: Stage) -> None:
        stage.engine.fail_next("create", ImageNotFound(host=HOST, image="x", detail="gone"))
        workspace = stage.launch(gpus="2")
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.FAILED, [])
        check_at_rest(stage)

    @pytest.mark.parametrize("call", ["image", "create", "put", "start", "exec"])
    @pytest.mark.parametrize("wish", [Stage.stop, Stage.remove])
    def test_wish_during_a_launch_frees_them(self, stage: Stage, call: str, wish: Callable[..., None]) -> None:
        workspace = stage.launch(gpus="2")
        once(stage, call, lambda: wish(stage, workspace))
        stage.settle()
        assert stage.cards(workspace) == []
        check_at_rest(stage)


class Busy:
    """Hands of which the one that works on a workspace is at something long."""

    def __init__(self, workspace: Workspace) -> None:
        self.busy = workspace.id
        self.submitted: list[str] = []

    def submit(self, key: str, work: Callable[..., None], *arguments: object) -> None:
        self.submitted.append(key)
        if key != self.busy:
            work(*arguments)


class TestFencing:
    """No lock reaches into an engine: what runs with a card of others is stopped in the same pass."""

    @pytest.fixture
    def other(self, stage: Stage, workspace: Workspace) -> Workspace:
        """Runs on the card that `workspace` had before it was stopped."""
        stage.stop(workspace)
        stage.settle()
        return stage.running(name="other", gpu_uuids=(card(0),))

    def test_started_by_hand_on_a_card_of_another_it_is_stopped_in_the_same_pass(
        self, stage: Stage, workspace: Workspace, other: Workspace,
    ) -> None:
        stage.engine.start(stage.name(workspace))
        stage.loop.one_pass()
        check(stage)
        assert trespassing(stage) == set()
        assert stage.machine.containers[stage.name(other)].is_up
        stage.settle()
        check_at_rest(stage)
        with stage.store.read() as session:
            event = session.scalars(select(Event).where(Event.action == "workspace.fence")).one()
        assert (event.object_id, event.details["gpus"]) == (workspace.id, [card(0)])

    def test_not_even_while_its_own_worker_is_busy(
        self, stage: Stage, workspace: Workspace, other: Workspace, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(stage.loop, "_hands", Busy(workspace))
        stage.engine.start(stage.name(workspace))
        stage.loop.one_pass()
        assert trespassing(stage) == set()

    def test_on_a_card_that_nobody_holds_it_is_stopped_too(self, stage: Stage, workspace: Workspace) -> None:
        stage.stop(workspace)
        stage.settle()
        stage.engine.start(stage.name(workspace))
        stage.loop.one_pass()
        assert trespassing(stage) == set()

    def test_of_a_removed_workspace_too(self, stage: Stage, workspace: Workspace) -> None:
        """What an agent that was held up makes and starts after the removal."""
        spec = stage.machine.containers[stage.name(workspace)].spec
        stage.remove(workspace)
        stage.settle()
        stage.engine.create(spec)
        stage.engine.start(spec.name)
        stage.loop.one_pass()
        assert trespassing(stage) == set()
        stage.settle()
        check_at_rest(stage)

    @pytest.mark.parametrize("error", [REFUSAL, SILENCE])
    def test_stop_that_fails_is_tried_again(
        self, stage: Stage, workspace: Workspace, other: Workspace, error: Exception,
    ) -> None:
        stage.engine.start(stage.name(workspace))
        for _ in range(2):
            stage.engine.fail_next("stop", error)
        stage.loop.one_pass()
        assert trespassing(stage) == {stage.name(workspace)}
        stage.live(10)
        check_at_rest(stage)

    def test_claims_are_read_again_before_it_is_stopped(self, stage: Stage, workspace: Workspace) -> None:
        """The pass's rows are older than its list: it may have been started in between."""
        fencing.stop(stage.context, workspace.id, stage.containers()[0])
        assert stage.containers()[0].is_up

    def test_agent_that_was_replaced_stops_nothing(self, stage: Stage, workspace: Workspace, other: Workspace) -> None:
        old = stage.context
        stage.take_over()
        stage.engine.start(stage.name(workspace))
        for container in stage.containers():
            fencing.stop(old, workspace.id, container)
        assert all(container.is_up for container in stage.containers())

    def test_agent_that_wakes_up_in_its_start_is_undone_by_the_next_pass(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        """Held up longer than any time-out, between its last look and its call; the card has a new holder meanwhile."""
        stage.stop(workspace)
        stage.settle()
        stage.start(workspace)
        old, start = stage.context, stage.engine.start

        def held_up(name: str) -> None:
            stage.engine.start = start  # type: ignore[method-assign]
            stage.take_over()
            stage.stop(workspace)
            stage.settle()
            stage.running(name="other", gpu_uuids=(card(0),))
            start(name)

        stage.engine.start = held_up  # type: ignore[method-assign]
        stage.work_on(workspace, old)
        assert trespassing(stage) == {stage.name(workspace)}
        stage.loop.one_pass()
        assert trespassing(stage) == set()
        stage.settle()
        check_at_rest(stage)

    def test_workspace_without_cards_is_nobodys_trespasser(self, stage: Stage) -> None:
        plain = stage.running(name="plain")
        stage.forget_calls()
        stage.settle()
        assert stage.deeds() == [] and stage.cards(plain) == []


def test_service_that_never_answers_gives_the_cards_back_in_the_end(stage: Stage) -> None:
    stage.silent = {Service.SSH}
    workspace = stage.launch(gpus="1")
    stage.live(300)
    assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.FAILED, [])
    check_at_rest(stage)
