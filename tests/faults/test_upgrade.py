"""F33: an upgrade from the first migration while workspaces run. Nobody in one notices."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from sqlalchemy import text

from faults import agents
from faults.agents import Process
from faults.conftest import MakeHouse
from faults.first_version import FirstVersion
from faults.house import House
from faults.invariants import check_at_rest, until_at_rest
from faults.waiting import until
from webapp.domain.workspace import Desired, Phase
from webapp.services import changes
from webapp.services.changes import ChangeRequest, Consequence
from webapp.store.revisions import own
from webapp.store.schema import current

pytestmark = pytest.mark.docker
OTHER_VERSION = 6
KEPT = "/opt/berth/py/kept"     # in the container's own layer
BERTH = ("-c", "from webapp.cli.root import main; main()")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, slim_image: str) -> FirstVersion:
    return FirstVersion.of(tmp_path_factory.mktemp("first"), slim_image)


@pytest.fixture(scope="module")
def house(make_house: MakeHouse, first: FirstVersion) -> House:
    """With no agent yet, and the tables of the first version."""
    return make_house("upgrade", begin=first.begin)


def berth(house: House, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *BERTH, *words], cwd=agents.ROOT, env=house.environment,
                          capture_output=True, text=True, timeout=120)


def lives(house: House) -> dict[str, tuple[str, Any, Any]]:
    """Container → since when it runs, or when it ended."""
    found = (house.docker.api.inspect_container(one.id) for one in house.containers())
    return {one["Id"]: (one["State"]["Status"], one["State"]["StartedAt"], one["State"]["FinishedAt"]) for one in found}


def deeds(house: House, since: float) -> list[str]:
    """What was done to containers of this house, as the engine remembers it; programs that ran inside count not."""
    filters = {"type": "container", "label": f"berth.instance={house.instance}"}
    seen = house.docker.api.events(since=since, until=time.time(), filters=filters, decode=True)
    return [event["Action"] for event in seen if not event["Action"].startswith("exec_")]


class TestFromTheFirstVersion:
    """In the order of an upgrade; each goes on where the last one ended."""

    def test_migrate_touches_no_workspace(self, house: House, first: FirstVersion) -> None:
        for name in ("alice/train", "bob/train"):
            workspace, owner = first.workspaces[name], first.workspaces[name].owner
            container = house.docker.containers.get(f"berth-{house.instance}-w-{workspace.id}-r1")
            write = f"echo kept > {KEPT} && echo mine > ~/file"
            assert container.exec_run(["sh", "-c", write], user=str(owner.uid)).exit_code == 0
        before, began = lives(house), time.time()
        assert [status for status, *_ in before.values()].count("running") == 2 and len(before) == 3
        done = berth(house, "migrate")
        assert (done.returncode, done.stdout) == (0, f"database upgraded to {own().head}\n"), done.stderr
        assert (lives(house), deeds(house, began)) == (before, [])

    def test_new_agent_takes_over_what_runs_and_makes_nothing_anew(self, house: House, first: FirstVersion) -> None:
        before, began = lives(house), time.time()
        house.start_agent()
        house.wait_for_first_pass()
        for name in ("alice/train", "bob/train"):
            row = first.workspaces[name].until(Phase.RUNNING)
            assert (row.reason, row.note, row.revision, row.container_id in before) == (None, None, 1, True)
        assert first.workspaces["alice/notes"].row().phase == Phase.STOPPED
        assert first.workspaces["alice/gone"].row().phase == Phase.REMOVED
        check_at_rest(house)
        house.restart_agent()
        assert (lives(house), deeds(house, began)) == (before, [])

    def test_ways_in_are_as_they_were(self, first: FirstVersion) -> None:
        for name in ("alice/train", "bob/train"):
            assert first.workspaces[name].said("hostname; cat ~/file") == "train\nmine"
        assert first.workspaces["alice/train"].said("id -nG; touch /data/data/x").split() == ["alice", "vision"]
        assert first.workspaces["bob/train"].ssh("touch /data/data/y").returncode != 0, "it was mounted read-only"

    def test_change_of_limits_is_none_of_its_shape(self, house: House, first: FirstVersion) -> None:
        """The containers say nothing of shared memory and mounts; the rows know that these are the present ones."""
        with house.store.read() as session:
            for name in ("alice/train", "bob/train"):
                one = first.workspaces[name]
                for request, wanted in ((ChangeRequest(), Consequence.NOTHING),
                                        (ChangeRequest(memory="300MiB"), Consequence.LIVE),
                                        (ChangeRequest(shm="100MiB"), Consequence.MOVE)):
                    found = changes.consequence(session, one.owner.actor, one.id, request, house=house.rules)
                    assert found is wanted, (name, request)

    @pytest.mark.parametrize("name", ["alice/train", "bob/train", "alice/notes"])
    def test_stop_and_start_keep_the_container(self, house: House, first: FirstVersion, name: str) -> None:
        workspace = first.workspaces[name]
        was = workspace.row()
        if was.desired == Desired.RUNNING:
            workspace.stop().until(Phase.STOPPED)
        row = workspace.start().until(Phase.RUNNING)
        until_at_rest(house)
        assert (row.container_id, row.revision, row.note) == (was.container_id, 1, None)
        assert workspace.said("cat /etc/hostname") == row.name
        if was.desired == Desired.RUNNING:
            assert workspace.said(f"cat {KEPT} ~/file") == "kept\nmine"

    def test_change_of_shape_moves_and_keeps(self, house: House, first: FirstVersion) -> None:
        """The first revision after it carries the labels of this version."""
        workspace = first.workspaces["bob/train"]
        with house.store.write() as session:
            changes.change(session, workspace.owner.actor, workspace.id, ChangeRequest(shm="100MiB"), house=house.rules,
                           now=workspace.row().phase_at)
        row = workspace.until(Phase.RUNNING)
        assert row.revision == 2
        assert workspace.said(f"cat {KEPT} ~/file") == "kept\nmine"
        until_at_rest(house)


class TestUnderARunningBerth:
    """Web and agent of the older version run while a newer one upgrades the tables."""

    @pytest.fixture
    def upgrade(self, house: House) -> Iterator[Callable[[], None]]:
        """By the next version; undone afterwards."""
        yield lambda: _put(house, "9999")
        _put(house, str(own().head))

    def test_agent_ends_and_web_says_it(self, house: House, upgrade: Callable[[], None]) -> None:
        house.stop_agent()
        agent = house.start_agent()
        house.wait_for_first_pass()
        web = house.start_web()
        before = lives(house)
        upgrade()
        began = time.time()
        assert agent.wait_dead(30) == OTHER_VERSION
        assert "The database was upgraded by a newer Berth (9999" in agent.said()
        assert "Traceback" not in agent.said()
        answer = requests.get(f"{house.settings.url}/welcome/link", timeout=10)
        assert answer.status_code == 503 and "Berth is being upgraded" in answer.text
        assert web.is_alive and "Traceback" not in web.said()
        assert (lives(house), deeds(house, began)) == (before, [])

    @pytest.mark.sqlite     # web would need a way into the tests' server for an account of its own
    def test_berth_up_ends_with_the_code(self, house: House, upgrade: Callable[[], None]) -> None:
        for process in (house.agent, house.web):
            if process is not None:
                process.stop()
        up = Process((*BERTH, "up"), house.environment, house.folder / "up.log")
        try:
            up.wait_started(lambda: "Berth is up" in up.said())
            before = lives(house)
            upgrade()
            assert up.wait_dead(40) == OTHER_VERSION
        finally:
            up.stop()
        assert "upgraded by a newer Berth (9999" in up.said() and "starting it again" not in up.said()
        assert lives(house) == before
        again = berth(house, "up")
        assert again.returncode == OTHER_VERSION and "upgraded by a newer Berth (9999" in again.stderr

    def test_all_goes_on_when_the_versions_fit_again(self, house: House, first: FirstVersion) -> None:
        house.start_agent()
        house.wait_for_first_pass()
        assert all(first.workspaces[name].row().phase == Phase.RUNNING for name in ("alice/train", "bob/train"))
        until(lambda: current(house.store) == own().head)
        until_at_rest(house)


def _put(house: House, revision: str) -> None:
    with house.store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
