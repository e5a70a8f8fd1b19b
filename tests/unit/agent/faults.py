"""An agent that dies, or is held up, at a chosen moment of its work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from agent.stage import LOOKS
from webapp.engines.fake import FakeEngine
from webapp.store.session import Store

LONGEST_WAIT = 60.0     # seconds; only a dead-lock takes as long


class Crash(BaseException):
    """kill -9: nothing that handles errors gets to see it."""


class Moments:
    """Counts the moments between which an agent does something: around each deed on the engine, after each commit.

    `act` is called at the moment with the number `at`; 0 = never. Looks at the engine change nothing: no moments.
    """

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self._at, self._act = at, act
        self.reached = 0
        self.came = False

    def pass_by(self) -> None:
        self.reached += 1
        if self.reached == self._at:
            self.came = True
            self._act()


def die() -> None:
    raise Crash


class HeldUp:
    """Work that can be held up in its middle, by `pause` called from it. One of the two threads runs at a time."""

    def __init__(self, work: Callable[[Callable[[], None]], object]) -> None:
        self._paused, self._go, self._failure = threading.Event(), threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._paused.wait(LONGEST_WAIT)

    def let_go(self) -> None:
        """It goes on to its end; its failure is the caller's. Asked twice: nothing new."""
        self._go.set()
        self._thread.join(LONGEST_WAIT)
        assert not self._thread.is_alive()
        for failure in self._failure:
            raise failure

    def _pause(self) -> None:
        self._paused.set()
        self._go.wait(LONGEST_WAIT)

    def _run(self, work: Callable[[Callable[[], None]], object]) -> None:
        try:
            work(self._pause)
        except BaseException as failure:
            self._failure.append(failure)
        finally:
            self._paused.set()


class MomentousEngine:
    """The twin, with a moment before and after every deed."""

    def __init__(self, engine: FakeEngine, moments: Moments) -> None:
        self._engine, self._moments = engine, moments

    def __getattr__(self, call: str) -> Any:
        method = getattr(self._engine, call)
        if call in LOOKS or not callable(method):
            return method

        def with_moments(*arguments: Any, **keywords: Any) -> Any:
            self._moments.pass_by()
            answer = method(*arguments, **keywords)
            self._moments.pass_by()
            return answer

        return with_moments


class MomentousStore:
    """The store, with a moment after every commit."""

    def __init__(self, store: Store, moments: Moments) -> None:
        self._store, self._moments = store, moments
        self.read = store.read

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self._store.write() as session:
            yield session
        self._moments.pass_by()
