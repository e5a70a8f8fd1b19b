"""An engine that ends and starts again, on an engine of this test's own: what tells it from a stop by hand."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import docker
import pytest
from conftest import TINY

from webapp.domain.container import ContainerDetail, ContainerSpec
from webapp.domain.workspace import Limits
from webapp.engines import network_name
from webapp.engines.docker import DockerEngine
from webapp.engines.docker.host_rules import HostRules
from webapp.engines.docker.network import bridge_name

pytestmark = pytest.mark.docker

SCRIPT = Path(__file__).parents[2] / "scripts" / "test_engine.py"


@dataclass
class OwnEngine:
    scratch: str

    def start(self) -> str:
        return self._run("start").strip().removeprefix("DOCKER_HOST=")

    def stop(self) -> None:
        self._run("stop")

    def kill(self) -> None:
        os.kill(int(Path(self.scratch, "dockerd.pid").read_text()), signal.SIGKILL)

    def clean(self) -> None:
        self._run("clean")

    def _run(self, verb: str) -> str:
        argv = [sys.executable, SCRIPT, verb, "--scratch", self.scratch]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def own(instance: str) -> Iterator[OwnEngine]:
    engine = OwnEngine(tempfile.mkdtemp(prefix="e-"))    # a short path: sockets lie below it
    yield engine
    engine.clean()
    HostRules(instance, local=True).remove()
    subprocess.run(["ip", "link", "delete", bridge_name(instance)], check=False, capture_output=True)
    shutil.rmtree(engine.scratch, ignore_errors=True)


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_container_that_went_with_its_engine_ended_before_the_engine_began(
    own: OwnEngine, docker_api: docker.APIClient, tiny_image: str, instance: str, way: str
) -> None:
    engine = DockerEngine(own.start(), instance=instance, host="gpu1")
    load(tiny_image, docker_api, own)
    engine.prepare()
    engine.start(engine.create(spec(instance)))
    before = datetime.now(UTC) - timedelta(seconds=60)

    getattr(own, way)()
    own.start()

    detail, began = engine.inspect(spec(instance).name), engine.started_at()
    assert isinstance(detail, ContainerDetail) and not detail.container.is_up
    assert detail.finished_at is not None and began is not None and detail.finished_at < began
    assert "start" not in {event.action for event in engine.events(before, datetime.now(UTC))}    # its memory is gone

    engine.prepare()
    engine.start(spec(instance).name)
    engine.stop(spec(instance).name, 5)
    detail = engine.inspect(spec(instance).name)
    assert detail is not None and detail.finished_at is not None and detail.finished_at > began     # by hand
    engine.close()


def load(image: str, source: docker.APIClient, own: OwnEngine) -> None:
    target = docker.APIClient(base_url=f"unix://{own.scratch}/docker.sock", version="auto")
    target.load_image(b"".join(source.get_image(image)))
    target.close()


def spec(instance: str) -> ContainerSpec:
    return ContainerSpec(
        name=f"berth-{instance}-w-1",
        image=TINY,
        hostname="box",
        uid=10001,
        gid=10001,
        group_ids=(),
        environment={},
        labels={"berth.instance": instance, "berth.workspace": "1", "berth.revision": "1"},
        mounts=(),
        ports=(),
        limits=Limits(1000, 64 * 2**20, 2**20, 64),
        network=network_name(instance),
    )
