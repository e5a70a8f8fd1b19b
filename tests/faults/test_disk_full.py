"""An engine whose disk fills up: what cannot be made fails with that cause, what runs goes on, and room mends it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults import agents, standin
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.invariants import check_at_rest, until_at_rest
from faults.own_engine import OwnEngine, own_engine
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

    def start_agent(self, **named: str) -> None:
        self.house.stop_agent()
        self.house.start_agent(entry=agents.CRASHING, orders=str(self.house.folder), **named)

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
        scene = Scene(house, engine, house.add_person("alice"), house.add_image(standin.WORKSPACE))
        scene.start_agent()
        yield scene
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


def test_change_for_which_there_is_no_room_leaves_alone_what_runs(scene: Scene) -> None:
    workspace = scene.launch("staying")
    before = workspace.until(Phase.RUNNING)
    started_at = workspace.container().attrs["State"]["StartedAt"]

    row = workspace.change(shm="80MiB").until(Phase.RUNNING)

    assert row.note is not None and row.note["code"] == "no_room_to_move"
    assert (row.container_id, row.shm_bytes) == (before.container_id, before.shm_bytes)
    assert workspace.container().attrs["State"]["StartedAt"] == started_at and workspace.greets()
    workspace.remove().until(Phase.REMOVED)
    check_at_rest(scene.house)


def test_change_whose_commit_fills_the_disk_is_taken_back(scene: Scene) -> None:
    """What looked like enough room was not: more was written meanwhile, by whomever."""
    scene.start_agent(room_margin_bytes="-1e12")
    workspace = scene.launch("moving")
    before = workspace.until(Phase.RUNNING)
    workspace.run("sh", "-c", "dd if=/dev/urandom of=/opt/layer bs=1M count=24")
    layer = workspace.read_file("/opt/layer")

    row = workspace.change(shm="80MiB").until(Phase.RUNNING)

    assert row.note is not None and row.note["code"] == "change_undone"
    assert (row.container_id, row.shm_bytes) == (before.container_id, before.shm_bytes)
    assert workspace.read_file("/opt/layer") == layer and workspace.greets()
    until_at_rest(scene.house)
    assert scene.house.private_images() == scene.house.nameless_images() == []

    workspace.run("sh", "-c", "dd if=/dev/urandom of=/opt/layer bs=1M count=4")
    layer = workspace.read_file("/opt/layer")
    moved = workspace.change(shm="80MiB").until(Phase.RUNNING)
    assert moved.revision > before.revision and workspace.read_file("/opt/layer") == layer
    workspace.remove().until(Phase.REMOVED)
    check_at_rest(scene.house)
