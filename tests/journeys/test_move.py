"""Whoever gives cards back and comes to others finds all that was there, under the same address.

The cards are simulated and mounted, as in the demo; the rest is real, and used as people use it, over SSH.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.invariants import until_at_rest
from faults.workspace import Workspace

from journeys.wheels import wheel
from webapp.domain.sizes import GIB
from webapp.domain.workspace import Phase
from webapp.simulation import presets, state
from webapp.simulation.install import state_file_in
from webapp.store.tables import Image

pytestmark = pytest.mark.docker

WRITTEN = {                 # outside home: where somebody without capabilities can write
    "/opt/berth/py/outside": "in the environment",
    "/var/tmp/outside": "for all",
    "/tmp/outside": "for now",
}


class Cast:
    def __init__(self, house: House, image: Image) -> None:
        self.house, self.image = house, image
        self.alice, self.bob = house.add_person("alice"), house.add_person("bob")

    def launch(self, owner: Person, name: str, **wishes: object) -> Workspace:
        return self.house.launch(owner, self.image, name, **{"memory": "1GiB", **wishes})

    @property
    def uuids(self) -> list[str]:
        return sorted(card.uuid for card in state.read(state_file_in(self.house.settings.state_dir)).cards)


@pytest.fixture(scope="module")
def cast(make_house: MakeHouse, workspace_image: str) -> Iterator[Cast]:
    house = make_house("move", settings={"SIMULATED_GPUS": "mounted"})
    state.create(state_file_in(house.settings.state_dir), presets.preset("four", house.instance))
    with_jupyter = house.add_image(workspace_image, jupyter=True)
    cast = Cast(house, with_jupyter)
    house.start_agent()
    house.wait_for_cards()
    yield cast


def test_everything_is_there_on_other_cards(cast: Cast) -> None:
    bobs = cast.launch(cast.bob, "training", gpus="2")
    bobs.until(Phase.RUNNING)
    had = bobs.cards()
    write_everywhere(bobs)
    old_argv, address, secret = bobs.ssh_argv(), bobs.ports(), bobs.secret()

    bobs.stop().until(Phase.STOPPED)
    assert bobs.cards() == []
    alices = cast.launch(cast.alice, "quick", gpu_uuids=(had[0],))
    alices.until(Phase.RUNNING)
    row = bobs.start().until(Phase.RUNNING)

    assert alices.cards() == [had[0]]
    assert bobs.cards() == sorted(set(cast.uuids) - set(had)) == cards_seen(bobs)
    assert bobs.ports() == address
    assert subprocess.run([*old_argv, "true"], capture_output=True, timeout=60).returncode == 0     # same host key
    after = bobs.secret()
    assert (after.host_public_key, after.jupyter_token) == (secret.host_public_key, secret.jupyter_token)
    assert bobs.http("GET", "/api/status", token=secret.jupyter_token)[0] == 200
    find_everything(bobs)
    assert row.note is not None and row.note["code"] == "gpus_changed"
    until_at_rest(cast.house)
    for workspace in (bobs, alices):
        workspace.remove().until(Phase.REMOVED)
    assert cast.house.private_images() == []


def test_running_one_changes_and_nothing_is_lost(cast: Cast) -> None:
    """CPU and memory while a program runs on; then other cards and more shared memory, under the same address."""
    bobs = cast.launch(cast.bob, "training", gpus="1")
    before = bobs.until(Phase.RUNNING)
    write_everywhere(bobs)
    old_argv, address, had = bobs.ssh_argv(), bobs.ports(), bobs.cards()
    bobs.said("setsid nohup sleep 10000 > /dev/null 2>&1 & echo $! > /tmp/pid")

    live = bobs.change(cpus="2", memory="2GiB").until(Phase.RUNNING)
    assert (live.container_id, live.started_at) == (before.container_id, before.started_at)
    assert bobs.container().attrs["HostConfig"]["Memory"] == 2 * GIB
    assert bobs.said("kill -0 $(cat /tmp/pid) && echo runs on") == "runs on"

    others = tuple(sorted(set(cast.uuids) - set(had))[:2])
    moved = bobs.change(gpu_uuids=others, shm="1GiB").until(Phase.RUNNING)
    assert moved.revision == 2 and moved.note is None
    assert bobs.until_row(lambda row: bobs.cards() == sorted(others)) and cards_seen(bobs) == sorted(others)
    assert bobs.said("df -B1 --output=size /dev/shm | tail -1") == str(GIB)
    assert bobs.ports() == address
    assert subprocess.run([*old_argv, "true"], capture_output=True, timeout=60).returncode == 0     # same host key
    find_everything(bobs)
    until_at_rest(cast.house)
    assert len(cast.house.private_images()) == 1

    bobs.said("dd if=/dev/zero of=/dev/shm/held bs=1M count=1010 status=none")
    refused = bobs.change(memory="1GiB").until(Phase.RUNNING)
    assert refused.note is not None and refused.note["code"] == "memory_in_use"
    assert (refused.memory_bytes, bobs.said("stat -c %s /dev/shm/held")) == (2 * GIB, str(1010 * 2**20))
    bobs.remove().until(Phase.REMOVED)
    assert cast.house.private_images() == []


def write_everywhere(workspace: Workspace) -> None:
    name, content = wheel("tinypackage")
    assert workspace.ssh(f"cat > {name}", stdin=content).returncode == 0
    workspace.said(f"pip install --no-index ~/{name} && rm ~/{name} && echo mine > ~/notes")
    for path, text in WRITTEN.items():
        workspace.said(f"echo '{text}' > {path}")


def find_everything(workspace: Workspace) -> None:
    found = {path: workspace.said(f"cat {path}") for path in WRITTEN}
    assert found == WRITTEN
    assert workspace.said("cat ~/notes") == "mine"
    assert workspace.said("python -c 'import tinypackage; print(tinypackage.__file__)'").startswith("/opt/berth/py/")


def cards_seen(workspace: Workspace) -> list[str]:
    """Over SSH, as its owner sees them."""
    return sorted(re.findall(r"GPU-[0-9a-f-]{36}", workspace.said("nvidia-smi -L")))
