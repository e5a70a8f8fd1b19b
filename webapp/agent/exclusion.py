"""There is exactly one agent: for each state folder, and for each database that several servers may reach."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from webapp.errors import AgentAlreadyRuns, AgentRunsElsewhere
from webapp.store.postgresql import SoleAgent
from webapp.store.session import Store

TAKE_OVER_SECONDS = 5.0         # for a server to see that an agent which was killed is gone
LOCK = "agent.lock"


@contextmanager
def alone(state_dir: Path) -> Iterator[None]:
    """The lock of the one agent. Held by the open file: a pause cannot lose it, a kill gives it back.

    Raises:  AgentAlreadyRuns.
    """
    # The web's account may write in this folder: never follow a link that it could have put there.
    lock = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o640)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AgentAlreadyRuns(folder=str(state_dir), pid=_holder(lock) or "?") from None
        yield
    finally:
        os.close(lock)


@contextmanager
def alone_on(store: Store, *, seconds: float = TAKE_OVER_SECONDS) -> Iterator[Callable[[], bool]]:
    """On PostgreSQL an agent on another server may want the same database. Yields whether the lock is still ours.

    Raises:  AgentRunsElsewhere.
    """
    if store.is_sqlite:
        yield lambda: True
        return
    lock = SoleAgent(store.url)
    try:
        if not lock.take(seconds):
            raise AgentRunsElsewhere(database=store.place)
        yield lock.holds
    finally:
        lock.close()


def wait_for_the_last_one(state_dir: Path, store: Store, *, seconds: float = TAKE_OVER_SECONDS) -> None:
    """Until no agent runs; one that was just told to end has that long. Raises AgentAlreadyRuns, AgentRunsElsewhere."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with alone(state_dir), alone_on(store, seconds=0):
                return
        except AgentAlreadyRuns:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.2)


def _holder(lock: int) -> int | None:
    """The process that holds a flock, as the kernel tells it (proc(5), /proc/locks): an agent writes nothing into it.

    None: it lives where its id is not known here, in another container for instance.
    """
    status = os.fstat(lock)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text("ascii").splitlines()
    except OSError:
        return None
    held = (line.split() for line in lines if " FLOCK " in line)
    return next((int(fields[4]) for fields in held if fields[5:6] == [place] and int(fields[4]) > 0), None)
