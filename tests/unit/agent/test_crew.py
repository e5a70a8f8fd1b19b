"""Threads that do the work of a host, and the agent as a process runs it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datakey
import pytest
from sqlalchemy import text

import webapp.agent
from agent.stage import INSTANCE, Stage
from webapp.agent.crew import Crew
from webapp.agent.exclusion import alone, alone_on
from webapp.agent.outage import Outage
from webapp.agent.reconciler import HostLoop
from webapp.engines.fake import FakeEngine
from webapp.errors import AgentAlreadyRuns, AgentRunsElsewhere
from webapp.settings import Settings, load_settings

SECONDS = 5.0           # nobody waits so long unless something is broken


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def crew(stop: threading.Event, *, size: int = 2, after_each: Any = lambda: None) -> Crew:
    return Crew("test", size=size, stop=stop, after_each=after_each, outage=Outage(stop))


def test_never_two_at_once_for_the_same_thing(stop: threading.Event) -> None:
    began, go, done = threading.Event(), threading.Event(), threading.Event()
    second: list[str] = []

    def first() -> None:
        began.set()
        go.wait(SECONDS)

    hands = crew(stop, after_each=done.set)
    hands.submit("one", first)
    assert began.wait(SECONDS)
    hands.submit("one", second.append, "while the first is at it")
    go.set()
    assert done.wait(SECONDS)
    assert second == []


def test_it_can_be_given_again_once_it_is_done(stop: threading.Event) -> None:
    done, ends = threading.Semaphore(0), []
    hands = crew(stop, after_each=done.release)
    for number in range(3):
        hands.submit("one", ends.append, number)
        assert done.acquire(timeout=SECONDS)
    assert ends == [0, 1, 2]


def test_different_things_are_done_side_by_side(stop: threading.Event) -> None:
    together = threading.Barrier(3)
    hands = crew(stop)
    for key in "ab":
        hands.submit(key, together.wait, SECONDS)
    together.wait(SECONDS)


def test_more_than_there_are_threads_for_wait_their_turn(stop: threading.Event) -> None:
    done, ends = threading.Semaphore(0), []
    hands = crew(stop, size=1, after_each=done.release)
    for number in range(5):
        hands.submit(str(number), ends.append, number)
    for _ in range(5):
        assert done.acquire(timeout=SECONDS)
    assert ends == [0, 1, 2, 3, 4]


def test_error_ends_neither_the_thread_nor_the_others(
    stop: threading.Event, monkeypatch: pytest.MonkeyPatch, log: list[Any],
) -> None:
    monkeypatch.setattr("webapp.agent.crew.PAUSE_SECONDS", 0.0)
    done, ends = threading.Semaphore(0), []
    hands = crew(stop, size=1, after_each=done.release)
    hands.submit("broken", lambda: 1 // 0)
    hands.submit("sound", ends.append, "done")
    for _ in range(2):
        assert done.acquire(timeout=SECONDS)
    assert (ends, [entry["event"] for entry in log]) == (["done"], ["worker.failed"])


def test_stop_waits_for_those_at_work_but_not_for_ever(stop: threading.Event) -> None:
    began, go = threading.Event(), threading.Event()

    def long() -> None:
        began.set()
        go.wait(SECONDS)

    hands = crew(stop)
    hands.submit("long", long)
    assert began.wait(SECONDS)
    stop.set()
    assert not hands.wait(0.01)
    go.set()
    assert hands.wait(SECONDS)


def test_nothing_is_taken_after_a_stop(stop: threading.Event) -> None:
    stop.set()
    hands, ends = crew(stop), list[str]()
    hands.submit("late", ends.append, "late")
    assert hands.wait(SECONDS) and ends == []


def test_no_thread_keeps_a_process_alive(stop: threading.Event) -> None:
    began = threading.Event()
    crew(stop).submit("one", began.set)
    assert began.wait(SECONDS)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("test-"))


class TestProcess:
    @pytest.fixture
    def settings(self, tmp_path: Path, store: Any) -> Settings:
        datakey.put_into(tmp_path)
        return load_settings({
            "BERTH_STATE_DIR": str(tmp_path), "BERTH_DATABASE_URL": str(store.url), "BERTH_INSTANCE": INSTANCE,
            "BERTH_MAX_CPUS": "8", "BERTH_MAX_MEMORY": "32GiB"})

    def test_it_hears_the_bell_and_ends_when_told(
        self, stage: Stage, settings: Settings, stop: threading.Event,
    ) -> None:
        stage.machine.on_start = lambda container: stop.set()
        process = threading.Thread(
            target=webapp.agent.run, args=(settings, stop), kwargs={"opener": lambda *_, **__: stage.engine})
        process.start()
        stage.launch()
        process.join(2 * SECONDS)
        assert not process.is_alive()
        assert stage.containers()[0].is_up, "an agent that stops stops no workspace"

    def test_second_one_is_refused(self, stage: Stage, settings: Settings, stop: threading.Event) -> None:
        said = f"as process {os.getpid()}"
        with alone(settings.state_dir), pytest.raises(AgentAlreadyRuns, match=said):
            webapp.agent.run(settings, stop, opener=lambda *_, **__: FakeEngine(instance=INSTANCE, host="gpu1"))

    @pytest.mark.postgresql
    def test_second_one_from_another_folder_is_refused(
        self, stage: Stage, settings: Settings, stop: threading.Event, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("webapp.agent.alone_on", partial(alone_on, seconds=0.2))
        epoch = stage.context.epoch
        with alone_on(stage.store) as holds, pytest.raises(AgentRunsElsewhere, match="postgresql://"):
            assert holds()
            webapp.agent.run(settings, stop, opener=lambda *_, **__: FakeEngine(instance=INSTANCE, host="gpu1"))
        webapp.agent._live(stage.store, stop, Outage(stop), epoch, holds=lambda: True)
        assert not stop.is_set(), "it wrote before it had the lock"

    @pytest.mark.postgresql
    def test_one_that_lost_its_lock_to_another_stops(self, stage: Stage, stop: threading.Event) -> None:
        with alone_on(stage.store) as holds:
            webapp.agent._live(stage.store, stop, Outage(stop), stage.context.epoch, holds)
            assert not stop.is_set()
        with alone_on(stage.store):
            webapp.agent._live(stage.store, stop, Outage(stop), stage.context.epoch, holds)
        assert stop.is_set()

    def test_lock_is_given_back(self, settings: Settings) -> None:
        for _ in range(2):
            with alone(settings.state_dir):
                pass

    def test_thread_that_must_not_end_survives_an_error(
        self, monkeypatch: pytest.MonkeyPatch, log: list[Any], stop: threading.Event,
    ) -> None:
        monkeypatch.setattr("webapp.agent.AGAIN_SECONDS", 0.0)
        rounds: list[int] = []

        def work() -> None:
            rounds.append(len(rounds))
            if len(rounds) == 3:
                stop.set()
            raise OSError("disk I/O error")

        webapp.agent._again(work, stop, Outage(stop))
        assert (len(rounds), {entry["event"] for entry in log}) == (3, {"agent.thread_failed"})

    def test_sign_of_life_that_cannot_be_written_ends_nothing(
        self, stage: Stage, log: list[Any], stop: threading.Event,
    ) -> None:
        with stage.store.write() as session:
            session.execute(text("ALTER TABLE agent_state RENAME TO lost"))
        webapp.agent._live(stage.store, stop, Outage(stop), stage.context.epoch, lambda: True)
        assert not stop.is_set() and log[-1]["event"] == "agent.no_sign_of_life"
        log.clear()

    def test_replaced_one_stops(self, stage: Stage, stop: threading.Event) -> None:
        old = stage.context.epoch
        webapp.agent._live(stage.store, stop, Outage(stop), old, lambda: True)
        assert not stop.is_set()
        stage.take_over()
        webapp.agent._live(stage.store, stop, Outage(stop), old, lambda: True)
        assert stop.is_set()

    def test_pass_that_fails_unforeseen_does_not_end_the_loop(
        self, stage: Stage, log: list[Any], stop: threading.Event,
    ) -> None:
        """Also when the database fails while an engine's silence is written down."""
        loop = HostLoop(stage.context, stop, stage.hands)
        stage.engine.down = True

        def no_disk(*_: object, **__: object) -> None:
            stop.set()
            loop.wake()
            raise OSError("disk is full")

        object.__setattr__(stage.context, "store", type("Broken", (), {"write": no_disk, "read": stage.store.read})())
        loop.run()
        assert "reconciler.pass_failed" in [entry["event"] for entry in log]
        log.clear()
