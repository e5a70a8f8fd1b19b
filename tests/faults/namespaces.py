"""Network namespaces: an engine in one of its own shares no firewall rules and no ports with the machine's others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

CLONE_NEWNET = 0x40000000       # sched.h

T = TypeVar("T")


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@contextlib.contextmanager
def namespace(name: str) -> Iterator[str]:
    """A new one with its loopback up. One that a killed run left under this name is replaced."""
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "delete", name)


def inside(name: str, do: Callable[[], T]) -> T:
    """What `do` returns, run by a thread in that namespace. A socket made there stays there."""
    result: list[T] = []
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            _enter(name)
            result.append(do())
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    return result[0]


def _enter(name: str) -> None:
    """Moves the calling thread alone (setns(2))."""
    descriptor = os.open(Path("/var/run/netns", name), os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {name}")
    finally:
        os.close(descriptor)
