"""One `berth up` per state folder, by a lock that dies with its process: a pid file alone would outlive a kill."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from webapp.cli.failure import RunsAlready


def take(state_dir: Path) -> int:
    """The open file that holds the lock, which goes through exec. It says who has it; a stale one is overwritten.

    Raises:  RunsAlready.
    """
    path = state_dir / "up.lock"
    # The web's account may write in this folder: never follow a link that it could have put there.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise RunsAlready(folder=state_dir, pid=holder or "?") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    os.set_inheritable(descriptor, True)
    return descriptor


def holder(state_dir: Path) -> int | None:
    """The process that holds the lock; None = nobody."""
    try:
        descriptor = os.open(state_dir / "up.lock", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None
