"""A whole house on a modern engine: the real agent, the real workspace image, and cards by CDI names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from faults.conftest import MakeHouse
from faults.house import House
from faults.invariants import check_at_rest, until_at_rest
from faults.toolkit import Toolkit
from faults.workspace import Workspace

from webapp.domain.workspace import Health, Phase
from webapp.engines.docker.gpus import CDI_KIND

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def house(make_house: MakeHouse, cards: Toolkit) -> Iterator[House]:
    house = make_house("modern", toolkit=cards)
    house.start_agent()
    house.wait_for_cards()
    yield house
    house.close()       # before its cards go


@pytest.fixture
def launch(house: House, workspace_image: str) -> Any:
    """launch(name, …) → a workspace that runs."""
    owner, image = house.add_person("alice"), house.add_image(workspace_image, jupyter=True)

    def launched(name: str, **wishes: Any) -> Workspace:
        workspace = house.launch(owner, image, name, memory="1GiB", **wishes)
        workspace.until(Phase.RUNNING)
        return workspace
    return launched


def test_workspaces_get_their_cards_keep_them_and_move(house: House, cards: Toolkit, launch: Any) -> None:
    two, none = launch("two", gpu_uuids=tuple(cards.uuids[:2])), launch("none")

    held = two.cards()
    assert held == sorted(cards.uuids[:2]) and none.cards() == []
    assert two.cards_inside() == held and cards.given(two.container().id) == [",".join(held)]
    assert asked_for(two) == [("cdi", [f"{CDI_KIND}{uuid}" for uuid in held])] and asked_for(none) == []
    for workspace in (two, none):
        assert "NVIDIA_VISIBLE_DEVICES=void" in workspace.container().attrs["Config"]["Env"]
        assert workspace.said("id -un") == "alice" and workspace.row().health == Health.OK
        status, _, _ = workspace.http("GET", "/api/status", token=workspace.secret().jupyter_token)
        assert status == 200
    assert none.container().exec_run(["ls", "/usr/bin/nvidia-smi"]).exit_code != 0
    assert two.said("nvidia-smi --query-gpu=uuid --format=csv,noheader").split() == cards.uuids[:2]
    check_at_rest(house)

    two.said("touch /opt/berth/py/kept")
    port, container = two.ports()["ssh"], two.container()
    two.stop().until(Phase.STOPPED)
    assert two.cards() == []
    two.start().until(Phase.RUNNING)
    assert two.cards_inside() == held and two.container().id == container.id

    two.stop().until(Phase.STOPPED)
    third = launch("third", gpu_uuids=(held[0],))
    two.start().until(Phase.RUNNING)
    assert third.cards_inside() == [held[0]] and held[0] not in two.cards() and len(two.cards()) == 2
    assert two.cards_inside() == two.cards() and asked_for(two)[0][0] == "cdi"
    assert two.container().id != container.id and two.ports()["ssh"] == port
    assert two.said("ls /opt/berth/py/kept") == "/opt/berth/py/kept"
    until_at_rest(house)


def asked_for(workspace: Workspace) -> list[tuple[str, list[str]]]:
    requests = workspace.container().attrs["HostConfig"]["DeviceRequests"] or []
    return [(one["Driver"], one["DeviceIDs"]) for one in requests]
