"""Device requests on a real engine without a GPU: what the toolkit stand-in is asked for, and what a container sees.

The engine is this file's own: Docker looks for the toolkit's hook once, when it starts. It has a network namespace of
its own, so that it leaves the firewall rules of other engines alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import docker
import pytest
from docker.models.containers import Container
from docker.types import DeviceRequest, Mount
from faults import standin
from faults.own_engine import own_engine
from faults.toolkit import Toolkit

from webapp.simulation import install, presets, state, toolkit

pytestmark = pytest.mark.docker

IMAGE = standin.WITH_PYTHON
UNKNOWN = "GPU-51e1a7ed-0000-0000-0000-000000000000"
MEMBER = 10_001


@dataclass(frozen=True)
class Lab:
    """A simulated host with four cards, and an engine whose toolkit hands them out."""

    client: docker.DockerClient
    toolkit: Toolkit

    @property
    def uuids(self) -> list[str]:
        return self.toolkit.uuids

    @property
    def handed_out(self) -> list[tuple[str, str]]:
        return [(line["container"], line["visible"]) for line in toolkit.handed_out(self.toolkit.log)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_engine("toolkit", cards=presets.preset("four")) as (engine, ground):
        yield Lab(ground.docker, engine.toolkit)


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
    assert toolkit.handed_out(lab.toolkit.log)[-1]["error"] == f"device error: {UNKNOWN}: unknown device"


def test_driver_that_comes_up_late_fails_the_first_starts(lab: Lab, launch: Launch) -> None:
    lab.toolkit.fail_next(1)
    with pytest.raises(docker.errors.APIError, match="nvidia-container-cli: initialization error"):
        launch([lab.uuids[0]])
    assert smi(launch([lab.uuids[0]]), "-L")[0] == 0


def test_without_a_toolkit_the_mounted_stand_in_shows_the_named_cards_live(lab: Lab, launch: Launch) -> None:
    mounts = tuple(Mount(mount.target, mount.source, type="bind", read_only=mount.read_only)
                   for mount in install.container_mounts(lab.toolkit.state_file))
    container = launch(None, visible=lab.uuids[1], mounts=mounts)
    query = ("--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits")
    assert smi(container, *query) == (0, f"{lab.uuids[1]}, 0\n")
    with state.changed(lab.toolkit.state_file) as simulation:
        presets.put_load(simulation.cards[1], utilization_percent=70)
    assert smi(container, *query) == (0, f"{lab.uuids[1]}, 70\n")
    assert smi(launch(None, mounts=mounts), "-L") == (6, "No devices were found\n")
