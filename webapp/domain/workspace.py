"""A workspace: what is wanted of it, what phase it is in, and the words for both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Desired(StrEnum):
    """What its owner wants. Written by services only."""

    RUNNING = "running"
    STOPPED = "stopped"
    REMOVED = "removed"


class Phase(StrEnum):
    """What was last seen of it. Written by the agent only (the first value by the launch that inserts the row)."""

    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    MOVING = "moving"
    REMOVING = "removing"
    REMOVED = "removed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Health(StrEnum):
    OK = "ok"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"


class Service(StrEnum):
    """What a workspace publishes; each has one port claim."""

    SSH = "ssh"
    JUPYTER = "jupyter"


CONTAINER_PORTS = {Service.SSH: 2222, Service.JUPYTER: 8888}

RESTING = frozenset({Phase.STOPPED, Phase.FAILED, Phase.REMOVED})
BUSY = frozenset({Phase.PULLING, Phase.STARTING, Phase.STOPPING, Phase.MOVING, Phase.REMOVING})


class StepName(StrEnum):
    """Steps that the page shows while a workspace comes up, in this order."""

    KEPT = "kept"       # of a move alone: what is in its container was kept; it needs no image from elsewhere
    IMAGE = "image"
    CREATED = "created"
    SSH = "ssh"
    GPUS = "gpus"
    JUPYTER = "jupyter"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one workspace may use at most. Swap is never more than memory; see engines/docker/body.py."""

    cpu_millis: int      # thousandths of a core, ≥ 100
    memory_bytes: int    # bytes, ≥ 256 MiB
    shm_bytes: int       # bytes of /dev/shm; counted inside memory by the kernel
    pids: int = 4096     # processes and threads together


@dataclass(frozen=True, slots=True)
class Person:
    """Who one is inside a workspace."""

    username: str
    uid: int                    # from 10000; also the gid of the person's own group
    teams: tuple[Team, ...] = ()


@dataclass(frozen=True, slots=True)
class Team:
    name: str
    gid: int                    # from 20000
