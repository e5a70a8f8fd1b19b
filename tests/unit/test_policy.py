"""The last look before a container is made or started: the database may hold what web should never have written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from webapp.agent.context import HostContext
from webapp.agent.policy import refuse_image, refuse_start, refuse_workspace
from webapp.domain.container import ImageFacts
from webapp.domain.house import HouseRules
from webapp.domain.plan import Wanted
from webapp.domain.ports import PortRange
from webapp.domain.reasons import WORDINGS, Reason
from webapp.domain.workspace import Desired, Health, Limits, Person, Phase, Team
from webapp.errors import fill
from webapp.store.reads.agent import MountWanted, WorkspaceInFull

GIB = 2**30
HOUSE = HouseRules(PortRange(20000, 20099), default_cpu_millis=2000, max_cpu_millis=8000, default_memory_bytes=GIB,
                   max_memory_bytes=32 * GIB)
CONTEXT = HostContext(
    host_id="h", host_name="gpu1", engine=cast(Any, None), store=cast(Any, None), instance="test1", epoch=1,
    house=HOUSE, volume_roots=(Path("/srv/none"),), bind_address="127.0.0.1")


def workspace(*, revision: int = 0, **changes: Any) -> WorkspaceInFull:
    wanted = Wanted(
        instance="test1", workspace_id="abc", desired=Desired.RUNNING, generation=1, attempted_generation=1,
        observed_generation=0, phase=Phase.PULLING, revision=revision, container_id=None, private_image=None,
        ports={}, next_try_at=None)
    sound = WorkspaceInFull(
        wanted=wanted, name="run-1", host_id="h", host_name="gpu1", owner_id="m1", person=Person("alice", 10001),
        owner_active=True, image_reference="berth/workspace:1", image_withdrawn=False,
        limits=Limits(2000, 8 * GIB, 2 * GIB), jupyter=True, mounts=(), failures=0, progress={}, started_at=None,
        health=Health.UNKNOWN, note=None)
    return replace(sound, **changes)


def mount(**changes: Any) -> MountWanted:
    values = {"volume_id": "v1", "volume_name": "imagenet", "team": Team("vision", 20000), "host_folder": None,
              "target": "/data/imagenet", "read_only": False, "member_belongs": True}
    return MountWanted(**values | changes)


def code(reason: Reason | None) -> str | None:
    if reason is not None:
        fill(WORDINGS[reason.code].title, reason.facts)     # every fact that its sentence wants is there
    return reason.code if reason else None


def test_sound_workspace_may_be_made_and_started() -> None:
    assert refuse_workspace(workspace(mounts=(mount(),)), CONTEXT) is None


@pytest.mark.parametrize(("limits", "which"), [
    (Limits(99, 8 * GIB, GIB), "CPU"),
    (Limits(0, 8 * GIB, GIB), "CPU"),               # 0 = unlimited for the engine
    (Limits(-1, 8 * GIB, GIB), "CPU"),
    (Limits(8001, 8 * GIB, GIB), "CPU"),
    (Limits(2000, 0, 0), "memory"),                 # 0 = unlimited for the engine
    (Limits(2000, 256 * 2**20 - 1, 0), "memory"),
    (Limits(2000, 32 * GIB + 1, GIB), "memory"),
    (Limits(2000, GIB, GIB + 1), "memory"),         # /dev/shm is counted inside memory
])
def test_limit_beyond_the_house_is_refused(limits: Limits, which: str) -> None:
    reason = refuse_workspace(workspace(limits=limits), CONTEXT)
    assert reason is not None and (reason.code, reason.facts["limit"]) == ("limit_refused", which)


@pytest.mark.parametrize("limits", [Limits(100, 256 * 2**20, 0), Limits(8000, 32 * GIB, 32 * GIB)])
def test_limit_at_the_edge_is_allowed(limits: Limits) -> None:
    assert refuse_workspace(workspace(limits=limits), CONTEXT) is None


def test_limits_that_were_lowered_later_do_not_stop_a_restart() -> None:
    assert refuse_start(workspace(revision=1, limits=Limits(16000, 64 * GIB, GIB)), CONTEXT) is None


@pytest.mark.parametrize("refuse", [refuse_workspace, refuse_start])
class TestMakeAndStart:
    def test_account_that_is_not_active(self, refuse: Any) -> None:
        assert code(refuse(workspace(owner_active=False), CONTEXT)) == "owner_inactive"

    def test_image_withdrawn_before_it_was_ever_up(self, refuse: Any) -> None:
        assert code(refuse(workspace(image_withdrawn=True), CONTEXT)) == "image_withdrawn"

    def test_image_withdrawn_later_does_not_matter(self, refuse: Any) -> None:
        assert refuse(workspace(image_withdrawn=True, revision=1), CONTEXT) is None

    def test_volume_of_a_team_that_its_owner_left(self, refuse: Any) -> None:
        assert code(refuse(workspace(mounts=(mount(), mount(member_belongs=False))), CONTEXT)) == "volume_refused"

    def test_folder_that_may_not_be_mounted_any_more(self, refuse: Any) -> None:
        assert code(refuse(workspace(mounts=(mount(host_folder="/etc/ssh"),)), CONTEXT)) == "volume_refused"


IMAGE = ImageFacts("sha256:1", 1, "amd64", (), {"berth.image.contract": "1"})


def test_workspace_image_is_accepted() -> None:
    assert refuse_image("berth/workspace:1", IMAGE) is None


def test_image_with_volume_is_refused_and_names_them() -> None:
    reason = refuse_image("berth/workspace:1", replace(IMAGE, volumes=("/data", "/var/lib/x")))
    assert code(reason) == "image_has_volumes"
    assert reason is not None and reason.facts["volumes"] == "/data, /var/lib/x"


@pytest.mark.parametrize("labels", [{}, {"maintainer": "x"}, {"berth.image.contract": ""}])
def test_image_that_keeps_no_contract_is_refused(labels: dict[str, str]) -> None:
    assert code(refuse_image("ubuntu:24.04", replace(IMAGE, labels=labels))) == "image_not_workspace"
