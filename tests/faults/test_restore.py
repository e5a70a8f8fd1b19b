"""A database of yesterday is restored while workspaces run: nothing is touched, all is shown, then it is as decided."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from faults import agents, standin
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.invariants import check_at_rest, until_at_rest
from faults.own_engine import own_engine
from faults.ports import foreign_listener
from faults.test_restarts import needs_root
from faults.waiting import until
from faults.workspace import Workspace, now
from webapp.domain.workspace import Phase
from webapp.simulation import presets
from webapp.store.reads import hold as reads
from webapp.store.tables import Image, WorkspaceSecret

pytestmark = pytest.mark.docker

TOUCHES = ("create", "start", "restart", "stop", "kill", "die", "pause", "unpause", "rename", "update", "destroy",
           "commit", "exec_create")


def berth(house: House, *arguments: str | Path) -> str:
    """What `berth …` says, as somebody on the server types it."""
    house.store.close()         # the test's own connections are no reason to refuse
    done = subprocess.run([sys.executable, *agents.WEB[:2], *map(str, arguments)], cwd=agents.ROOT, timeout=120,
                          env=house.environment, capture_output=True, text=True)
    assert done.returncode == 0, f"berth {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def findings(house: House) -> dict[str, dict[str, Any]]:
    """By name of the workspace."""
    return {found["workspace"]: found for found in json.loads(berth(house, "hold", "--json"))["findings"]}


def wait_for_look(house: House) -> None:
    """Of the present agent, at everything."""
    began = house.agent_state().started_at
    assert began is not None

    def has_looked() -> bool:
        with house.store.read() as session:
            on = reads.current(session)
        return on is not None and any(look.at > began for look in on.looks.values())

    until(has_looked, what=house.how_it_is)


def world(house: House) -> dict[str, tuple[str, str, str]]:
    """Every container of the house: its state, when it was started, and what it may use."""
    inspected = (house.docker.api.inspect_container(one.id) for one in house.containers())
    return {one["Id"]: (one["State"]["Status"], one["State"]["StartedAt"], str(one["HostConfig"]["Memory"]))
            for one in inspected}


def touched(house: House, since: datetime) -> list[str]:
    """What the engine was asked to do with this house's containers, images and volumes since then."""
    span = {"since": f"{since.timestamp():.6f}", "until": f"{now().timestamp():.6f}"}    # a datetime loses its fraction
    events = house.docker.api.events(**span, decode=True)
    mine = f"berth-{house.instance}"
    return [f"{event['Action']} {event['Actor']['Attributes'].get('name')}" for event in events
            if event["Action"].partition(":")[0] in TOUCHES
            and mine in json.dumps(event["Actor"])]


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "house.tar.gz"


def launched(house: House, alice: Person, image: Image, count: int, **wishes: Any) -> list[Workspace]:
    made = [house.launch(alice, image, f"w{number}", **wishes) for number in range(1, count + 1)]
    for workspace in made:
        workspace.until(Phase.RUNNING)
        workspace.run("sh", "-c", "echo kept > /tmp/layer")
    return made


def moved_off_its_port(workspace: Workspace) -> None:
    """Another program has taken it: its container is made anew on another one."""
    workspace.stop().until(Phase.STOPPED)
    with foreign_listener(workspace.ports()["ssh"]):
        workspace.start().until(Phase.RUNNING)
    until_at_rest(workspace.house)


def test_old_database_touches_nothing_until_it_was_decided_on(
    make_house: MakeHouse, slim_image: str, backup: Path,
) -> None:
    house = make_house("restored")
    alice, image = house.add_person("alice"), house.add_image(slim_image)
    house.start_agent()
    untouched, stopped, removed, moved, changed, by_hand = launched(house, alice, image, 6)
    berth(house, "backup", backup, "--without-keys")
    stopped.stop().until(Phase.STOPPED)
    removed.remove().until(Phase.REMOVED)
    moved_off_its_port(moved)
    changed.change(memory="300MiB")
    until(lambda: changed.row().observed_generation == changed.row().generation, what=changed.how_it_is)
    until_at_rest(house)
    by_hand.container().stop(timeout=2)
    by_hand.until(Phase.STOPPED)
    added = house.launch(alice, image, "w7")
    added.until(Phase.RUNNING)
    added.run("sh", "-c", "echo kept > /tmp/layer")
    ports, keys = {each.id: each.ports() for each in (moved, added)}, added.secret().host_public_key
    house.stop_agent()

    # restored: nothing is touched, all is shown, and a second start changes nothing
    before, began = world(house), now()
    berth(house, "restore", backup, "--replace")
    house.start_agent()
    wait_for_look(house)
    shown = findings(house)
    assert {name: found["kind"] for name, found in shown.items()} == {
        "w2": "down_but_wanted", "w3": "gone", "w4": "moved", "w5": "moved", "w6": "down_but_wanted",
        "w7": "unknown_container"}
    assert (shown["w4"]["differs"], shown["w5"]["differs"]) == (["container", "ports"], ["limits"])
    house.stop_agent()
    house.start_agent()
    wait_for_look(house)
    assert findings(house) == shown
    assert world(house) == before and touched(house, began) == []

    # decided on: the world is as decided
    for name, decision in (("w2", "adopt"), ("w3", "forget"), ("w4", "adopt"), ("w5", "keep"), ("w6", "keep"),
                           ("w7", "adopt")):
        berth(house, "hold", "decide", name, decision)
    assert world(house) == before
    berth(house, "hold", "release")
    by_hand.until(Phase.RUNNING)
    removed.until(Phase.REMOVED)
    until(lambda: changed.container().attrs["HostConfig"]["Memory"] == 256 * 2**20, what=changed.how_it_is)
    until_at_rest(house)
    after = world(house)
    for workspace in (untouched, moved, added, stopped):
        assert after[workspace.container().id] == before[workspace.container().id], workspace.how_it_is()
    assert after[changed.container().id][:2] == before[changed.container().id][:2]
    assert {each.id: each.ports() for each in (moved, added)} == ports
    assert (stopped.row().phase, stopped.read_file("/tmp/layer")) == (Phase.STOPPED, b"kept\n")

    # and all go on as ever, with the keys that were in no backup
    until(lambda: _has_keys(added), what=added.how_it_is)
    assert added.secret().host_public_key == keys
    stopped.start().until(Phase.RUNNING)
    for workspace in (untouched, stopped, moved, changed, by_hand, added):
        assert workspace.said("cat /tmp/layer") == "kept", workspace.how_it_is()
    check_at_rest(house)


def _has_keys(workspace: Workspace) -> bool:
    with workspace.house.store.read() as session:
        return session.get(WorkspaceSecret, workspace.id) is not None


@pytest.fixture
def house_with_cards(make_house: MakeHouse) -> Iterator[tuple[House, Person, Image]]:
    with own_engine("restored-cards", cards=presets.preset("four")) as (engine, ground):
        house = make_house("restored-cards", ground=ground, toolkit=engine.toolkit)
        alice, image = house.add_person("alice"), house.add_image(standin.WITH_PYTHON)
        house.start_agent(look_seconds="0.5")
        house.wait_for_cards()
        yield house, alice, image
        house.close()       # before its engine goes


@needs_root
def test_cards_that_were_handed_on_stay_with_who_has_them(
    house_with_cards: tuple[House, Person, Image], backup: Path,
) -> None:
    house, alice, image = house_with_cards
    first, second = house.launch(alice, image, "w1", gpus="2"), house.launch(alice, image, "w2", gpus="1")
    for workspace in (first, second):
        workspace.until(Phase.RUNNING)
    had = first.cards()
    berth(house, "backup", backup)
    first.stop().until(Phase.STOPPED)
    third = house.launch(alice, image, "w3", gpu_uuids=tuple(had[:1]))
    third.until(Phase.RUNNING)
    first.start().until(Phase.RUNNING)          # on others: one of its own is taken
    until_at_rest(house)
    moved_to = first.cards()
    house.stop_agent()

    before, began = world(house), now()
    berth(house, "restore", backup, "--replace")
    house.start_agent(look_seconds="0.5")
    wait_for_look(house)
    shown = findings(house)
    assert {name: found["kind"] for name, found in shown.items()} == {"w1": "cards", "w3": "unknown_container"}
    assert list(shown) == ["w1", "w3"] and shown["w1"]["gpus"] == moved_to
    assert world(house) == before and touched(house, began) == []
    berth(house, "hold", "decide", "w1", "keep")
    berth(house, "hold", "decide", "w3", "adopt")
    with pytest.raises(AssertionError, match="would both have"):
        berth(house, "hold", "release")
    assert world(house) == before

    berth(house, "hold", "decide", "w1", "adopt")
    berth(house, "hold", "release")
    until_at_rest(house)
    assert world(house) == before
    assert first.cards() == first.cards_inside() == moved_to and third.cards() == third.cards_inside() == had[:1]
    third.stop().until(Phase.STOPPED)
    assert third.cards() == []
    check_at_rest(house)
