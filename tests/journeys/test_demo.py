"""A demo and another Berth on one engine: whatever is done to one, nothing happens to the other."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import parts
import pytest
from faults.conftest import MakeHouse
from faults.house import Ground, House, Person
from faults.ports import block_of_ports
from faults.sshkeys import new_key
from faults.workspace import Workspace, now

from webapp.cli import demo_house, web_account
from webapp.cli.demo_house import Demo
from webapp.domain.actor import Actor
from webapp.domain.workspace import Phase
from webapp.engines.docker.belongings import Belongings, belongings
from webapp.engines.docker.network import bridge_name, short_hash
from webapp.services import keys
from webapp.simulation import state
from webapp.simulation.install import HOST_FOLDER, STATE_FOLDER, state_file_in
from webapp.store.reads import cards
from webapp.store.reads import people as reads
from webapp.store.tables import Image

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="firewall rules and other accounts need root"),
]



class DemoHouse(House):
    """With the settings, the simulated host and the members of `berth demo`, as its start makes them."""

    demo: Demo

    def _environment(self, url: str, ports: tuple[int, int], settings: Mapping[str, str]) -> dict[str, str]:
        environment = super()._environment(url, ports, settings)
        self.demo = demo_house.enter(environment, may_begin=True)
        return environment

    def furnish(self) -> None:
        demo_house.furnish(self.store, demo=self.demo)

    def member(self, username: str) -> Person:
        key = new_key(self.folder / f"key-{username}")
        with self.store.write() as session:
            row = next(row for row in reads.members(session) if row.username == username)
            actor = Actor(row.id, is_admin=row.is_admin)
            keys.add_keys(session, actor, member_id=row.id, text=key.public, title="test", now=now())
        return Person(row.id, username, row.uid, actor, key)

    @cached_property
    def uuids(self) -> list[str]:
        return [card.uuid for card in state.read(state_file_in(self.settings.state_dir)).cards]


@dataclass
class Side:
    """One of the two, with a workspace that runs."""

    house: House
    person: Person
    image: Image
    workspace: Workspace

    def things(self) -> Belongings:
        return belongings(self.house.settings.engine_url, self.house.instance, host="the engine")

    def snapshot(self) -> dict[str, Any]:
        """All of it that somebody else could have touched: ids and times tell a thing from one made anew."""
        api, things = self.house.docker.api, self.things()
        inspected = [api.inspect_container(name) for name in things.containers]
        return {
            "things": things,
            "containers": [(one["Id"], one["State"]["Status"], one["State"]["StartedAt"]) for one in inspected],
            "volumes": [api.inspect_volume(name)["CreatedAt"] for name in things.volumes],
            "networks": [api.inspect_network(name)["Id"] for name in things.networks],
            "rules": rules(self.house.instance),
            "greets": self.workspace.greets(),
            "claims": (self.workspace.ports(), self.workspace.cards()),
        }


@dataclass
class Both:
    demo: Side
    other: Side

    @property
    def demo_house(self) -> DemoHouse:
        assert isinstance(self.demo.house, DemoHouse)
        return self.demo.house


@pytest.fixture(scope="module")
def both(
    ground: Ground, make_house: MakeHouse, workspace_image: str, tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    other = make_house("other")
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(parts.instance(ground.url))
        ports = stack.enter_context(block_of_ports())
        demo = DemoHouse(tmp_path_factory.mktemp("demo"), ground, instance, ports)
        stack.enter_context(contextlib.closing(demo))
        demo.furnish()
        for house in (demo, other):
            house.start_agent()
        demo.wait_for_cards()
        bob, ada = demo.member("bob"), other.add_person("ada")
        images = demo.add_image(workspace_image), other.add_image(workspace_image)
        sides = Both(
            Side(demo, bob, images[0], demo.launch(bob, images[0], "one", gpu_uuids=(demo.uuids[1], demo.uuids[3]))),
            Side(other, ada, images[1], other.launch(ada, images[1], "one")))
        for side in (sides.demo, sides.other):
            side.workspace.until(Phase.RUNNING)
        yield sides


def test_nothing_has_one_name_or_one_port_in_both(both: Both) -> None:
    demo, other = both.demo.things(), both.other.things()
    for mine, theirs in zip((demo.containers, demo.volumes, demo.networks),
                            (other.containers, other.volumes, other.networks), strict=True):
        assert mine and theirs and not set(mine) & set(theirs)
    assert not set(both.demo.workspace.ports().values()) & set(both.other.workspace.ports().values())
    labels = [side.workspace.container().labels["berth.instance"] for side in (both.demo, both.other)]
    assert labels == [both.demo.house.instance, both.other.house.instance] and labels[0] != labels[1]


def test_chosen_cards_and_no_others_are_seen_over_ssh(both: Both) -> None:
    uuids = both.demo_house.uuids
    listed = both.demo.workspace.said("nvidia-smi -L")
    assert re.findall(r"GPU-[0-9a-f-]{36}", listed) == [uuids[1], uuids[3]]
    assert both.demo.workspace.cards() == sorted((uuids[1], uuids[3]))


def test_others_see_who_has_them_and_that_they_are_simulated(both: Both) -> None:
    with both.demo.house.store.read() as session:
        rows, = cards.by_host(session).values()
    assert [row.holder.username if row.holder else None for row in rows] == [None, "bob", None, "bob"]
    assert all(row.simulated for row in rows)


def test_engine_is_asked_for_no_device(both: Both) -> None:
    """And what is mounted is the simulated host's folder and the stand-in, for reading."""
    inspected = both.demo.workspace.container().attrs
    host = inspected["HostConfig"]
    assert not host["DeviceRequests"] and not host["Devices"] and not host["Privileged"]
    binds = {mount["Source"]: mount["RW"] for mount in inspected["Mounts"] if mount["Type"] == "bind"}
    folder = both.demo.house.settings.state_dir / STATE_FOLDER
    assert binds == {str(folder): False, str(folder / "nvidia-smi"): False}
    assert "NVIDIA_VISIBLE_DEVICES=void" in inspected["Config"]["Env"]


def test_other_berth_knows_nothing_of_the_simulated_cards(both: Both) -> None:
    with both.other.house.store.read() as session:
        assert [row for rows in cards.by_host(session).values() for row in rows if row.simulated] == []
    assert both.other.workspace.ssh("nvidia-smi -L").returncode != 0


def test_whoever_breaks_into_web_cannot_swap_what_the_agent_runs(both: Both) -> None:
    """The folder is that account's to write in, for the database's sake."""
    settings, nobody = both.demo.house.settings, 65534
    web_account._share(settings, nobody)
    names = (HOST_FOLDER, f"{HOST_FOLDER}/nvidia-smi", STATE_FOLDER, f"{STATE_FOLDER}/state.json", "demo.json")
    script = "".join(f"mv {name} {name}.old && echo swapped {name}; " for name in names)
    script += f"echo > {HOST_FOLDER}/new && echo wrote; cat demo.json && echo read; touch own && echo tried"
    done = subprocess.run(["sh", "-c", script], cwd=settings.state_dir, user=nobody, group=nobody, extra_groups=[],
                          capture_output=True, text=True)
    assert done.stdout == "tried\n"


def test_what_happens_to_the_other_leaves_the_demo_alone(both: Both) -> None:
    before = both.demo.snapshot()
    both.other.workspace.stop().until(Phase.STOPPED)
    both.other.workspace.start().until(Phase.RUNNING)
    second = both.other.house.launch(both.other.person, both.other.image, "two")
    second.until(Phase.RUNNING)
    second.remove().until(Phase.REMOVED)
    both.other.house.restart_agent()
    assert both.demo.snapshot() == before


def test_what_happens_to_the_demo_leaves_the_other_alone(both: Both) -> None:
    before = both.other.snapshot()
    assert before["greets"]
    both.demo.workspace.stop().until(Phase.STOPPED)
    assert both.demo.workspace.cards() == []
    second = both.demo.house.launch(both.demo.person, both.demo.image, "two", gpus="4")
    second.until(Phase.RUNNING)
    assert second.cards_inside() == sorted(both.demo_house.uuids)
    second.remove().until(Phase.REMOVED)
    both.demo.workspace.start().until(Phase.RUNNING)
    assert both.other.snapshot() == before


def test_cleaning_takes_all_of_the_demo_and_nothing_else(both: Both) -> None:
    """The last one. Its workspace runs, and its agent does not."""
    house, before = both.demo.house, both.other.snapshot()
    assert both.demo.things() and rules(house.instance)
    house.stop_agent()
    done = clean(house)
    assert done.returncode == 0, done.stderr
    assert not both.demo.things() and not house.volumes() and not house.private_images()
    assert rules(house.instance) == [] and not Path("/sys/class/net", bridge_name(house.instance)).exists()
    assert not house.settings.state_dir.exists()
    assert both.other.snapshot() == before


def clean(house: House) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from webapp.cli.root import main; main()", "demo", "clean"]
    return subprocess.run(command, env=house.environment, capture_output=True, text=True, timeout=120)


def rules(instance: str) -> list[str]:
    """Firewall rules of that instance on this machine."""
    listed = subprocess.run(["iptables", "-w", "10", "-S"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if short_hash(instance) in line]
