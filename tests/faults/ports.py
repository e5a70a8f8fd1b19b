"""A block of ports for one house, which no other test run on this machine takes meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import socket
from collections.abc import Iterator

import parts

BLOCKS = range(30_000, 32_700, 100)     # above what Berth hands out by default, below what Linux picks by itself


def foreign_listener(port: int, address: str = "127.0.0.1") -> socket.socket:
    """A program that is not Berth's, on a port that it may have used a moment ago."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
    return listener


@contextlib.contextmanager
def block_of_ports() -> Iterator[tuple[int, int]]:
    """First and last port. The lock of a killed run ends with it."""
    parts.LOCKS.mkdir(mode=0o700, exist_ok=True)
    for first in BLOCKS:
        with (parts.LOCKS / f"ports-{first}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield first, first + 99
            return
    raise AssertionError("every block of ports is taken by another test run")
