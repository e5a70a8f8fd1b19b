"""A token and a host key that can be recognised: they are where they are needed, and nowhere else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import docker
import pytest
from faults.conftest import MakeHouse
from faults.house import Ground, House
from faults.ports import foreign_listener
from faults.waiting import until
from faults.workspace import Workspace, now

from journeys.browser import Browser
from journeys.canaries import Canaries, EventWatch, ProcessWatch, saved_bytes_with
from journeys.jupyter import Jupyter
from webapp.domain.operation import OperationKind
from webapp.domain.workspace import Phase
from webapp.services import operations
from webapp.store.tables import Image, Operation

pytestmark = pytest.mark.docker

IN_THE_LAYER = "a-file-that-a-commit-keeps"


@dataclass
class Life:
    """A workspace that was launched, opened, used, stopped and moved, while everything was written down."""

    house: House
    image: Image
    workspace: Workspace
    canaries: Canaries
    events: EventWatch
    processes: ProcessWatch
    opened: str             # the page that hands the token over

    @property
    def docker(self) -> docker.DockerClient:
        return self.house.docker

    @property
    def private_image(self) -> str:
        reference = self.workspace.row().private_image
        assert reference is not None
        return reference


@pytest.fixture(scope="module")
def life(make_house: MakeHouse, ground: Ground, workspace_image: str) -> Iterator[Life]:
    canaries, house = Canaries.new(), make_house("secrecy", settings={"LOG_LEVEL": "debug"})
    alice, image = house.add_person("alice"), house.add_image(workspace_image, jupyter=True)
    with (contextlib.closing(EventWatch(ground.docker)) as events,
          contextlib.closing(ProcessWatch(canaries)) as processes):
        house.start_agent()
        house.start_web()
        workspace = house.launch(alice, image, "secret", memory="1GiB", new_secrets=lambda: canaries.secrets)
        workspace.until(Phase.RUNNING)
        opened = _use(house, workspace, canaries)
        _move(workspace)
        yield Life(house, image, workspace, canaries, events, processes, opened)


def _use(house: House, workspace: Workspace, canaries: Canaries) -> str:
    """By every way in; also what goes wrong, since errors are logged."""
    token = canaries.secrets.jupyter_token
    assert Jupyter(workspace, token).run_cell("print('used')") == "used\n"
    assert workspace.http("GET", "/api/status", token=token[:-1])[0] == 403
    workspace.said(f"touch /opt/berth/py/{IN_THE_LAYER}")
    with Browser(house) as browser:
        browser.sign_in(workspace.owner)
        page = f"/workspaces/{workspace.id}"
        opened = browser.submit(f"{page}/open", on=page).text
        browser.submit(f"{page}/logs", on=page)
        assert not canaries.are_in(browser.get(page).text)
    return opened


def _move(workspace: Workspace) -> None:
    workspace.stop().until(Phase.STOPPED)
    with contextlib.closing(foreign_listener(workspace.ports()["ssh"])):
        workspace.start().until(Phase.RUNNING)
    until(lambda: len(workspace.containers()) == 1, what="the end of the old container")


def test_secrets_are_handed_over_and_in_place(life: Life) -> None:
    """Or the tests below would prove nothing."""
    assert life.canaries.secrets.jupyter_token in life.opened
    assert life.workspace.run("cat", "/etc/berth/token") == life.canaries.secrets.jupyter_token
    assert life.canaries.are_in(life.workspace.run("cat", "/etc/berth/ssh_host_ed25519_key"))
    assert life.workspace.http("GET", "/api/status", token=life.canaries.secrets.jupyter_token)[0] == 200
    assert life.workspace.ssh("true").returncode == 0


def test_logs_at_debug_level_have_no_secret(life: Life) -> None:
    assert life.house.agent is not None and life.house.web is not None
    assert "workspace.running" in life.house.agent.said()
    assert not life.canaries.are_in(life.house.agent.said() + life.house.web.said())


def test_engine_shows_no_secret(life: Life) -> None:
    api, container = life.docker.api, life.workspace.container()
    shown: dict[str, Any] = {
        "container": api.inspect_container(container.id), "image": api.inspect_image(life.private_image),
        "history": api.history(life.private_image), "top": api.top(container.id, "axww -o pid,args"),
        "volumes": [api.inspect_volume(volume) for volume in life.house.volumes()],
        "network": api.inspect_network(f"berth-{life.house.instance}"), "changes": api.diff(container.id),
    }
    assert [what for what, facts in shown.items() if life.canaries.are_in(json.dumps(facts))] == []


def test_events_have_no_secret(life: Life) -> None:
    mine = [line for line in life.events.lines if life.workspace.id in line]
    assert len(mine) > 10 and not any(map(life.canaries.are_in, life.events.lines))


def test_container_logs_have_no_secret(life: Life) -> None:
    workspace, store = life.workspace, life.house.store
    workspace.run("pkill", "-f", "jupyterlab")      # it says that, and starts again
    until(lambda: b"jupyter ended" in workspace.container().logs(), what="the entrypoint's line")
    with store.write() as session:
        asked = operations.request(session, workspace.owner.actor, OperationKind.WORKSPACE_LOGS,
                                   workspace_id=workspace.id, arguments={}, now=now()).id

    def fetched() -> str:
        with store.read() as session:
            return (session.get_one(Operation, asked).result or {}).get("text", "")

    assert "jupyter ended" in until(fetched, what=workspace.how_it_is)
    assert not life.canaries.are_in(fetched()) and not life.canaries.are_in(workspace.container().logs())


def test_no_process_had_a_secret_in_arguments_or_environment(life: Life) -> None:
    inside = {int(row[0]) for row in life.docker.api.top(life.workspace.container().id, "ax -o pid")["Processes"]}
    until(lambda: inside <= life.processes.looked_at, what="a look at the workspace's processes")
    assert life.processes.found == set()


def test_home_has_no_secret(life: Life) -> None:
    """Two workspaces of one person share it."""
    needles = b"\n".join(life.canaries.needles)
    found = life.workspace.ssh("grep -rlF -f - ~ /tmp /var/tmp", stdin=needles)
    assert (found.returncode, found.stdout) == (1, "")


def test_saved_images_of_it_have_no_secret(life: Life) -> None:
    """The private image of the move, and one that somebody committed from the running container."""
    by_hand = life.workspace.container().commit("berth-test/by-hand", life.house.instance)
    try:
        counts = saved_bytes_with(life.docker, [life.private_image, by_hand.tags[0]],
                                  [*life.canaries.needles, IN_THE_LAYER.encode()])
    finally:
        life.docker.images.remove(by_hand.id, force=True)

    assert counts.pop(IN_THE_LAYER.encode()) > 0
    assert set(counts.values()) == {0}


def test_private_image_claims_to_be_no_workspace(life: Life) -> None:
    config = life.docker.api.inspect_image(life.private_image)["Config"]
    assert {name: value for name, value in config["Labels"].items() if name.startswith("berth.")
            and not name.startswith("berth.image.") and value} == {}
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    assert {name for name, value in environment.items() if value} >= {"PATH", "VIRTUAL_ENV"}
    assert [environment.get(name, "") for name in ("USER", "BERTH_WORKSPACE", "NVIDIA_VISIBLE_DEVICES")] == [""] * 3


def test_copies_that_somebody_runs_by_hand_are_left_alone(life: Life) -> None:
    """Their labels are the workspace's own, their names are not."""
    by_hand = life.workspace.container().commit("berth-test/by-hand", f"{life.house.instance}-run")
    copy = life.docker.containers.run(by_hand.id, ["600"], entrypoint="sleep", name=f"hand-{life.house.instance}",
                                      detach=True)
    try:
        assert copy.labels["berth.workspace"] == life.workspace.id
        other = life.house.launch(life.workspace.owner, life.image, "other", memory="1GiB")
        other.until(Phase.RUNNING)
        other.remove().until(Phase.REMOVED)
        life.workspace.remove().until(Phase.REMOVED)

        copy.reload()
        assert copy.status == "running" and copy.attrs["RestartCount"] == 0
        assert life.docker.images.get(by_hand.id).tags == by_hand.tags
    finally:
        copy.remove(force=True)
        life.docker.images.remove(by_hand.id, force=True)
