"""Containers as Berth asks for them (ContainerSpec) and as an engine shows them (Container, Ending)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from webapp.domain.workspace import Limits

LABEL_INSTANCE = "berth.instance"
LABEL_WORKSPACE = "berth.workspace"
LABEL_REVISION = "berth.revision"
LABEL_PORTS = "berth.ports"     # "ssh=20001,jupyter=20002": the list of a stopped container shows no ports
LABEL_GPUS = "berth.gpus"       # UUIDs with commas between, ascending: the list shows no cards at all
LABEL_SHAPE = "berth.shape"     # domain.moving.shape: what else it must be made anew for
LABEL_LIMITS = "berth.limits"   # domain.moving.limits: those that it was made with
LABEL_ORIGIN = "berth.origin"   # image of the catalogue, which a move hides behind a private one
LABEL_PREFIX = "berth."
LABEL_IGNORE = "berth.ignore"   # put on a container by hand: "gpus" = it uses no card, although it was given some
IMAGE_LABEL_PREFIX = "berth.image."     # what kind of image it is (images/README.md): true of a commit as well
LABEL_PRIVATE_IMAGE = "berth.image.private"     # repository of a workspace's private images; "" on its containers, so
                                                # that no other commit of them is taken for one


def marks_a_container(label: str) -> bool:
    """A label by which Berth knows one of its containers; no image may carry it."""
    return label.startswith(LABEL_PREFIX) and not label.startswith(IMAGE_LABEL_PREFIX)


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A named volume of the engine. The engine never copies the image's content into it (no_copy)."""

    volume: str
    target: str                 # absolute path inside
    read_only: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)   # put on the volume if this mount makes it


@dataclass(frozen=True, slots=True)
class FolderMount:
    """A folder of the host; its path was checked right before (a symlink swapped in later would be followed)."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PublishedPort:
    container_port: int         # TCP
    host_address: str           # one address, never a wildcard by accident
    host_port: int


@dataclass(frozen=True, slots=True)
class GpuAccess:
    """Exactly these cards, by UUID. None: no card at all, whatever the image says."""

    uuids: tuple[str, ...] = ()             # ascending; "GPU-…" or "MIG-…"
    mounts: tuple[FolderMount, ...] = ()    # of simulated cards only: the stand-in; the engine is asked for no device


NO_GPUS = GpuAccess()


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything Berth decides about a container; nothing else can be asked for.

    What is not here (privileged, devices, capabilities, host namespaces, other mounts) cannot be had.
    """

    name: str
    image: str                              # reference or id that the engine has
    hostname: str
    uid: int
    gid: int
    group_ids: tuple[int, ...]              # supplementary, of teams
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    mounts: tuple[VolumeMount | FolderMount, ...]
    ports: tuple[PublishedPort, ...]
    limits: Limits
    network: str
    gpus: GpuAccess = NO_GPUS
    command: tuple[str, ...] = ()           # empty: the image's own entrypoint without arguments
    working_dir: str | None = None


_IDENTITY = (LABEL_INSTANCE, LABEL_WORKSPACE, LABEL_REVISION)
_GIVEN = (LABEL_PORTS, LABEL_GPUS, LABEL_SHAPE)


def is_made_for(spec: ContainerSpec, labels: Mapping[str, str]) -> bool:
    """Whether a container with these labels, found under the spec's name, is the very one that the spec asks for.

    An agent that was held up may have made it for the intent before: on other ports, or with cards of somebody else.
    """
    is_ours = all(spec.labels.get(key) and labels.get(key) == spec.labels[key] for key in _IDENTITY)
    return is_ours and all(labels.get(key, "") == spec.labels.get(key, "") for key in _GIVEN)


class ContainerState(StrEnum):
    """Docker's words. A container that was never started is CREATED."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Container:
    """One row of the engine's list; no inspect was needed for it."""

    id: str
    name: str
    image_id: str
    state: ContainerState
    labels: Mapping[str, str]
    created_at: datetime

    @property
    def is_up(self) -> bool:
        return self.state in (ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.RESTARTING)

    @property
    def is_down(self) -> bool:
        """No process of it is left. Not said of one that is being removed: its processes may hang in a driver."""
        return self.state in (ContainerState.CREATED, ContainerState.EXITED)

    @property
    def revision(self) -> int | None:
        """The revision on its label; None when the label is missing or no number."""
        text = self.labels.get(LABEL_REVISION, "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def gpu_uuids(self) -> frozenset[str]:
        """The cards that it was made with, as its label says."""
        return frozenset(filter(None, self.labels.get(LABEL_GPUS, "").split(",")))

    @property
    def was_started(self) -> bool:
        """False while it is `created`: then its writable layer holds nothing of anybody's."""
        return self.state is not ContainerState.CREATED


@dataclass(frozen=True, slots=True)
class Making:
    """What a container was made with, read back: for a row that knows nothing of it (domain.hold)."""

    image: str                              # reference or id, as it was asked for
    uid: int | None                         # None = no number
    environment: Mapping[str, str] = field(repr=False)
    mounts: tuple[VolumeMount | FolderMount, ...]
    shm_bytes: int
    pids: int


@dataclass(frozen=True, slots=True)
class ContainerDetail:
    """What an inspect adds. Times are None where the engine says 0001-01-01."""

    container: Container
    exit_code: int | None
    oom_killed: bool
    error: str                                  # the engine's own sentence, often empty
    started_at: datetime | None
    finished_at: datetime | None
    ports: tuple[PublishedPort, ...]            # as configured, whether running or not
    gpus: tuple[str, ...] = ()                  # what it asks the engine for, ascending: UUIDs, "0", "all"
    cpu_millis: int = 0                         # as it is limited now; 0 = not
    memory_bytes: int = 0                       # the same
    making: Making | None = None
    raw: Mapping[str, object] = field(default_factory=dict, repr=False)


def is_foreign_gpu_user(labels: Mapping[str, str], instance: str) -> bool:
    """Whether a container with these labels may be at work on cards without being of this instance.

    No label takes the containers of another Berth out of sight: their images may carry any.
    """
    owner = labels.get(LABEL_INSTANCE)
    return owner != instance and bool(owner or labels.get(LABEL_IGNORE) != "gpus")


@dataclass(frozen=True, slots=True)
class GpuUser:
    """A running container that is none of this instance's and was given cards."""

    name: str
    gpus: tuple[str, ...]       # as it asked for them: UUIDs or their beginnings, indexes as text, "all"

    def has(self, uuid: str | None, index: int | None) -> bool:
        return not {"all", str(index)}.isdisjoint(self.gpus) or any(_means(asked, uuid or "") for asked in self.gpus)


def _means(asked: str, uuid: str) -> bool:
    """The container toolkit takes the beginning of a UUID for the whole of it, in capitals or not."""
    return len(asked) > len("GPU-") and uuid.lower().startswith(asked.lower())


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One thing that happened to one container. A hint, never the truth (promises.md 55)."""

    at: datetime
    action: str                 # "die", "kill", "stop", "oom", "start", …
    container_id: str
    container_name: str


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an engine knows of an image that it has."""

    id: str                     # sha256:…
    size_bytes: int
    architecture: str
    volumes: tuple[str, ...]    # VOLUME lines; such an image is refused
    labels: Mapping[str, str]
    digests: tuple[str, ...] = ()       # "repository@sha256:…", of those that it was pulled from
    created_at: datetime | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Layer:
    """What a container has written, and on how much it lies."""

    size_bytes: int
    layers: int                 # of its image; one more is made by a commit


@dataclass(frozen=True, slots=True)
class PrivateImage:
    """What was in a workspace's container when that was made anew."""

    repository: str             # domain.plan.private_repository
    reference: str              # its name; or its id, when another image has got the name
    id: str


@dataclass(frozen=True, slots=True)
class Room:
    """On the disk where the engine keeps images and containers."""

    free_bytes: int             # for the engine, which may be more than others get
    total_bytes: int


@dataclass(frozen=True, slots=True)
class PullProgress:
    """Bytes over all layers seen so far. total_bytes None = the registry has not said yet."""

    done_bytes: int
    total_bytes: int | None
    layers_done: int = 0        # also those that were there before
    layers_total: int = 0

    @property
    def percent(self) -> int | None:
        if not self.total_bytes:
            return None
        return min(100, self.done_bytes * 100 // self.total_bytes)


@dataclass(frozen=True, slots=True)
class File:
    """One entry of the archive that `Engine.put` writes. `content` None = a folder."""

    path: str                   # absolute inside the container
    mode: int
    uid: int
    gid: int
    content: bytes | None = field(default=None, repr=False)   # may be a secret: never in a log
