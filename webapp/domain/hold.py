"""The hold after a restore: where what runs differs from what the rows say, and what may be done about it. Pure.

While it lasts the agent looks and does nothing else. An administrator decides about each difference; the release makes
the rows say what was decided (services.hold_release), and from then on the agent goes by them as ever.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from webapp.domain import moving
from webapp.domain.container import (
    LABEL_INSTANCE,
    LABEL_ORIGIN,
    LABEL_SHAPE,
    LABEL_WORKSPACE,
    Container,
    ContainerDetail,
    Making,
    VolumeMount,
)
from webapp.domain.plan import Wanted, container_name, own_containers, private_repository
from webapp.domain.workspace import CONTAINER_PORTS, Desired, Limits, Phase


class FindingKind(StrEnum):
    """In the order in which they are told: what harms others first."""

    CARDS = "cards"                             # up, with other cards than its row holds
    RUNS_BUT_STOPPED = "runs_but_stopped"       # up, and its row wants it down
    UNKNOWN_CONTAINER = "unknown_container"     # a container of this instance, and no row, or one that was removed
    MOVED = "moved"                             # another container, other ports, limits or mounts than its row says
    DOWN_BUT_WANTED = "down_but_wanted"         # there, down, and its row wants it up
    GONE = "gone"                               # its row has or wants a container, and there is none


class Decision(StrEnum):
    ADOPT = "adopt"         # what is there is right: the row follows
    KEEP = "keep"           # the row is right: the agent goes on from it
    FORGET = "forget"       # let go: the row counts as removed, a container is left alone for ever


class Difference(StrEnum):
    """In what a container differs from its row."""

    CONTAINER = "container"     # it is another one than was recorded
    PORTS = "ports"
    GPUS = "gpus"
    SHAPE = "shape"             # shared memory or mounts
    LIMITS = "limits"           # CPU or memory


@dataclass(frozen=True, slots=True)
class Truth:
    """The container that counts, as an inspect shows it: all that a row can take over from it. Plain JSON."""

    container_id: str
    container_name: str
    revision: int
    is_up: bool
    state: str                          # Docker's word
    since: str | None                   # ISO 8601: when it was started, or had ended
    image: str                          # it was made from, as it was asked for
    image_id: str
    origin: str                         # image of the catalogue; "" where no label says
    is_private: bool                    # made from what a move had kept
    name: str                           # of the workspace; "" = it does not say
    username: str                       # the same
    uid: int | None
    home_of: str | None                 # member whose home is mounted
    jupyter: bool
    ports: Mapping[str, int]            # service → port of the host
    gpus: list[str]                     # UUIDs, ascending
    cpu_millis: int                     # as limited now; 0 = not told
    memory_bytes: int
    shm_bytes: int
    pids: int
    shape: str | None                   # domain.moving.shape; None = made before there was that label
    volumes: list[list[Any]]            # [volume id, read only] of team volumes
    folders: list[list[Any]]            # [folder of the host, read only], where no label names their volumes

    @property
    def tells_limits(self) -> bool:
        return 0 not in (self.cpu_millis, self.memory_bytes)

    @property
    def limits(self) -> str:
        return moving.limits(Limits(self.cpu_millis, self.memory_bytes, self.shm_bytes))


@dataclass(frozen=True, slots=True)
class Finding:
    """`facts`: "is" = Truth or None, "was" = what the row says or None, "differs" = Differences. In a row that was
    written down also "decided_before": the decision that was taken before something changed.
    """

    kind: FindingKind
    workspace_id: str
    facts: Mapping[str, Any]

    @property
    def mark(self) -> str:
        return mark(self.kind, self.facts)


@dataclass(frozen=True, slots=True)
class Present:
    """Ids of workspaces that have a container on a host, and of those one that is up."""

    there: frozenset[str]
    up: frozenset[str]


_ORDER = {kind: rank for rank, kind in enumerate(FindingKind)}


def in_order(kind: str) -> int:
    """Where findings of a kind stand among others."""
    return _ORDER[FindingKind(kind)]


def mark(kind: str, facts: Mapping[str, Any]) -> str:
    """Another one as soon as anything about a finding is different: a decision holds for what was seen."""
    seen = {name: facts.get(name) for name in ("is", "was", "differs")}
    text = json.dumps([str(kind), seen], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def truth_in(facts: Mapping[str, Any]) -> Truth | None:
    """Out of a finding's facts; None = there is no container."""
    shown = facts.get("is")
    return Truth(**shown) if shown else None


def compare(
    rows: Sequence[Wanted], shown: Sequence[ContainerDetail], *, instance: str, asked: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Every difference, one a workspace at most, in the order of FindingKind.

    Args:  rows: of one host, those that are removed too where they have a container.   shown: all containers of this
           instance on it.   asked: ids of workspaces for which somebody has wished something since the hold began:
           that they are not yet as wished is no difference.
    """
    listed = tuple(detail.container for detail in shown)
    details = {detail.container.id: detail for detail in shown}
    found: list[Finding | None] = []
    for row in rows:
        own = own_containers(row, listed)
        truth = _truth(instance, [details[one.id] for one in own])
        found.append(_of_row(row, truth, row.workspace_id in asked))
    known = {row.workspace_id for row in rows}
    for workspace_id in sorted({one.labels.get(LABEL_WORKSPACE, "") for one in listed} - known):
        own_of_nobody = [details[one.id] for one in listed if _is_named_for(instance, workspace_id, one)]
        truth = _truth(instance, sorted(own_of_nobody, key=lambda one: one.container.revision or 0, reverse=True))
        found.append(None if truth is None else _finding(FindingKind.UNKNOWN_CONTAINER, workspace_id, truth, None))
    findings = [finding for finding in found if finding is not None]
    return tuple(sorted(findings, key=lambda finding: (_ORDER[finding.kind], finding.workspace_id)))


def present(instance: str, listed: Sequence[Container]) -> Present:
    named = [(one.labels.get(LABEL_WORKSPACE, ""), one) for one in listed]
    ours = [(id_, one) for id_, one in named if _is_named_for(instance, id_, one)]
    return Present(frozenset(id_ for id_, _ in ours), frozenset(id_ for id_, one in ours if one.is_up))


def choices(kind: str, facts: Mapping[str, Any]) -> tuple[Decision, ...]:
    """What may be decided; whether an unknown container can be adopted is the services' to say."""
    truth = truth_in(facts)
    match kind:
        case FindingKind.UNKNOWN_CONTAINER:
            return (Decision.ADOPT, Decision.FORGET)
        case FindingKind.GONE:
            return (Decision.KEEP, Decision.FORGET)
        case _ if truth is not None and truth.is_up:
            return (Decision.ADOPT, Decision.KEEP)
        case _:
            return (Decision.ADOPT, Decision.KEEP, Decision.FORGET)


def by_default(kind: str) -> Decision:
    """What "keep all the rest" means: of a container that no row knows, that it is left alone."""
    return Decision.FORGET if kind == FindingKind.UNKNOWN_CONTAINER else Decision.KEEP


# -- one workspace


def _of_row(row: Wanted, truth: Truth | None, asked: bool) -> Finding | None:
    is_up = truth is not None and truth.is_up
    if row.phase is Phase.REMOVED:
        return None if truth is None else _finding(FindingKind.UNKNOWN_CONTAINER, row.workspace_id, truth, row)
    if not _is_to_run(row):
        if is_up:
            return None if asked else _finding(FindingKind.RUNS_BUT_STOPPED, row.workspace_id, truth, row)
        return None if row.desired is Desired.REMOVED else _of_resting(row, truth)
    if truth is None:
        is_launch = asked and row.container_id is None
        return None if is_launch else _finding(FindingKind.GONE, row.workspace_id, None, row)
    if not is_up:
        return None if asked else _finding(FindingKind.DOWN_BUT_WANTED, row.workspace_id, truth, row)
    differs = _differences(row, truth)
    if not differs:
        return None
    kind = FindingKind.CARDS if Difference.GPUS in differs else FindingKind.MOVED
    return _finding(kind, row.workspace_id, truth, row, differs)


def _of_resting(row: Wanted, truth: Truth | None) -> Finding | None:
    """Stopped or failed, and down. Ports, cards and mounts are compared at its next start; limits are in no label once
    they were changed while it ran.
    """
    if row.container_id is None:
        return None
    if truth is None:
        return _finding(FindingKind.GONE, row.workspace_id, None, row)
    seen = (Difference.CONTAINER, Difference.LIMITS)
    differs = [difference for difference in _differences(row, truth) if difference in seen]
    return _finding(FindingKind.MOVED, row.workspace_id, truth, row, differs) if differs else None


def _is_to_run(row: Wanted) -> bool:
    return row.desired is Desired.RUNNING and not row.is_settled


def _differences(row: Wanted, truth: Truth) -> list[Difference]:
    shape = row.shape_unlabelled if truth.shape is None else truth.shape
    differs = {
        Difference.CONTAINER: row.container_id not in (None, truth.container_id),
        Difference.PORTS: dict(truth.ports) != {str(service): port for service, port in row.ports.items()},
        Difference.GPUS: truth.gpus != list(row.gpus),
        Difference.SHAPE: shape not in (row.shape, None),
        Difference.LIMITS: truth.tells_limits and truth.limits != row.limits,
    }
    return [difference for difference, is_so in differs.items() if is_so]


def _finding(
    kind: FindingKind, workspace_id: str, truth: Truth | None, row: Wanted | None, differs: Sequence[Difference] = (),
) -> Finding:
    was = None if row is None else {
        "desired": str(row.desired), "phase": str(row.phase), "is_to_run": _is_to_run(row), "revision": row.revision,
        "container_id": row.container_id, "ports": {str(service): port for service, port in sorted(row.ports.items())},
        "gpus": list(row.gpus), "limits": row.limits, "shape": row.shape,
    }
    facts = {"is": None if truth is None else asdict(truth), "was": was, "differs": [str(each) for each in differs]}
    return Finding(kind, workspace_id, facts)


# -- one container


def _truth(instance: str, details: Sequence[ContainerDetail]) -> Truth | None:
    """`details`: of one workspace, newest first. What is up counts, then what ever ran."""
    up = (detail for detail in details if detail.container.is_up)
    ran = (detail for detail in details if detail.container.was_started)
    detail = next(up, None) or next(ran, None) or next(iter(details), None)
    return None if detail is None else _as_truth(instance, detail)


def _as_truth(instance: str, detail: ContainerDetail) -> Truth:
    container = detail.container
    making = detail.making or Making("", None, {}, (), 0, 0)
    volumes, folders = _mounts(instance, container, making)
    since = detail.started_at if container.is_up else detail.finished_at
    home = f"berth-{instance}-home-"
    homes = (mount.volume.removeprefix(home) for mount in making.mounts
             if isinstance(mount, VolumeMount) and mount.volume.startswith(home))
    repository = private_repository(instance, container.labels.get(LABEL_WORKSPACE, ""))
    return Truth(
        container_id=container.id, container_name=container.name, revision=container.revision or 0,
        is_up=container.is_up, state=str(container.state), since=since.isoformat() if since else None,
        image=making.image, image_id=container.image_id, origin=container.labels.get(LABEL_ORIGIN, ""),
        is_private=making.image.startswith(f"{repository}:"), name=making.environment.get("BERTH_WORKSPACE", ""),
        username=making.environment.get("USER", ""), uid=making.uid, home_of=next(homes, None),
        jupyter=making.environment.get("BERTH_JUPYTER") == "1", ports=_ports(detail),
        gpus=sorted(container.gpu_uuids | _uuids(detail)), cpu_millis=detail.cpu_millis,
        memory_bytes=detail.memory_bytes, shm_bytes=making.shm_bytes, pids=making.pids,
        shape=container.labels.get(LABEL_SHAPE), volumes=volumes, folders=folders,
    )


def _ports(detail: ContainerDetail) -> dict[str, int]:
    services = {port: str(service) for service, port in CONTAINER_PORTS.items()}
    return {services[port.container_port]: port.host_port
            for port in sorted(detail.ports, key=lambda port: port.container_port) if port.container_port in services}


def _uuids(detail: ContainerDetail) -> set[str]:
    """What the engine was asked for, where that is no index and not "all"."""
    return {name for name in detail.gpus if name.startswith(("GPU-", "MIG-"))}


def _mounts(instance: str, container: Container, making: Making) -> tuple[list[list[Any]], list[list[Any]]]:
    """Team volumes by id, as the label says; of a container from before that label named volumes, and folders."""
    shape = container.labels.get(LABEL_SHAPE)
    if shape is not None:
        said = shape.partition("mounts=")[2]
        return [[id_, way == "ro"] for id_, _, way in (each.partition(":") for each in said.split(",") if each)], []
    prefix = f"berth-{instance}-v-"
    volumes = [[mount.volume.removeprefix(prefix), mount.read_only] for mount in making.mounts
               if isinstance(mount, VolumeMount) and mount.volume.startswith(prefix)]
    folders = [[mount.source, mount.read_only] for mount in making.mounts if not isinstance(mount, VolumeMount)]
    return sorted(volumes), sorted(folders)


def _is_named_for(instance: str, workspace_id: str, container: Container) -> bool:
    """Labels alone make nothing ours: an image may carry them (domain.plan.own_containers)."""
    labels, revision = container.labels, container.revision
    is_labelled = labels.get(LABEL_INSTANCE) == instance and labels.get(LABEL_WORKSPACE) == workspace_id
    return is_labelled and bool(workspace_id) and revision is not None and (
        container.name == container_name(instance, workspace_id, revision))
