"""An engine whose disk fills up: what cannot be made fails with that cause, what runs goes on, and room mends it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults import standin
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.invariants import check_at_rest
from faults.own_engine import OwnEngine, own_engine
from faults.ports import foreign_listener
from faults.workspace import Workspace
from webapp.domain.workspace import Phase
from webapp.store.tables import Image

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="a small disk for an engine of its own needs root"),
]

DISK_BYTES = 48 * 1024 * 1024


@dataclass(frozen=True)
class Scene:
    house: House
    engine: OwnEngine
    alice: Person
    image: Image

    def launch(self, name: str) -> Workspace:
        return self.house.launch(self.alice, self.image, name)

    def fill(self) -> None:
        """To the last byte."""
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(64 * 1024)):
                pass

    def make_room(self) -> None:
        self._filler.unlink()

    @property
    def _filler(self) -> Path:
        return self.engine.scratch / "data" / "filler"


@pytest.fixture(scope="module")
def scene(make_house: MakeHouse) -> Iterator[Scene]:
    with own_engine("disk", disk_bytes=DISK_BYTES) as (engine, ground):
        house = make_house("disk", ground=ground)
        house.start_agent()
        yield Scene(house, engine, house.add_person("alice"), house.add_image(standin.WORKSPACE))
        house.close()


def test_launch_on_a_full_disk_fails_with_that_cause_and_works_with_room(scene: Scene) -> None:
    running = scene.launch("running")
    running.until(Phase.RUNNING)
    scene.fill()

    refused = scene.launch("refused")
    row = refused.until(Phase.FAILED)

    assert row.reason is not None and row.reason["code"] == "disk_full"
    assert refused.containers() == [] and running.row().phase == Phase.RUNNING and running.greets()
    scene.make_room()
    refused.start().until(Phase.RUNNING)
    check_at_rest(scene.house)
    for workspace in (running, refused):
        workspace.remove().until(Phase.REMOVED)


def test_move_on_a_full_disk_keeps_the_old_container(scene: Scene) -> None:
    workspace = scene.launch("moving")
    workspace.until(Phase.RUNNING)
    workspace.run("sh", "-c", "dd if=/dev/urandom of=/opt/layer bs=1M count=8")
    layer = workspace.read_file("/opt/layer")
    workspace.stop().until(Phase.STOPPED)
    scene.fill()

    with foreign_listener(workspace.ports()["ssh"]):
        row = workspace.start().until(Phase.FAILED)

        assert row.reason is not None and row.reason["code"] == "disk_full"
        assert [one.attrs["State"] for one in workspace.containers()] == ["exited"]
        scene.make_room()
        assert workspace.read_file("/opt/layer") == layer
        workspace.start().until(Phase.RUNNING)
    assert workspace.read_file("/opt/layer") == layer
    workspace.remove().until(Phase.REMOVED)
    check_at_rest(scene.house)
