"""The database away for a while, or upgraded beside the agent: whichever of its threads meets that, it is said once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import structlog
from sqlalchemy.orm import Session

from webapp.store.failures import is_unavailable
from webapp.store.revisions import OtherVersion

if TYPE_CHECKING:
    from webapp.agent.context import HostContext

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0     # before a record that must not be lost is tried again
_T = TypeVar("_T")


class Outage:
    """For all threads of one agent."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        """`stop`: ends the agent."""
        self._stop = stop or threading.Event()
        self._lock = threading.Lock()
        self._is_away = False
        self.refusal: OtherVersion | None = None    # why the agent ends: the tables are not its own any more

    def explains(self, error: Exception) -> bool:
        """Whether it is the database that has failed, which then is no bug and worth no trace."""
        if isinstance(error, OtherVersion):
            self._end(error)
            return True
        if not is_unavailable(error):
            return False
        with self._lock:
            begins, self._is_away = not self._is_away, True
        if begins:
            log.warning("database.away", detail=_line(error))
        return True

    def is_over(self) -> None:
        """It could be written just now."""
        with self._lock:
            was_away, self._is_away = self._is_away, False
        if was_away:
            log.info("database.back")

    def _end(self, refusal: OtherVersion) -> None:
        with self._lock:
            self.refusal = self.refusal or refusal
        self._stop.set()


def write_down(context: HostContext, write: Callable[[Session], _T]) -> _T:
    """A transaction about what is done already and happens only once: waits for a database that is away."""
    while True:
        try:
            with context.store.write() as session:
                return write(session)
        except Exception as error:
            if not is_unavailable(error) or context.stopping():
                raise
            context.outage.explains(error)
        context.sleep(PAUSE_SECONDS)


def _line(error: Exception) -> str:
    lines = str(getattr(error, "orig", error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
