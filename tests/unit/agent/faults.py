"""An agent that dies, or is held up, at a chosen moment of its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from agent.stage import LOOKS
from webapp.engines.fake import FakeEngine
from webapp.store.session import Store


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
