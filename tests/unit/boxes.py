"""Workspaces as the plan sees them: what is wanted of one, and its containers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from webapp.domain.container import Container, ContainerState
from webapp.domain.plan import Seen, Wanted, container_name, plan
from webapp.domain.workspace import Desired, Phase, Service

NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PORTS = "jupyter=20001,ssh=20000"
SHAPE, LIMITS = "shm=1 mounts=", "cpu=2000 memory=8"
OTHER_PORTS = "jupyter=20001,ssh=20777"     # before one of them was replaced
CREATED, UP, DOWN = ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED


def wanted(desired: Desired = Desired.RUNNING, phase: Phase = Phase.PULLING, **changes: Any) -> Wanted:
    """By default a launch that nobody has taken up yet."""
    values: dict[str, Any] = {
        "instance": "test1", "workspace_id": "abc", "desired": desired, "generation": 1, "attempted_generation": 0,
        "observed_generation": 0, "phase": phase, "revision": 0, "container_id": None, "private_image": None,
        "ports": {Service.SSH: 20000, Service.JUPYTER: 20001}, "next_try_at": None,
        "shape": SHAPE, "limits": LIMITS,
    }
    return Wanted(**values | changes)


def recorded(desired: Desired = Desired.RUNNING, phase: Phase = Phase.RUNNING, **changes: Any) -> Wanted:
    """The intent was answered, and container r1 is on record."""
    values = {"attempted_generation": 1, "observed_generation": 1, "revision": 1, "container_id": "id-r1"}
    return wanted(desired, phase, **values | changes)


def box(state: ContainerState, revision: int = 1, ports: str = PORTS, gpus: str = "", *, shape: str = SHAPE,
        limits: str = LIMITS, **changes: Any) -> Container:
    labels = {"berth.instance": "test1", "berth.workspace": "abc", "berth.revision": str(revision),
              "berth.ports": ports, "berth.gpus": gpus, "berth.shape": shape, "berth.limits": limits}
    container = Container(id=f"id-r{revision}", name=container_name("test1", "abc", revision), image_id="sha256:1",
                          state=state, labels=labels, created_at=NOW)
    return replace(container, **changes)


def unlabelled(container: Container, *labels: str) -> Container:
    """As an older Berth made it."""
    return replace(container, labels={key: value for key, value in container.labels.items() if key not in labels})


def r(revision: int) -> str:
    return container_name("test1", "abc", revision)


def step(want: Wanted, *containers: Container, image_ready: bool = False, is_weighed: bool = True) -> Any:
    newest_first = tuple(sorted(containers, key=lambda one: one.revision or 0, reverse=True))
    return plan(want, Seen(newest_first, image_ready, is_weighed), now=NOW)


ASKED = {"generation": 2}                   # somebody asked since: attempted and observed are of the one before
RETRY = {"next_try_at": NOW - SECOND}
HELD = {"gpus": ("GPU-a", "GPU-b"), "claimed": ("GPU-a", "GPU-b")}
BOTH = "GPU-a,GPU-b"
GONE = [ContainerState.REMOVING, ContainerState.DEAD]


def card_box(state: ContainerState, revision: int = 1, gpus: str = BOTH) -> Container:
    return box(state, revision, gpus=gpus)
