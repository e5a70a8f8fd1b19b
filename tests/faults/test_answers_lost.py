"""Calls to the engine of which the answer is lost, which never arrive, arrive twice, or arrive when nobody waits for
them any more: there is one container, and it ends as wished.

All cases of a flow go on at once, a workspace each, since a lost answer is looked after 5 s later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parts
import pytest

from faults import agents, standin
from faults.conftest import MakeHouse
from faults.house import Ground, House, Person
from faults.invariants import check_at_rest, until_at_rest
from faults.ports import foreign_listener
from faults.waiting import until
from faults.workspace import Workspace
from webapp.agent.desk import TRIES
from webapp.domain.sizes import MIB
from webapp.domain.workspace import Phase
from webapp.store.tables import Image

pytestmark = pytest.mark.docker

LossyProxy = parts.load(Path(__file__).parents[1] / "engine" / "lossy_proxy.py").LossyProxy

# name → method and path; {id} is the workspace's.
CREATE = ("POST", r"/containers/create\?name=[^&]*{id}")
PUT = ("PUT", r"/containers/[^/]*{id}[^/]*/archive")
START = ("POST", r"/containers/[^/]*{id}[^/]*/start")
STOP = ("POST", r"/containers/[^/]*{id}[^/]*/stop")
COMMIT = ("POST", r"/commit\?.*{id}")
REMOVE = ("DELETE", r"/containers/[^/]*{id}")
REMOVE_VOLUME = ("DELETE", r"/volumes/[^/]*{id}")
KINDS = ("lose_answer", "lose_request", "repeat")

PATIENCE = 2.0      # seconds that the agent here waits for a change
LATE = 4.0          # seconds after which a delayed request arrives


@dataclass
class Scene:
    house: House
    proxy: Any
    alice: Person
    image: Image
    launched: int = 0

    def launch(self) -> Workspace:
        self.launched += 1
        return self.house.launch(self.alice, self.image, f"w{self.launched}")

    def launch_all(self, count: int) -> list[Workspace]:
        running = [self.launch() for _ in range(count)]
        for workspace in running:
            workspace.until(Phase.RUNNING)
        return running

    def break_call(self, kind: str, call: tuple[str, str], workspace: Workspace) -> None:
        method, path = call
        getattr(self.proxy, kind)(method, path.format(id=workspace.id))

    def check_that_all_broke(self) -> None:
        assert [(fault.kind, fault.path.pattern) for fault in self.proxy._faults if fault.times] == []

    def start_agent(self) -> None:
        if self.house.agent is None or not self.house.agent.is_alive:
            self.house.start_agent(entry=agents.CRASHING, orders=str(self.house.folder), change_seconds=str(PATIENCE),
                                   commit_seconds=str(PATIENCE))


@pytest.fixture(scope="module")
def scene(make_house: MakeHouse, ground: Ground) -> Iterator[Scene]:
    with LossyProxy(ground.url) as proxy:
        house = make_house("lossy", url=proxy.url)
        yield Scene(house, proxy, house.add_person("alice"), house.add_image(standin.WORKSPACE))
        house.close()
    # A commit that arrives twice takes the name from its first image, which nobody knows any more.
    ground.docker.images.prune(filters={"dangling": True, "label": "berth.workspace="})


def _cases(*calls: tuple[str, str]) -> list[tuple[str, tuple[str, str]]]:
    return [(kind, call) for call in calls for kind in KINDS]


def _outcome(workspaces: list[Workspace], wish: Callable[[Workspace], object], phase: Phase) -> list[str]:
    for workspace in workspaces:
        wish(workspace)
    return [workspace.until(phase).phase for workspace in workspaces]


def test_launch_runs_once(scene: Scene) -> None:
    scene.house.stop_agent()
    cases = _cases(CREATE, PUT, START)
    workspaces = [scene.launch() for _ in cases]
    for workspace, case in zip(workspaces, cases, strict=True):
        scene.break_call(*case, workspace)
    scene.start_agent()

    for workspace in workspaces:
        workspace.until(Phase.RUNNING)

    until_at_rest(scene.house)
    scene.check_that_all_broke()
    assert _outcome(workspaces, Workspace.remove, Phase.REMOVED) == [Phase.REMOVED] * len(cases)
    check_at_rest(scene.house)


def test_stop_start_and_removal_end_as_wished(scene: Scene) -> None:
    scene.start_agent()
    cases = _cases(STOP)
    workspaces = scene.launch_all(len(cases))
    for workspace, case in zip(workspaces, cases, strict=True):
        scene.break_call(*case, workspace)
        scene.break_call(case[0], START, workspace)
        scene.break_call(case[0], REMOVE, workspace)
        scene.break_call(case[0], REMOVE_VOLUME, workspace)

    for wish, phase in ((Workspace.stop, Phase.STOPPED), (Workspace.start, Phase.RUNNING),
                        (Workspace.remove, Phase.REMOVED)):
        assert _outcome(workspaces, wish, phase) == [phase] * len(cases)
        until_at_rest(scene.house)
    scene.check_that_all_broke()


def test_move_keeps_one_whole_container(scene: Scene) -> None:
    scene.start_agent()
    cases = _cases(COMMIT)
    workspaces = scene.launch_all(len(cases))
    listeners = []
    for workspace, case in zip(workspaces, cases, strict=True):
        workspace.run("sh", "-c", "echo kept > /opt/layer")
        workspace.stop().until(Phase.STOPPED)
        listeners.append(foreign_listener(workspace.ports()["ssh"]))
        scene.break_call(*case, workspace)

    assert _outcome(workspaces, Workspace.start, Phase.RUNNING) == [Phase.RUNNING] * len(cases)

    until_at_rest(scene.house)
    scene.check_that_all_broke()
    assert [workspace.read_file("/opt/layer") for workspace in workspaces] == [b"kept\n"] * len(cases)
    _outcome(workspaces, Workspace.remove, Phase.REMOVED)
    check_at_rest(scene.house)
    for listener in listeners:
        listener.close()


def test_change_is_made_whatever_becomes_of_a_commit(scene: Scene) -> None:
    """Of one that runs: its answer is lost or late, it is not heard of, or heard of twice."""
    scene.start_agent()
    cases = _cases(COMMIT)
    *workspaces, late = scene.launch_all(len(cases) + 1)
    for workspace, case in zip(workspaces, cases, strict=True):
        scene.break_call(*case, workspace)
    scene.proxy.delay(COMMIT[0], COMMIT[1].format(id=late.id), LATE)
    for workspace in (*workspaces, late):
        workspace.run("sh", "-c", "echo kept > /opt/layer")

    assert _outcome([*workspaces, late], lambda one: one.change(shm="80MiB"), Phase.RUNNING)

    until_at_rest(scene.house)
    scene.check_that_all_broke()
    for workspace in (*workspaces, late):
        assert workspace.container().attrs["HostConfig"]["ShmSize"] == 80 * MIB and workspace.row().note is None
        assert workspace.read_file("/opt/layer") == b"kept\n"
    _outcome([*workspaces, late], Workspace.remove, Phase.REMOVED)
    check_at_rest(scene.house)


def test_change_is_taken_back_when_no_commit_is_ever_answered(scene: Scene) -> None:
    scene.start_agent()
    workspace = scene.launch_all(1)[0]
    workspace.run("sh", "-c", "echo kept > /opt/layer")
    before = workspace.row()
    scene.proxy.lose_request(COMMIT[0], COMMIT[1].format(id=workspace.id), times=TRIES)

    row = workspace.change(shm="80MiB").until(Phase.RUNNING)

    until_at_rest(scene.house)
    scene.check_that_all_broke()
    assert row.note is not None and row.note["code"] == "commit_unanswered"
    assert (row.container_id, row.shm_bytes, row.before_change) == (before.container_id, before.shm_bytes, None)
    assert workspace.greets() and workspace.read_file("/opt/layer") == b"kept\n"
    workspace.remove().until(Phase.REMOVED)
    check_at_rest(scene.house)


def test_request_that_arrives_late_does_not_undo_a_later_wish(scene: Scene) -> None:
    """The agent gives up after PATIENCE; the engine hears of it after LATE."""
    scene.house.stop_agent()
    stopped, removed = scene.launch(), scene.launch()
    scene.proxy.delay("POST", START[1].format(id=stopped.id), LATE)
    scene.proxy.delay("POST", CREATE[1].format(id=removed.id), LATE)
    scene.start_agent()
    for workspace, path in ((stopped, START[1]), (removed, CREATE[1])):
        until(lambda workspace=workspace, path=path: _was_asked(scene, path, workspace), what=workspace.how_it_is)

    stopped.stop().until(Phase.STOPPED)
    removed.remove().until(Phase.REMOVED)

    until(lambda: _has_run(stopped), what="the late start")
    until(lambda: [one.attrs["State"] for one in stopped.containers()] == ["exited"], what=stopped.how_it_is)
    until(lambda: _engine_made(scene, removed), what="the late container")
    until_at_rest(scene.house)
    assert stopped.row().phase == Phase.STOPPED and removed.containers() == []
    stopped.remove().until(Phase.REMOVED)


def test_answer_that_takes_long_is_waited_for(scene: Scene) -> None:
    scene.start_agent()
    workspace = scene.launch_all(1)[0]
    scene.proxy.delay("POST", STOP[1].format(id=workspace.id), LATE)
    workspace.stop().until(Phase.STOPPED)
    assert workspace.row().failures == 0
    workspace.remove().until(Phase.REMOVED)


def _was_asked(scene: Scene, path: str, workspace: Workspace) -> bool:
    pattern = re.compile(path.format(id=workspace.id))
    return any(pattern.search(asked) for _, asked in scene.proxy.seen)


def _has_run(workspace: Workspace) -> bool:
    found = workspace.containers()
    return bool(found) and not found[0].attrs["Status"].startswith("Created")


def _engine_made(scene: Scene, workspace: Workspace) -> bool:
    """As its events say: by now it may be gone again."""
    mine = {"type": "container", "event": "create", "label": f"berth.workspace={workspace.id}"}
    until_now = int(time.time()) + 1
    return any(scene.house.docker.events(since=until_now - 60, until=until_now, filters=mine, decode=True))
