#!/usr/bin/env python3
"""A private Docker Engine for tests, under a scratch folder of its own.

    scripts/test_engine.py start|stop|status|clean [--scratch FOLDER]

`start` prints `DOCKER_HOST=unix://…` and leaves the engine running; it takes the one that lives
under the same scratch folder already. Images stay in that folder between runs; `clean` deletes it.
Standard library only: tests import this file, and it runs before anything is installed.

Programs put into SCRATCH/bin come first on the engine's PATH (Docker looks for
`nvidia-container-runtime-hook` there once, when it starts).

An engine that starts in the same network namespace flushes the DOCKER chains of the others: their
published ports then go through docker-proxy alone. Give an engine a namespace where that matters.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http
import http.client
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SCRATCH = Path(os.environ.get("BERTH_TEST_SCRATCH", "/var/tmp/berth-test-engine"))  # noqa: S108
START_SECONDS = 60.0
STOP_SECONDS = 30.0
LONGEST_SOCKET_PATH = 107  # bytes, sun_path in unix(7)
DOCKERD = os.environ.get("BERTH_TEST_DOCKERD", "dockerd")  # another engine's: see modern_engine.py


class EngineDidNotStart(RuntimeError):
    """The Docker Engine for the tests did not start; its log says why."""


@dataclass(frozen=True, slots=True)
class TestEngine:
    """A running engine: its address for DOCKER_HOST and the process id of dockerd."""

    __test__ = False  # the name begins with Test; pytest must not collect it

    url: str
    pid: int
    scratch: Path

    def stop(self) -> None:
        stop(self.scratch)


def start(scratch: Path = DEFAULT_SCRATCH, *, dockerd: str = DOCKERD) -> TestEngine:
    """The engine under `scratch`, started if none answers there.

    Raises: EngineDidNotStart.
    """
    running = status(scratch)
    if running:
        return running
    stop(scratch)  # what a killed run left
    _prepare(scratch)
    log = scratch / "dockerd.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [
                dockerd,
                "--config-file",
                str(_config(scratch)),
                # A system containerd, where there is one, is shared: keep our containers apart.
                "--containerd-namespace",
                _bridge(scratch),
                "--containerd-plugins-namespace",
                f"{_bridge(scratch)}-plugins",
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # outlives the shell that asked for it
            env={**os.environ, "PATH": f"{scratch / 'bin'}:{os.environ['PATH']}"},
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(_socket(scratch)):
            return TestEngine(_url(scratch), process.pid, scratch)
        time.sleep(0.1)
    if process.poll() is None:
        stop(scratch)
    raise EngineDidNotStart(f"{log}:\n" + "\n".join(log.read_text().splitlines()[-20:]))


def status(scratch: Path = DEFAULT_SCRATCH) -> TestEngine | None:
    """The engine that lives and answers under `scratch`, or None."""
    pid = _dockerd_pid(scratch)
    if pid is None or not _answers(_socket(scratch)):
        return None
    return TestEngine(_url(scratch), pid, scratch)


def stop(scratch: Path = DEFAULT_SCRATCH) -> None:
    """End dockerd and whatever of it is left. Nothing there is success."""
    pid = _dockerd_pid(scratch)
    if pid is not None:
        _end(pid)
    for orphan in _orphans(scratch):
        _signal(orphan, signal.SIGKILL)
    for stale in (_pidfile(scratch), _socket(scratch), scratch / "exec/containerd/containerd.pid"):
        stale.unlink(missing_ok=True)
    if Path("/sys/class/net", _bridge(scratch)).exists():
        subprocess.run(["ip", "link", "delete", _bridge(scratch)], check=False, capture_output=True)


def clean(scratch: Path = DEFAULT_SCRATCH) -> None:
    """Stop, then delete the scratch folder with all images, containers and volumes in it."""
    stop(scratch)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{scratch}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    if scratch.exists():
        shutil.rmtree(scratch)


# -- files under the scratch folder


def _socket(scratch: Path) -> Path:
    return scratch / "docker.sock"


def _url(scratch: Path) -> str:
    return f"unix://{_socket(scratch)}"


def _pidfile(scratch: Path) -> Path:
    return scratch / "dockerd.pid"


def _config(scratch: Path) -> Path:
    return scratch / "daemon.json"


def _prepare(scratch: Path) -> None:
    if len(str(scratch / "exec/containerd/containerd.sock.ttrpc")) > LONGEST_SOCKET_PATH:
        raise EngineDidNotStart(f"{scratch}: the path is too long for the sockets under it")
    (scratch / "bin").mkdir(parents=True, exist_ok=True)
    subnet = _free_subnet(scratch)
    bridge = _bridge(scratch)
    gateway = f"{next(subnet.hosts())}/{subnet.prefixlen}"
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "add", gateway, "dev", bridge], check=True)
    subprocess.run(["ip", "link", "set", bridge, "up"], check=True)
    # A configuration file of its own: /etc/docker/daemon.json belongs to another engine.
    _config(scratch).write_text(
        json.dumps(
            {
                "hosts": [_url(scratch)],
                "data-root": str(scratch / "data"),
                "exec-root": str(scratch / "exec"),
                "pidfile": str(_pidfile(scratch)),
                "bridge": bridge,
                "default-address-pools": [{"base": str(subnet.supernet(new_prefix=16)), "size": 24}],
                "log-level": "warn",
                "features": {"cdi": True},  # as 28 has it by default; 20.10 knows nothing of it
            },
            indent=1,
        )
    )


# -- network: never docker0, which belongs to the machine's own engine if it has one


def _number(scratch: Path) -> int:
    return int.from_bytes(hashlib.sha256(str(scratch).encode()).digest()[:4], "big")


def _bridge(scratch: Path) -> str:
    return f"btest{_number(scratch):08x}"  # 13 characters; Linux takes 15


def _free_subnet(scratch: Path) -> ipaddress.IPv4Network:
    """The first /24 of a 10.x/16 that no address or route here touches.

    Networks made later come from the same /16; Docker itself steps around taken ones.
    """
    taken = list(_taken_networks())
    for step in range(100):
        base = ipaddress.IPv4Network(f"10.{100 + (_number(scratch) + step) % 100}.0.0/16")
        if not any(base.overlaps(network) for network in taken):
            return next(base.subnets(new_prefix=24))
    raise EngineDidNotStart("no free 10.x network for the bridge")


def _taken_networks() -> Iterator[ipaddress.IPv4Network]:
    routes = subprocess.run(
        ["ip", "-json", "-4", "route", "show", "table", "all"], check=True, capture_output=True, text=True
    ).stdout
    for route in json.loads(routes or "[]"):
        if route["dst"] != "default":
            yield ipaddress.IPv4Network(route["dst"], strict=False)


# -- processes


def _dockerd_pid(scratch: Path) -> int | None:
    """The id in the pid file if that process is our dockerd: a number is soon another's."""
    try:
        pid = int(_pidfile(scratch).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if str(_config(scratch)) in _command_line(pid) else None


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _orphans(scratch: Path) -> list[int]:
    """containerd, its shims and their containers, left when dockerd was killed.

    They name our exec root in their arguments; a container's first process is a shim's child.
    """
    ours = [
        pid
        for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if pid != os.getpid()
        and any(word.startswith(f"{scratch}/exec/") for word in _command_line(pid))
        and "containerd" in Path(_command_line(pid)[0]).name
    ]
    children = [child for pid in ours for child in _children(pid)]
    return children + ours


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return []


def _end(pid: int) -> None:
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        if _gone(pid):
            return
        time.sleep(0.05)
    _signal(pid, signal.SIGKILL)


def _gone(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:  # our child: reap it
            return True
    return not any(_command_line(pid))      # a zombie has an empty one


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _answers(path: Path) -> bool:
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=["start", "stop", "status", "clean"])
    parser.add_argument("--scratch", type=Path, default=DEFAULT_SCRATCH)
    arguments = parser.parse_args()
    scratch = arguments.scratch.resolve()
    if arguments.verb in ("stop", "clean"):
        {"stop": stop, "clean": clean}[arguments.verb](scratch)
        return 0
    try:
        engine = start(scratch) if arguments.verb == "start" else status(scratch)
    except EngineDidNotStart as error:
        print(error, file=sys.stderr)
        return 1
    if engine is None:
        print("not running", file=sys.stderr)
        return 3  # as `service status` says it
    print(f"DOCKER_HOST={engine.url}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
