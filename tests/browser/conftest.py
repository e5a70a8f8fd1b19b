"""Berth as a person meets it: `berth up` or `berth demo` on a real engine, and Chromium.

Chromium gives up requests with ERR_NETWORK_CHANGED when bridges come and go beside it, and Docker makes one with every
network. So it lives in a network namespace of its own, with one cable to the machine; there a relay carries
localhost:PORT to the dashboard, so that pages are a secure context as they are for people.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parts
import pytest
from faults.namespaces import ip, namespace
from faults.ports import block_of_ports
from faults.waiting import until

ROOT = Path(__file__).parents[2]
UP_SECONDS = 120.0
STOP_SECONDS = 30.0
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]


@dataclass(frozen=True)
class Cable:
    """A namespace for the browser; `here` is this machine's end, which the browser reaches."""

    namespace: str
    here: str


@dataclass
class Running:
    """One Berth, started as a person starts it."""

    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    log: Path
    url: str                    # as the browser knows it
    workspace_host: str

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def first_admin_link(self) -> str:
        found = re.search(r"\S+/welcome/\S+", self.said())
        assert found, self.said()
        return found[0]

    def invitation(self, *options: str) -> str:
        """A link for one newcomer, as somebody on the server prints it; the first admin's is for one test only."""
        command = [Path(sys.executable).with_name("berth"), "user", "invite", *options]
        return subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=60,
                              check=True).stdout.strip()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_SECONDS)


@pytest.fixture(scope="session")
def cable() -> Iterator[Cable]:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    name, here, there = f"berth-test-browser{number}", f"10.99.77.{4 * number + 1}", f"10.99.77.{4 * number + 2}"
    with namespace(name):
        ip("link", "add", f"btest{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{here}/30", "dev", f"btest{number}")
        ip("link", "set", f"btest{number}", "up")
        ip("-n", name, "address", "add", f"{there}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", "default", "via", here)
        yield Cable(name, here)


@pytest.fixture(scope="session")
def berth(
    engine_url: str, workspace_image: str, cable: Cable, tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    with started([Path(sys.executable).with_name("berth"), "up"], engine_url, cable,
                 tmp_path_factory.mktemp("berth")) as running:
        yield running


@contextlib.contextmanager
def started(command: Sequence[str | Path], engine_url: str, cable: Cable, folder: Path) -> Iterator[Running]:
    """Up and ready; stopped at the end, and what it made on the engine is removed."""
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(parts.instance(engine_url))
        first, last = stack.enter_context(block_of_ports())
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("BERTH_")},
            "BERTH_STATE_DIR": str(folder / "state"), "BERTH_ENGINE": engine_url, "BERTH_INSTANCE": instance,
            "BERTH_URL": f"http://localhost:{first}", "BERTH_LISTEN": f"{cable.here}:{first}",
            "BERTH_WORKSPACE_HOST": cable.here, "BERTH_WORKSPACE_BIND": cable.here,
            "BERTH_PORTS": f"{first + 1}-{last}", "BERTH_LOG_LEVEL": "debug",
        }
        running = _start(command, environment, folder / "up.log", cable)
        stack.callback(_end, running.process)
        stack.enter_context(_relay(cable, first))
        until(lambda: "Berth is up" in running.said() or running.process.poll() is not None, seconds=UP_SECONDS,
              what=running.said)
        assert running.process.poll() is None, running.said()
        yield running


@pytest.fixture(scope="session")
def browser_type_launch_args(
    browser_type_launch_args: dict[str, Any], cable: Cable, tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    wrapper = tmp_path_factory.mktemp("chromium") / "chromium"
    wrapper.write_text(f'#!/bin/sh\nexec nsenter --net=/var/run/netns/{cable.namespace} {CHROMIUM} "$@"\n')
    wrapper.chmod(0o755)
    return {**browser_type_launch_args, "executable_path": str(wrapper), "args": FLAGS}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any], berth: Running) -> dict[str, Any]:
    window = {"width": 1440, "height": 900}
    return {**browser_context_args, "base_url": berth.url, "locale": "en-GB", "viewport": window}


def _start(command: Sequence[str | Path], environment: dict[str, str], log: Path, cable: Cable) -> Running:
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    return Running(process, environment, log, environment["BERTH_URL"], cable.here)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _relay(cable: Cable, port: int) -> Iterator[None]:
    """localhost:port inside the namespace is the dashboard."""
    process = subprocess.Popen([
        "nsenter", f"--net=/var/run/netns/{cable.namespace}", "socat",
        f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr", f"TCP:{cable.here}:{port}"])
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
