"""Memory and CPU of a process and everything below it, and how busy the machine is, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

MB = 1_000_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    return [pid, *(below for child in _children(pid) for below in tree(child))]


def pss_mb(pids: Iterable[int]) -> float:
    """Proportional set size in MB (10⁶ bytes): a page that n processes share counts 1/n for each of them.

    Raises:  PermissionError: processes of another account, and we are not root.
    """
    return sum(map(_pss_bytes, pids)) / MB


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time used so far by these processes, and by children of theirs that have ended."""
    return sum(map(_cpu_ticks, pids)) / _TICKS_PER_SECOND


def busy_percent(*, seconds: float) -> float:
    """How much of all cores is used, by whomever, in the next `seconds`: others' work blurs what is measured."""
    idle, total = _idle_and_total_ticks()
    time.sleep(seconds)
    idle_later, total_later = _idle_and_total_ticks()
    return 100 * (1 - (idle_later - idle) / max(total_later - total, 1))


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir()
                for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []       # it ended while we looked


def _idle_and_total_ticks() -> tuple[int, int]:
    """First line of /proc/stat, proc(5): user, nice, system, idle, iowait, irq, softirq, steal, …"""
    ticks = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return ticks[3] + ticks[4], sum(ticks)


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _cpu_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # Fields 14 to 17 of proc(5): utime, stime, cutime, cstime. The name, field 2, may hold spaces and brackets.
    return sum(map(int, text.rpartition(")")[2].split()[11:15]))
