"""Containers that end by themselves or by somebody's hand, ports and names that others have: what becomes of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faults import standin
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.invariants import check_at_rest
from faults.ports import foreign_listener
from faults.waiting import until
from faults.workspace import Workspace, now
from webapp.domain.endings import TRIES
from webapp.domain.workspace import Phase
from webapp.store.tables import Image

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def house(make_house: MakeHouse) -> House:
    return make_house("endings")


@pytest.fixture(scope="module")
def alice(house: House) -> Person:
    return house.add_person("alice")


@pytest.fixture(scope="module")
def image(house: House) -> Image:
    return house.add_image(standin.WORKSPACE)


@pytest.fixture(scope="module")
def hopeless(house: House, alice: Person) -> Workspace:
    """Of an image whose program ends at once. Tried for 21 s, so it is launched first and looked at last."""
    return house.launch(alice, house.add_image(standin.ENDS_AT_ONCE), "hopeless")


@pytest.fixture(autouse=True)
def agent(house: House, hopeless: Workspace) -> None:
    """At work in each test, unless that one stops it."""
    if house.agent is None or not house.agent.is_alive:
        house.start_agent()


@pytest.fixture
def launch(house: House, alice: Person, image: Image) -> Iterator[Callable[[], Workspace]]:
    """A workspace of the stand-in, not waited for; gone at the end."""
    made: list[Workspace] = []

    def new() -> Workspace:
        made.append(house.launch(alice, image, f"w{len(made)}"))
        return made[-1]

    yield new
    for workspace in made:
        workspace.remove().until(Phase.REMOVED)
        assert workspace.containers() == []


@pytest.fixture
def running(launch: Callable[[], Workspace]) -> Workspace:
    workspace = launch()
    workspace.until(Phase.RUNNING)
    workspace.run("sh", "-c", "echo kept > ~/file")
    return workspace


# -- by itself


def test_one_that_ends_by_itself_is_started_again(running: Workspace) -> None:
    moment = now()
    _signal(running, "USR2")

    row = running.until_row(lambda row: row.phase == Phase.RUNNING and (row.started_at or moment) > moment)

    assert (row.failures, row.reason) == (1, None) and running.greets()
    assert "told to end" in running.container().logs().decode()


def test_one_that_uses_up_its_memory_has_failed_and_says_the_limit(running: Workspace) -> None:
    _signal(running, "USR1")

    row = running.until(Phase.FAILED)

    assert row.reason == {"code": "out_of_memory", "facts": {"memory": "256 MiB"}}
    assert row.log_tail is not None and "greets" in row.log_tail
    running.start().until(Phase.RUNNING)
    assert running.run("cat", "/home/alice/file") == "kept\n"


def test_program_that_uses_up_the_memory_is_noted_and_the_workspace_goes_on(running: Workspace) -> None:
    before = running.container().attrs["State"]["StartedAt"]
    _signal(running, "HUP")

    row = running.until_row(lambda row: row.note is not None)

    assert row.note is not None and row.note["code"] == "child_out_of_memory"
    assert row.note["facts"]["memory"] == "256 MiB"
    assert row.phase == Phase.RUNNING and running.greets()
    assert running.container().attrs["State"]["StartedAt"] == before


# -- by hand


@pytest.mark.parametrize("hand", ["stop", "kill"])
def test_one_that_is_stopped_by_hand_stays_down(house: House, running: Workspace, hand: str) -> None:
    container = running.container()
    getattr(container, hand)()

    row = running.until(Phase.STOPPED)

    assert row.reason is not None and row.reason["code"] == "stopped_outside"
    house.restart_agent()           # nor does the next agent
    container.reload()
    assert container.status == "exited" and running.row().phase == Phase.STOPPED
    running.start().until(Phase.RUNNING)
    assert running.container().id == container.id


def test_one_that_is_removed_by_hand_is_made_anew_only_when_asked(house: House, running: Workspace) -> None:
    running.container().remove(force=True)

    row = running.until(Phase.STOPPED)

    assert row.reason is not None and row.reason["code"] == "removed_outside"
    assert running.containers() == [] and len(running.ports()) == 1
    running.start().until(Phase.RUNNING)
    assert running.run("cat", "/home/alice/file") == "kept\n"
    until_own_at_rest(running)


def test_one_that_is_renamed_by_hand_is_still_known(house: House, running: Workspace) -> None:
    container = running.container()
    container.rename(f"renamed-{house.instance}")
    house.restart_agent()
    assert running.row().phase == Phase.RUNNING and running.greets()

    running.stop().until(Phase.STOPPED)

    container.reload()
    assert container.status == "exited"


def test_one_that_is_started_by_hand_against_the_wish_is_stopped(running: Workspace) -> None:
    running.stop().until(Phase.STOPPED)
    container = running.container()
    container.start()

    until(lambda: _status(container) == "exited", what=running.how_it_is)
    running.until(Phase.STOPPED)


# -- what others have already


def test_taken_port_at_the_first_start_is_replaced_and_told(house: House, launch: Callable[[], Workspace]) -> None:
    house.stop_agent()
    workspace = launch()
    taken = workspace.ports()["ssh"]
    with contextlib.closing(foreign_listener(taken)):
        house.start_agent()
        row = workspace.until(Phase.RUNNING)

        port = workspace.ports()["ssh"]
        assert port != taken and workspace.greets()
        assert row.note is not None and row.note["code"] == "port_replaced"
        assert (row.note["facts"]["old"], row.note["facts"]["new"]) == (taken, port)
        until_own_at_rest(workspace)


def test_strangers_container_of_that_name_is_neither_taken_nor_touched(
    house: House, launch: Callable[[], Workspace]
) -> None:
    house.stop_agent()
    workspace = launch()
    stranger = house.docker.containers.run(
        standin.WORKSPACE, name=f"berth-{house.instance}-w-{workspace.id}-r1", detach=True)
    try:
        house.start_agent()
        row = workspace.until(Phase.FAILED)

        assert row.reason is not None and row.reason["code"] == "engine_rejected"
        assert stranger.name in row.reason["facts"]["detail"]
        workspace.remove().until(Phase.REMOVED)
        assert _status(stranger) == "running"
    finally:
        stranger.remove(force=True)


def test_copied_labels_are_no_workspace(house: House, running: Workspace) -> None:
    labels = running.container().labels
    copy = house.docker.containers.run(standin.WORKSPACE, name=f"copy-{house.instance}", labels=labels, detach=True)
    try:
        running.stop().until(Phase.STOPPED)
        running.start().until(Phase.RUNNING)
        running.remove().until(Phase.REMOVED)
        house.restart_agent()
        assert _status(copy) == "running"
    finally:
        copy.remove(force=True)


# -- last: it had its tries meanwhile


def test_one_that_ends_at_once_has_failed_after_its_tries(hopeless: Workspace) -> None:
    row = hopeless.until(Phase.FAILED)

    assert row.reason == {"code": "crashed", "facts": {"exit_code": 7, "tries": TRIES + 1, "limit": TRIES}}
    assert row.log_tail is not None and row.log_tail.count("no such file: /opt/model") == TRIES + 1
    assert [one.attrs["State"] for one in hopeless.containers()] == ["exited"]
    hopeless.remove().until(Phase.REMOVED)
    check_at_rest(hopeless.house)


def _signal(workspace: Workspace, name: str) -> None:
    """From inside, so that the engine tells nobody of a `kill`. Not waited for: it may end with the container."""
    workspace.container().exec_run(["kill", f"-{name}", "1"], user=str(workspace.owner.uid), detach=True)


def _status(container: Any) -> str:
    container.reload()
    return str(container.status)


def until_own_at_rest(workspace: Workspace) -> None:
    """Others of this house may be in the middle of their tries."""
    until(lambda: len(workspace.containers()) == 1, what=workspace.how_it_is)
    assert workspace.containers()[0].id == workspace.row().container_id
