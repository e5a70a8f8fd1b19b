"""Which resource limits this engine is able to set: an engine without CAP_SYS_RESOURCE cannot raise hard limits.

Such an engine (in a container, or under a supervisor that took the capability away) refuses *every* start with "error
setting rlimit type 8: operation not permitted", so what it cannot raise is lowered to what it has.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

CAP_SYS_RESOURCE = 24       # bit number, capabilities(7)
UNLIMITED = -1
_FILE_NAMES = {"memlock": "Max locked memory", "stack": "Max stack size", "nofile": "Max open files"}


def settable(wanted: Mapping[str, int], url: str) -> dict[str, int]:
    """`wanted`, lowered where the engine at `url` could not set it. An engine that cannot be looked at is able."""
    pid = _engine_pid(url)
    if pid is None:
        return dict(wanted)
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        limits = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return dict(wanted)
    return lowered(wanted, status=status, limits=limits)


def lowered(wanted: Mapping[str, int], *, status: str, limits: str) -> dict[str, int]:
    """`wanted` under the hard limits of a process; `status` and `limits` are its files of that name in /proc."""
    if _may_raise(status):
        return dict(wanted)
    return {name: _lower(value, _hard_limit(limits, _FILE_NAMES[name])) for name, value in wanted.items()}


def _engine_pid(url: str) -> int | None:
    """The process that listens on the engine's socket, as the kernel names it (SO_PEERCRED, unix(7)).

    Under systemd's socket activation that is systemd: it has every capability, and so has what it starts by default.
    """
    if not url.startswith("unix://"):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(2.0)
        try:
            connection.connect(url.removeprefix("unix://"))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    pid: int = struct.unpack("3i", credentials)[0]
    return pid or None      # 0: the process lives in another PID namespace


def _may_raise(status: str) -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is None or bool(int(found[1], 16) >> CAP_SYS_RESOURCE & 1)


def _hard_limit(limits: str, name: str) -> int:
    """Third column of /proc/PID/limits: name, soft, hard, unit."""
    found = re.search(rf"^{name}\s+\S+\s+(\S+)", limits, re.MULTILINE)
    return int(found[1]) if found and found[1] != "unlimited" else UNLIMITED


def _lower(value: int, ceiling: int) -> int:
    if ceiling == UNLIMITED:
        return value
    return ceiling if value == UNLIMITED else min(value, ceiling)
