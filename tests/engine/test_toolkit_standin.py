"""Device requests on a real engine without a GPU: what the toolkit stand-in is asked for, and what a container sees.

The engine is this file's own: Docker looks for the toolkit's hook once, when it starts. It has a network namespace of
its own, so that it leaves the firewall rules of other engines alone.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import parts
import pytest
from conftest import _busybox
from docker.models.containers import Container
from docker.types import DeviceRequest, Mount
from faults.namespaces import namespace

from webapp.simulation import install, presets, state, toolkit

pytestmark = pytest.mark.docker

SCRIPT = parts.ROOT / "scripts" / "test_engine.py"
IMAGE = "berth-test/python:1"
UNKNOWN = "GPU-51e1a7ed-0000-0000-0000-000000000000"
# Of the standard library, what no program here imports: 40 of 60 MB.
LEFT_OUT = {"test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "lib2to3", "pydoc_data", "__pycache__",
            "unittest", "distutils", "turtledemo"}
MEMBER = 10_001


@dataclass
class Lab:
    """A simulated host with four cards, and an engine whose toolkit hands them out."""

    client: docker.DockerClient
    state_file: Path
    log: Path

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in state.read(self.state_file).cards]

    @property
    def handed_out(self) -> list[tuple[str, str]]:
        return [(line["container"], line["visible"]) for line in toolkit.handed_out(self.log)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    scratch = Path(tempfile.mkdtemp(prefix="g-"))      # a short path: sockets lie below it
    simulation = scratch / "simulation" / install.STATE_NAME
    state.create(simulation, presets.preset("four"))
    install.install_toolkit(scratch / "bin", simulation, scratch / "handed-out.log")
    with namespace(f"{parts.NAMESPACE}{secrets.token_hex(3)}") as where:
        enter = ("nsenter", f"--net=/var/run/netns/{where}", sys.executable, SCRIPT)
        try:
            started = subprocess.run([*enter, "start", "--scratch", scratch], check=True, stdout=subprocess.PIPE)
            url = started.stdout.decode().strip().removeprefix("DOCKER_HOST=")
            client = docker.DockerClient(base_url=url, timeout=60)
            repository, _, tag = IMAGE.partition(":")
            client.api.import_image_from_data(
                _root_file_system(), repository=repository, tag=tag,
                changes=["ENV NVIDIA_VISIBLE_DEVICES=all", "ENV PATH=/usr/bin:/bin", 'CMD ["/bin/sleep", "600"]'])
            yield Lab(client, simulation, scratch / "handed-out.log")
            client.close()
        finally:
            subprocess.run([*enter, "clean", "--scratch", scratch], check=True)     # by the pid in its own folder
            shutil.rmtree(scratch, ignore_errors=True)


Launch = Callable[..., Container]


@pytest.fixture
def launch(lab: Lab) -> Iterator[Launch]:
    """launch(["GPU-…"], …) → a started container that asked for those; Berth's `void` stands in its environment."""
    made: list[Container] = []

    def run(uuids: list[str] | None = None, *, image: str = IMAGE, visible: str = "void", mounts: tuple[Mount, ...] = ()
            ) -> Container:
        requests = [DeviceRequest(device_ids=uuids, capabilities=[["gpu"]])] if uuids else []
        made.append(lab.client.containers.create(
            image, user=f"{MEMBER}:{MEMBER}", network_mode="none", environment={"NVIDIA_VISIBLE_DEVICES": visible},
            device_requests=requests, mounts=list(mounts)))
        made[-1].start()
        return made[-1]
    yield run
    for container in made:
        container.remove(force=True)


def smi(container: Container, *arguments: str) -> tuple[int, str]:
    """As in an SSH session of its owner: another environment than the container's."""
    done = container.exec_run(["nvidia-smi", *arguments], environment={"NVIDIA_VISIBLE_DEVICES": "all"},
                              user=f"{MEMBER}:{MEMBER}")
    return done.exit_code, done.output.decode()


def test_request_by_uuid_arrives_and_exactly_those_cards_are_inside(lab: Lab, launch: Launch) -> None:
    wanted = [lab.uuids[3], lab.uuids[1]]
    before = lab.handed_out
    container = launch(wanted)
    assert lab.handed_out[len(before):] == [(container.id, ",".join(wanted))]
    code, listed = smi(container, "-L")
    assert (code, re.findall(r"GPU-[0-9a-f-]{36}", listed)) == (0, [lab.uuids[1], lab.uuids[3]])


def test_a_container_that_is_started_again_gets_the_same_cards(lab: Lab, launch: Launch) -> None:
    container = launch([lab.uuids[0]])
    container.restart(timeout=0)
    assert [visible for id_, visible in lab.handed_out if id_ == container.id] == [lab.uuids[0]] * 2
    assert lab.uuids[0] in smi(container, "-L")[1]


def test_without_a_request_there_is_nothing_whatever_the_image_says(lab: Lab, launch: Launch) -> None:
    before = lab.handed_out
    container = launch(None)
    assert lab.handed_out == before
    assert container.exec_run(["ls", "/usr/bin/nvidia-smi"]).exit_code != 0


def test_image_made_of_a_container_with_cards_shows_none_without_a_request(lab: Lab, launch: Launch) -> None:
    image = launch([lab.uuids[2]]).commit("berth-test/committed", "1").id
    assert smi(launch(None, image=image), "-L") == (6, "No devices were found\n")
    assert re.findall(r"GPU-[0-9a-f-]{36}", smi(launch([lab.uuids[1]], image=image), "-L")[1]) == [lab.uuids[1]]


def test_unknown_card_is_refused_at_the_start_in_the_toolkits_words(lab: Lab, launch: Launch) -> None:
    with pytest.raises(docker.errors.APIError, match=f"nvidia-container-cli: device error: {UNKNOWN}: unknown device"):
        launch([lab.uuids[0], UNKNOWN])
    assert toolkit.handed_out(lab.log)[-1]["error"] == f"device error: {UNKNOWN}: unknown device"


def test_driver_that_comes_up_late_fails_the_first_starts(lab: Lab, launch: Launch) -> None:
    toolkit.fail_next(lab.log, 1)
    with pytest.raises(docker.errors.APIError, match="nvidia-container-cli: initialization error"):
        launch([lab.uuids[0]])
    assert smi(launch([lab.uuids[0]]), "-L")[0] == 0


def test_without_a_toolkit_the_mounted_stand_in_shows_the_named_cards_live(lab: Lab, launch: Launch) -> None:
    mounts = tuple(Mount(mount.target, mount.source, type="bind", read_only=mount.read_only)
                   for mount in install.container_mounts(lab.state_file))
    container = launch(None, visible=lab.uuids[1], mounts=mounts)
    query = ("--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits")
    assert smi(container, *query) == (0, f"{lab.uuids[1]}, 0\n")
    with state.changed(lab.state_file) as simulation:
        presets.put_load(simulation.cards[1], utilization_percent=70)
    assert smi(container, *query) == (0, f"{lab.uuids[1]}, 70\n")
    assert smi(launch(None, mounts=mounts), "-L") == (6, "No devices were found\n")


def _root_file_system() -> bytes:
    """busybox, and the Python that runs this test where it lies: no registry has to be reached."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in ("bin", "usr", "usr/bin", "usr/lib", "tmp"):
            _folder(archive, path)
        busybox = tarfile.TarInfo("bin/busybox")
        content = _busybox()
        busybox.size, busybox.mode = len(content), 0o755
        archive.addfile(busybox, io.BytesIO(content))
        for name in ("bin/sleep", "bin/ls", "bin/sh", "usr/bin/env"):
            _link(archive, name, "/bin/busybox")
        python = os.path.realpath(sys.executable)
        for file in (python, *_libraries(python)):
            _add(archive, file)
        _add(archive, sysconfig.get_path("stdlib", vars={"base": sys.base_prefix}))
        _link(archive, "usr/bin/python3", python)
    return buffer.getvalue()


def _libraries(python: str) -> set[str]:
    modules = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
    listed = subprocess.run(["ldd", python, *modules], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", listed))


def _add(archive: tarfile.TarFile, path: str) -> None:
    """A file or a folder at its own place; the folders above open to everybody, which /root is not."""
    for parent in reversed(Path(path).parents[:-1]):
        _folder(archive, str(parent).lstrip("/"))
    real = os.path.realpath(path)
    archive.add(real, path.lstrip("/"), filter=_wanted)


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT.intersection(Path(entry.name).parts[-1:]) else entry


def _folder(archive: tarfile.TarFile, name: str) -> None:
    if name in archive.getnames():
        return
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry)


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)
