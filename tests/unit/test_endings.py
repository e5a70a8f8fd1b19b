"""Why a container is down although it should run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from webapp.domain.container import Container, ContainerDetail, ContainerState, EngineEvent
from webapp.domain.endings import RETRY_SECONDS, TRIES, Ending, classify

STARTED = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
ENDED = STARTED + timedelta(hours=1)
BEFORE, AFTER = STARTED - timedelta(days=1), ENDED + timedelta(seconds=3)      # when the engine's process began


def ended(exit_code: int | None = 0, **changes: Any) -> ContainerDetail:
    container = Container("mine", "berth-test1-w-abc-r1", "sha256:1", ContainerState.EXITED, {}, STARTED)
    values = {"oom_killed": False, "error": "", "started_at": STARTED, "finished_at": ENDED, "ports": ()}
    return ContainerDetail(container=container, exit_code=exit_code, **values | changes)


def events(*actions: str, of: str = "mine", at: datetime = ENDED) -> list[EngineEvent]:
    return [EngineEvent(at, action, of, "name") for action in actions]


@pytest.mark.parametrize("exit_code", [0, 137, 143])
@pytest.mark.parametrize("actions", [("kill", "die", "stop"), ("kill", "die")])
def test_docker_stop_and_docker_kill_are_by_hand(exit_code: int, actions: tuple[str, ...]) -> None:
    assert classify(ended(exit_code), events(*actions), engine_began=BEFORE) is Ending.BY_HAND


@pytest.mark.parametrize("exit_code", [0, 1, 3, 139])
def test_end_without_a_kill_is_a_crash(exit_code: int) -> None:
    assert classify(ended(exit_code), events("die"), engine_began=BEFORE) is Ending.CRASHED


def test_kill_from_the_machine_without_signs_of_memory_is_a_crash() -> None:
    """`kill -9` of the process on the host: 137 alone says nothing of memory (promises.md 50)."""
    assert classify(ended(137), events("die"), engine_began=BEFORE) is Ending.CRASHED


def test_main_process_out_of_memory_by_the_flag() -> None:
    assert classify(ended(137, oom_killed=True), events("die"), engine_began=BEFORE) is Ending.OUT_OF_MEMORY


def test_main_process_out_of_memory_by_the_event_alone() -> None:
    """On cgroup v2 the flag is not to be relied on."""
    assert classify(ended(137), events("oom", "die"), engine_began=BEFORE) is Ending.OUT_OF_MEMORY


def test_child_out_of_memory_before_an_end_of_another_kind_is_a_crash() -> None:
    assert classify(ended(1, oom_killed=True), events("oom", "die"), engine_began=BEFORE) is Ending.CRASHED


def test_orderly_restart_of_the_engine_leaves_no_events() -> None:
    assert classify(ended(143), [], engine_began=AFTER) is Ending.ENGINE_RESTARTED


def test_engine_that_was_killed_looks_like_a_stop_by_hand_but_began_later() -> None:
    """A new dockerd ends what it finds itself, and its events of that look like `docker stop` (measured)."""
    assert classify(ended(137), events("kill", "die", "stop"), engine_began=AFTER) is Ending.ENGINE_RESTARTED


def test_engine_that_does_not_tell_when_it_began_and_forgot_was_restarted() -> None:
    assert classify(ended(143), [], engine_began=None) is Ending.ENGINE_RESTARTED


@pytest.mark.parametrize(("exit_code", "ending"), [
    (143, Ending.BY_HAND), (137, Ending.BY_HAND), (130, Ending.BY_HAND), (1, Ending.CRASHED), (0, Ending.CRASHED),
])
def test_events_pushed_out_of_the_memory_undo_nobodys_stop(exit_code: int, ending: Ending) -> None:
    """The engine keeps 256 events of everything on its machine."""
    assert classify(ended(exit_code), [], engine_began=BEFORE) is ending


def test_out_of_memory_is_told_without_events_too() -> None:
    assert classify(ended(137, oom_killed=True), [], engine_began=BEFORE) is Ending.OUT_OF_MEMORY


def test_events_of_an_earlier_run_do_not_count() -> None:
    earlier = events("kill", "die", "stop", at=STARTED - timedelta(seconds=1))
    assert classify(ended(1), earlier + events("die"), engine_began=BEFORE) is Ending.CRASHED


def test_events_of_other_containers_do_not_count() -> None:
    others = events("kill", "stop", of="other")
    assert classify(ended(1), others + events("die"), engine_began=BEFORE) is Ending.CRASHED


def test_long_grace_of_a_stop_lies_within_the_look_back() -> None:
    asked = events("kill", at=ENDED - timedelta(seconds=60))
    assert classify(ended(137), asked + events("die", "stop"), engine_began=BEFORE) is Ending.BY_HAND


def test_times_that_the_engine_does_not_give_are_borne() -> None:
    unknown = ended(1, started_at=None, finished_at=None)
    assert classify(unknown, events("die"), engine_began=AFTER) is Ending.CRASHED


def test_each_try_has_its_wait() -> None:
    assert len(RETRY_SECONDS) == TRIES
