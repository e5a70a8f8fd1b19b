"""A long piece of work on an image: it says how far it is, and hears within seconds that nobody wants it any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from webapp.agent.context import HostContext
from webapp.domain.reasons import Reason
from webapp.engines import Engine
from webapp.services import operations
from webapp.store.reads import image_work as reads
from webapp.store.reads.image_work import ImageInFull

RECORD_SECONDS = 1.0        # how often it writes down how far it is, and looks whether it is still wanted
MOST_LOG = 64 * 1024        # characters that are kept, the newest

Progress = dict[str, Any]


class Cancelled(Exception):
    """Somebody wants it ended."""


class LeftAlone(Exception):
    """The agent stops, or another one has taken over: it is taken up anew."""


class Refused(Exception):
    """It cannot be done, and why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the operation's row says, and what is written down with it, all or nothing."""

    result: Mapping[str, Any]
    record: Callable[[Session], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """The operation, as it was taken."""

    id: str
    workspace_id: str | None
    arguments: Mapping[str, Any]


class Job:
    """Not thread-safe: one worker is at it."""

    def __init__(self, context: HostContext, asked: Asked, image: ImageInFull) -> None:
        self.context = context
        self.asked = asked
        self.image = image
        self._log = ""
        self._written: tuple[Progress, str] = ({}, "")
        self._looked: float | None = None

    @property
    def engine(self) -> Engine:
        return self.context.engine

    def now(self) -> datetime:
        return self.context.now()

    def tell(self, progress: Progress, printed: str = "") -> None:
        """Called as often as there is something to say, and while there is nothing. Raises Cancelled, LeftAlone."""
        self._log = f"{self._log}{printed}"[-MOST_LOG:]
        now = self.context.monotonic()
        if self._looked is None or now - self._looked >= RECORD_SECONDS:
            self._looked = now
            self.check()
            self._write(progress)

    def check(self) -> None:
        """Raises Cancelled, LeftAlone."""
        with self.context.store.read() as session:
            wanted = reads.is_wanted(session, self.asked.id, epoch=self.context.epoch)
        if wanted is None or self.context.stopping():
            raise LeftAlone
        if not wanted:
            raise Cancelled

    def flush(self, progress: Progress) -> None:
        """What was printed last, before it ends."""
        self._write(progress)

    def _write(self, progress: Progress) -> None:
        if (progress, self._log) == self._written:
            return
        self._written = (progress, self._log)
        with self.context.store.write() as session:
            if not operations.report(session, self.asked.id, progress, log=self._log or None):
                raise LeftAlone
