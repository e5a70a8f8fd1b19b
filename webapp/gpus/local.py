"""Runs nvidia-smi on this machine. Nobody ever waits for it longer than a deadline.

A process in a driver call that does not return (state D) ignores SIGKILL, and `subprocess.run(timeout=2)` then came
back after 8.8 s, when the process did (measured). So a process is only ever polled; one that is over its deadline is
asked to end (a SIGKILL at once has frozen a card before: promises.md 27), later killed, and as long as it is there no
second one is started: a hanging driver would collect them (promises.md 22).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from webapp.gpus.output import NoAnswer, Output
from webapp.gpus.parse.cells import decode

DEADLINE_SECONDS = 20.0         # slow is not dead: several seconds happen on busy hosts (promises.md 23)
KILL_AFTER_SECONDS = 5.0        # from the request to end to SIGKILL
MOST_BYTES = 16 * 2**20         # of one stream; eight B200 print 0.4 MB
_NOT_FOUND = 127                # what a shell says


class LocalRunner:
    """`runner(argv) → Output`, one command at a time. A call takes the deadline at most, whatever the command does."""

    def __init__(self, *, deadline_seconds: float = DEADLINE_SECONDS, environment: Mapping[str, str] | None = None):
        self._deadline_seconds = deadline_seconds
        self._environment = {**os.environ, **(environment or {}), "LC_ALL": "C"}
        self._one_at_a_time = threading.Lock()
        self._overdue: subprocess.Popen[bytes] | None = None
        self._asked_at = 0.0

    def __call__(self, argv: Sequence[str]) -> Output:
        if not self._one_at_a_time.acquire(timeout=self._deadline_seconds):
            return self._late()
        try:
            return self._late() if self._is_overdue() else self._run(argv)
        finally:
            self._one_at_a_time.release()

    def close(self) -> None:
        """Ends what is overdue, and waits for it no longer than a second."""
        if self._is_overdue() and self._overdue:
            _send(self._overdue, signal.SIGKILL)
            _ended(self._overdue, time.monotonic() + 1)

    def _run(self, argv: Sequence[str]) -> Output:
        try:
            process = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self._environment, start_new_session=True)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
            return Output(_NOT_FOUND, "", str(exc), NoAnswer.MISSING)
        except OSError as exc:          # no memory, too many processes
            return Output(None, "", str(exc), NoAnswer.UNREADABLE)
        began = time.monotonic()
        stdout, stderr, why = _read(process, began + self._deadline_seconds)
        seconds = time.monotonic() - began
        exit_code = None if why else _ended(process, began + self._deadline_seconds)
        if exit_code is None:
            self._leave(process)
            why = why or NoAnswer.LATE
        return Output(exit_code, decode(stdout), decode(stderr), why, seconds)

    def _leave(self, process: subprocess.Popen[bytes]) -> None:
        self._overdue, self._asked_at = process, time.monotonic()
        _send(process, signal.SIGTERM)

    def _is_overdue(self) -> bool:
        if self._overdue is None:
            return False
        if self._overdue.poll() is not None:
            self._overdue = None
            return False
        if time.monotonic() - self._asked_at > KILL_AFTER_SECONDS:
            _send(self._overdue, signal.SIGKILL)
        return True

    def _late(self) -> Output:
        return Output(None, "", "", NoAnswer.LATE, self._deadline_seconds)


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes, NoAnswer | None]:
    """Both streams until they end, the deadline comes or one is too long; then closed, so that a writer gets EPIPE."""
    streams: list[IO[bytes]] = [stream for stream in (process.stdout, process.stderr) if stream]
    kept = {stream: bytearray() for stream in streams}
    why: NoAnswer | None = None
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for stream in streams:
            stack.enter_context(stream)
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and why is None:
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready and time.monotonic() >= deadline:
                why = NoAnswer.LATE
            for key, _ in ready:
                stream = next(stream for stream in streams if stream is key.fileobj)
                chunk = os.read(key.fd, 65_536)
                kept[stream] += chunk
                if not chunk:
                    selector.unregister(stream)
                if len(kept[stream]) > MOST_BYTES:
                    why = NoAnswer.UNREADABLE
    stdout, stderr = (bytes(kept[stream]) for stream in streams)
    return stdout, stderr, why


def _ended(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Its exit code; None when it closed its streams and still runs at the deadline."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(max(0.0, deadline - time.monotonic()))      # polls, unlike what run() does after a kill
    return None


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """To it and what it started; whoever has ended already needs no signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
