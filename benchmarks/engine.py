"""What a benchmark needs of the machine: an engine with the workspace image, free ports, and cleanness after it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import docker.errors

from webapp.domain.container import LABEL_INSTANCE
from webapp.engines.docker.host_rules import HostRules

ROOT = Path(__file__).resolve().parents[1]
SYSTEM_SOCKET = Path("/var/run/docker.sock")
LABEL = "berth.benchmark"       # its value: the instance; on what a benchmark makes beside Berth
PORTS = range(21_000, 32_000)   # below what Linux gives to outgoing connections
TRIES = 200
AT_ONCE = 20


def engine_url(wanted: str | None) -> str:
    """The engine that was asked for, else $DOCKER_HOST, else the system's, else the one for tests."""
    if wanted or os.environ.get("DOCKER_HOST"):
        return wanted or os.environ["DOCKER_HOST"]
    if SYSTEM_SOCKET.exists():
        return f"unix://{SYSTEM_SOCKET}"
    return _last_line("scripts/test_engine.py", "start").removeprefix("DOCKER_HOST=")


def workspace_image(wanted: str | None, url: str) -> str:
    """The image that was asked for, else the workspace image of this checkout, built if the engine lacks it."""
    return wanted or _last_line("images/build.py", "--engine", url)


def free_ports(count: int) -> list[int]:
    """Ports in a row on which nobody listens now.

    Raises:  RuntimeError: none found.
    """
    for _ in range(TRIES):
        first = random.choice(PORTS[:-count])
        block = list(range(first, first + count))
        if all(map(_is_free, block)):
            return block
    raise RuntimeError(f"no {count} free ports in a row between {PORTS.start} and {PORTS.stop}")


def remove_all(url: str, instance: str) -> None:
    """Containers, volumes, network and firewall rules of that instance, and what was made beside it."""
    api = docker.APIClient(base_url=url, version="auto", timeout=300, max_pool_size=AT_ONCE)
    for label in (f"{LABEL_INSTANCE}={instance}", f"{LABEL}={instance}"):
        containers = api.containers(all=True, filters={"label": label})
        _each((row["Id"] for row in containers), lambda id_: api.remove_container(id_, force=True))
        volumes = api.volumes(filters={"label": label})["Volumes"] or []
        _each((row["Name"] for row in volumes), api.remove_volume)
    networks = api.networks(filters={"label": f"{LABEL_INSTANCE}={instance}"})
    _each((row["Id"] for row in networks), api.remove_network)
    HostRules(instance, local=url.startswith("unix://")).remove()
    api.close()


def _each(names: Iterable[str], remove: Callable[[str], Any]) -> None:
    """All of them, side by side; what is gone already is fine."""
    def one(name: str) -> None:
        with contextlib.suppress(docker.errors.NotFound):
            remove(name)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, names))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _last_line(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, str(ROOT / script), *arguments], check=True, stdout=subprocess.PIPE,
                          text=True)
    return done.stdout.strip().splitlines()[-1]
