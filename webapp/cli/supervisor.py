"""Keeps web and agent running: the last thing `berth up` turns into.

Run by path, as `python supervisor.py <plan as JSON>`, and standard library only: it lives as long as Berth does, and
so costs 8 MB instead of the 60 MB of the set-up before it. What it stops is web and agent, never a workspace.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

STOP_SECONDS = 5.0          # after that, SIGKILL
FIRST_PAUSE_SECONDS = 1.0   # before a child that died is started again; doubled each time …
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0       # … until one has lived this long
TICK_SECONDS = 1.0
PR_SET_PDEATHSIG = 1        # prctl(2)
UMASK = 0o007               # what web and agent make is for them and their group

HEARD = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Child:
    """One process that is to run all the time, or once when `once` is set."""

    name: str
    command: list[str]
    uid: int | None = None
    gid: int | None = None
    once: bool = False
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause_seconds: float = 0.0
    due_at: float = 0.0


def main(plan: dict[str, Any]) -> int:
    """Runs until a signal asks to stop, or a child ends in a way that a new start would not change.

    Args:    plan: {"children": [{"name", "command", "uid", "gid", "once"}, …], "final": exit codes of such an end}
    Returns: 0, or that exit code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    children = [Child(**child) for child in plan["children"]]
    finals: list[int] = plan.get("final", [])
    final: int | None = None
    while final is None:
        for child in children:
            _start_when_due(child)
        heard = signal.sigtimedwait(HEARD, TICK_SECONDS)
        if heard is not None and heard.si_signo != signal.SIGCHLD:
            break
        codes = [code for child in children if (code := _look_after(child, finals)) in finals]
        final = codes[0] if codes else None
    _stop(children)
    return final or 0


def _start_when_due(child: Child) -> None:
    if child.process is not None or time.monotonic() < child.due_at:
        return
    child.started_at = time.monotonic()
    try:
        child.process = _spawn(child)
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"{child.name} cannot be started: {error}")
        _put_off(child)


def _spawn(child: Child) -> subprocess.Popen[bytes]:
    supervisor = os.getpid()

    def prepare() -> None:
        """In the child, after it took its account: changing accounts would undo the death signal (prctl(2))."""
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            os._exit(1)     # it died before the call

    other = child.uid is not None
    return subprocess.Popen(
        child.command, stdin=subprocess.DEVNULL, umask=UMASK, preexec_fn=prepare, cwd="/",
        start_new_session=True,     # Ctrl-C of the terminal comes to the supervisor alone
        user=child.uid, group=child.gid, extra_groups=[] if other else None,
        env={**os.environ, "HOME": "/"} if other else None,
    )


def _look_after(child: Child, final: Collection[int]) -> int | None:
    """Notices a death; the next start waits longer each time. The exit code of one that runs all the time."""
    if child.process is None or child.process.poll() is None:
        return None
    code, child.process = child.process.returncode, None
    if child.once:
        child.due_at = float("inf")
        return None
    if time.monotonic() - child.started_at > STEADY_SECONDS:
        child.pause_seconds = 0.0
    _put_off(child)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if code not in final:
        _say(f"{child.name} {how}; starting it again in {child.pause_seconds:.0f} s")
    return code


def _put_off(child: Child) -> None:
    child.pause_seconds = min(max(child.pause_seconds * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
    child.due_at = time.monotonic() + child.pause_seconds


def _stop(children: list[Child]) -> None:
    running = [(child.name, child.process) for child in children if child.process and child.process.poll() is None]
    _say("stopping web and agent; workspaces keep running")
    for _, process in running:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for name, process in running:
        if not _ended(process, deadline):
            _say(f"{name} did not stop in {STOP_SECONDS:.0f} s and is killed")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """A second Ctrl-C ends the wait."""
    while process.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        heard = signal.sigtimedwait(HEARD, min(left, 0.2))
        if heard is not None and heard.si_signo == signal.SIGINT:
            return process.poll() is not None
    return True


def _say(line: str) -> None:
    """The terminal may be gone; that is no reason to end."""
    with contextlib.suppress(OSError):
        print(f"berth: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
