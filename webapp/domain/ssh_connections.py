"""Who is connected to a workspace by SSH, read from what its own processes show.

`LOOK` runs inside as the person: sshd's own processes show their title and when they began, and nothing else (they are
not dumpable); from whom and by which key a connection came stands in the environment of the programs that it started.
So one without a program (`ssh -N`) has neither. A person can make up lines about themselves, and about nobody else.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from webapp.domain.sshkeys import parse_public_keys
from webapp.errors import InvalidInput

MOST = 200                      # connections that are told of
TICKS_A_SECOND = 100            # USER_HZ, the same on every Linux that Docker runs on (man 5 proc)
_ID = re.compile(r"[1-9][0-9]{0,9}-[0-9]{1,19}")
_UP = re.compile(r"[0-9]{1,12}(?:\.[0-9]+)?")
_NOT_IN_YET = re.compile(r"\[(?:net|preauth|accepted)\]")
_LISTENS = re.compile(r"\[listener\]|(?:^|\s)-D(?:\s|$)")

# Lines: "up SECONDS"; "s PID PARENT START TITLE" of sshd; of programs that it started "c PARENT ADDRESS" and
# "k PARENT TYPE BLOB". No program but bash is needed.
LOOK = r"""
declare -A sshd parents
read -r up _ < /proc/uptime && printf 'up %s\n' "$up"
for folder in /proc/[0-9]*; do
    pid=${folder#/proc/} title='' stat=''
    read -r stat 2>/dev/null < "$folder/stat" || continue
    set -f; fields=(${stat##*) }); set +f
    IFS= read -r -d '' title 2>/dev/null < "$folder/cmdline"
    case $title in
        sshd:*|sshd-session:*)
            sshd[$pid]=yes
            printf 's %s %s %s %.200s\n' "$pid" "${fields[1]}" "${fields[19]}" "${title//[$'\n\r']/ }" ;;
        *) parents[$pid]=${fields[1]} ;;
    esac
done
for pid in "${!parents[@]}"; do
    parent=${parents[$pid]}
    [ -n "${sshd[$parent]:-}" ] || continue
    while IFS= read -r -d '' line; do
        case $line in
            SSH_CONNECTION=*)
                [[ ${line#*=} =~ ^([0-9a-fA-F.:]{2,45})\  ]] && printf 'c %s %s\n' "$parent" "${BASH_REMATCH[1]}" ;;
            SSH_USER_AUTH=/tmp/sshauth.*)
                file=${line#*=}
                [ -f "$file" ] && read -r -n 4096 _ type blob _ < "$file" &&
                    printf 'k %s %.50s %.4000s\n' "$parent" "$type" "$blob" ;;
        esac
    done 2>/dev/null < "/proc/$pid/environ"
done
exit 0
"""

# $1 … = PID-START of what is to end; a number that was given to another process meanwhile is left alone.
CUT = r"""
for one; do
    pid=${one%-*} stat=''
    read -r stat 2>/dev/null < "/proc/$pid/stat" || continue
    set -f; fields=(${stat##*) }); set +f
    [ "${fields[19]}" = "${one#*-}" ] && kill -TERM "$pid" 2>/dev/null
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class Connection:
    """`processes`: PID-START of the connection's own, the one that listened for it first."""

    processes: tuple[str, ...]
    since: datetime
    address: str | None             # None: it runs no program, so that nothing says it
    fingerprint: str | None         # "SHA256:…" of the key; None also where the image does not tell

    @property
    def id(self) -> str:
        return self.processes[0]

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "since": self.since.isoformat(), "address": self.address,
                "fingerprint": self.fingerprint}


@dataclass(slots=True)
class _Process:
    pid: str
    parent: str
    start: int                      # ticks since the machine's start
    title: str
    address: str | None = None
    fingerprint: str | None = None
    children: list[_Process] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.pid}-{self.start}"


def is_connection_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def read(output: str, *, now: datetime) -> tuple[Connection, ...]:
    """What `LOOK` printed; the longest first. Lines that make no sense are left out."""
    up_seconds, processes = _parse(output)
    for process in processes.values():
        if process.parent in processes and process.parent != process.pid:
            processes[process.parent].children.append(process)
    found = [_connection(first, up_seconds, now) for process in processes.values() if _LISTENS.search(process.title)
             for first in process.children if _is_in(first)]
    return tuple(sorted(found, key=lambda one: (one.since, one.id))[:MOST])


def _is_in(first: _Process) -> bool:
    """Not one that is only being asked who it is."""
    return not any(_NOT_IN_YET.search(process.title) for process in (first, *first.children))


def _connection(first: _Process, up_seconds: float, now: datetime) -> Connection:
    """Older servers have two processes for each, newer ones and those without privileges one."""
    family = (first, *first.children)
    age = timedelta(seconds=max(0.0, up_seconds - first.start / TICKS_A_SECOND))
    return Connection(
        processes=tuple(process.key for process in family), since=(now - age).replace(microsecond=0),
        address=next((process.address for process in family if process.address), None),
        fingerprint=next((process.fingerprint for process in family if process.fingerprint), None),
    )


def _parse(output: str) -> tuple[float, dict[str, _Process]]:
    up_seconds, processes = 0.0, dict[str, _Process]()
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        words = rest.split(" ", 3)
        if kind == "up" and _UP.fullmatch(rest):
            up_seconds = float(rest)
        elif kind == "s" and len(words) == 4 and is_connection_id(f"{words[0]}-{words[2]}"):
            pid, parent, start, title = words
            processes[pid] = _Process(pid, parent, int(start), title)
        elif kind == "c" and len(words) == 2 and words[0] in processes:
            processes[words[0]].address = _address(words[1])
        elif kind == "k" and len(words) == 3 and words[0] in processes:
            processes[words[0]].fingerprint = _fingerprint(f"{words[1]} {words[2]}")
    return up_seconds, processes


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _fingerprint(line: str) -> str | None:
    try:
        (key,) = parse_public_keys(line)
    except (InvalidInput, ValueError):
        return None
    return key.fingerprint
