#!/usr/bin/env python3
"""What tests of all tiers stand on, and how it is taken away again.

    python tests/parts.py image | clean | clean-processes …     (./run test does; BERTH_TEST_ENGINE says which engine)

An instance of a test has an id that begins with `tt0`, as no person would choose it, and a lock that is held as long as
the test lives. What an engine has of such an instance whose lock is free was left by a run that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import secrets
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

import docker
import docker.errors

from webapp.cli.workspace_image import ensure
from webapp.domain.container import LABEL_INSTANCE
from webapp.engines import network_name
from webapp.engines.docker import DockerEngine
from webapp.engines.docker.host_rules import HostRules
from webapp.engines.docker.local_base import ensure_local_base

ROOT = Path(__file__).resolve().parent.parent
LOCKS = Path(tempfile.gettempdir(), f"berth-test-{os.getuid()}")
RUN_MARK = "BERTH_TEST_RUN"         # in the environment of everything that ./run test starts
NAMESPACE = "berth-test-"           # prefix of network namespaces that tests make
INSTANCE_PREFIX = "tt0"
_INSTANCE = re.compile(rf"{INSTANCE_PREFIX}[a-z0-9]{{6}}")
_OWNED = re.compile(rf"berth-({_INSTANCE.pattern})(?:[-/].*)?")
END_SECONDS = 5.0


def load(path: Path) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(f"berth_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def locked(name: str) -> Iterator[None]:
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    with (LOCKS / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def engine() -> Iterator[str]:
    """BERTH_TEST_ENGINE, or the private engine, which ends with the block unless it ran before."""
    given = os.environ.get("BERTH_TEST_ENGINE")
    if given:
        yield given
        return
    private = load(ROOT / "scripts" / "test_engine.py")
    with locked("engine"):
        running = private.status()
        started = running or private.start()
    yield started.url
    if running is None:
        private.stop()


def workspace_image(engine_url: str, progress: Callable[[str], None] = print, *, jupyter: bool = True) -> str:
    """The reference of the workspace image on the base that needs no registry: the same everywhere, and CPU only."""
    with locked("image"):
        with closing(DockerEngine(engine_url, instance="", host="this machine")) as engine:
            base = ensure_local_base(engine, engine_url, progress)
        return ensure(engine_url, base, jupyter=jupyter, progress=progress).reference


@contextmanager
def instance(engine_url: str) -> Iterator[str]:
    """A fresh id; whatever the engine has under it is removed at the end."""
    alphabet = string.ascii_lowercase + string.digits
    name = INSTANCE_PREFIX + "".join(secrets.choice(alphabet) for _ in range(6))
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    path = LOCKS / f"instance-{name}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield name
        finally:
            with closing(docker.DockerClient(base_url=engine_url, timeout=120)) as client:
                remove_instance(client, name)
            path.unlink(missing_ok=True)


def remove_instance(client: docker.DockerClient, name: str) -> None:
    """Containers, volumes, network, committed images and firewall rules of one instance of a test."""
    assert _INSTANCE.fullmatch(name), "never anything but a test's"
    api = client.api
    for row in api.containers(all=True, filters={"label": f"{LABEL_INSTANCE}={name}"}):
        with contextlib.suppress(docker.errors.APIError):
            api.remove_container(row["Id"], force=True, v=True)
    for volume in api.volumes()["Volumes"] or []:
        if _owner(volume["Name"]) == name or (volume.get("Labels") or {}).get(LABEL_INSTANCE) == name:
            with contextlib.suppress(docker.errors.APIError):
                api.remove_volume(volume["Name"], force=True)
    for tag in _tags(client):
        if _owner(tag) == name:
            with contextlib.suppress(docker.errors.APIError):
                api.remove_image(tag, force=True)
    HostRules(name, local=engine_is_local(api.base_url)).remove()
    with contextlib.suppress(docker.errors.APIError):
        api.remove_network(network_name(name))


def remove_stale_instances(engine_url: str) -> list[str]:
    """Of runs that were killed: those whose lock nobody holds."""
    with closing(docker.DockerClient(base_url=engine_url, timeout=120)) as client:
        stale = [name for name in sorted(_instances(client)) if not _in_use(name)]
        for name in stale:
            remove_instance(client, name)
    return stale


def remove_stale_namespaces() -> list[str]:
    """Network namespaces of tests in which nothing runs any more; somebody may run a test by hand meanwhile."""
    names = [line.split()[0] for line in _ip("netns", "list").splitlines() if line.startswith(NAMESPACE)]
    stale = [name for name in names if not _ip("netns", "pids", name)]
    for name in stale:
        _ip("netns", "delete", name)
    return stale


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False).stdout.strip()


def end_marked_processes() -> list[int]:
    """What an earlier ./run test started and what is still there; never this process or the ones above it."""
    mark = f"{RUN_MARK}=".encode()
    own = _ancestors(os.getpid())
    pids = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if pid not in own and any(line.startswith(mark) for line in _environment(pid))]
    _end(pids)
    return pids


def engine_is_local(url: str) -> bool:
    return url.startswith(("unix:", "http+docker:"))


def _instances(client: docker.DockerClient) -> set[str]:
    api = client.api
    volumes = api.volumes()["Volumes"] or []
    rows = (*api.containers(all=True, filters={"label": LABEL_INSTANCE}), *volumes, *api.networks())
    labels = [(row.get("Labels") or {}).get(LABEL_INSTANCE, "") for row in rows]
    names = [volume["Name"] for volume in volumes] + _tags(client)
    return {label for label in labels if _INSTANCE.fullmatch(label)} | set(filter(None, map(_owner, names)))


def _tags(client: docker.DockerClient) -> list[str]:
    return [tag for row in client.api.images() for tag in row.get("RepoTags") or []]


def _owner(name: str) -> str | None:
    """The test instance that a volume or an image of that name belongs to: `berth-tt0abc123-home-…`."""
    match = _OWNED.fullmatch(name.partition(":")[0])
    return match[1] if match else None


def _in_use(name: str) -> bool:
    try:
        with (LOCKS / f"instance-{name}.lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _ancestors(pid: int) -> set[int]:
    found = set()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _end(pids: list[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline and any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
            time.sleep(0.05)


def main(verbs: list[str]) -> int:
    for verb in verbs:
        if verb == "image":
            print(workspace_image(os.environ["BERTH_TEST_ENGINE"]))
        elif verb == "clean":
            left = [*remove_stale_instances(os.environ["BERTH_TEST_ENGINE"]), *remove_stale_namespaces()]
            if left:
                print(f"removed what an earlier run left: {', '.join(left)}")
        elif verb == "clean-processes":
            pids = end_marked_processes()
            if pids:
                print(f"ended processes of an earlier run: {', '.join(map(str, pids))}")
        else:
            raise SystemExit(f"no such verb: {verb}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
