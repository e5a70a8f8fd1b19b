"""The hands of one host's loop: a few threads that do what they are given, never two at once for the same thing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial

import structlog

from webapp.agent.outage import Outage

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0         # after something that went wrong unforeseen: a bug must not become a hot loop


class Crew:
    """Daemon threads. A pool of the standard library would keep an agent that stops alive until its last worker ends,
    which may sit in a pull of an hour; what a worker was at is picked up by the next agent.
    """

    def __init__(
        self, name: str, *, size: int, stop: threading.Event, after_each: Callable[[], None], outage: Outage,
    ) -> None:
        self._name, self._size = name, size
        self._stop, self._outage = stop, outage
        self._after_each = after_each
        self._tasks: queue.SimpleQueue[tuple[str, Callable[[], None]]] = queue.SimpleQueue()
        self._busy: set[str] = set()
        self._at_work = 0
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def submit(self, key: str, work: Callable[..., None], *arguments: object) -> None:
        """Nothing happens while something with that key waits or is done: its end wakes the loop, which looks again."""
        with self._changed:
            if key in self._busy or self._stop.is_set():
                return
            if len(self._threads) < min(self._size, len(self._busy) + 1):
                self._hire()        # may fail where threads are scarce; then nothing was promised
            self._busy.add(key)
        self._tasks.put((key, partial(work, *arguments)))

    def wait(self, seconds: float) -> bool:
        """After a stop: until nobody is at work any more. False = somebody still is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._at_work == 0, timeout=seconds)

    def _hire(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        while not self._stop.is_set():
            key, task = self._tasks.get()
            self._count(+1)
            try:
                task()
            except Exception as error:
                if not self._outage.explains(error):
                    log.exception("worker.failed", key=key)
                self._stop.wait(PAUSE_SECONDS)
            finally:
                self._count(-1, done=key)
                self._after_each()

    def _count(self, change: int, *, done: str | None = None) -> None:
        with self._changed:
            self._at_work += change
            if done is not None:
                self._busy.discard(done)
            self._changed.notify_all()
