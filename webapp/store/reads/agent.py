"""What the agent reads: a light row per workspace for each pass, and everything about one when it works on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, select
from sqlalchemy.orm import Session

from webapp.domain import moving
from webapp.domain.gpu import Condition
from webapp.domain.gpu import Gpu as GpuValue
from webapp.domain.gpu_check import CheckState
from webapp.domain.images import pulled
from webapp.domain.plan import Wanted
from webapp.domain.workspace import Desired, Limits, Person, Phase, Service
from webapp.domain.workspace import Team as TeamValue
from webapp.store.tables import (
    AgentState,
    Gpu,
    GpuClaim,
    Host,
    Image,
    Member,
    Operation,
    PortClaim,
    SshKey,
    Team,
    TeamMember,
    Volume,
    Workspace,
    WorkspaceMount,
    WorkspaceSecret,
)

_newest_agent = select(AgentState.epoch).scalar_subquery()
# While Berth is on hold (services.hold) none may act: no step is taken, whoever was at it.
_acting_agent = select(AgentState.epoch).where(AgentState.hold.is_(None)).scalar_subquery()
# Made once: asked before every step, and building it would cost more than asking.
_LAST_WORD = select(Workspace.generation, _acting_agent).where(Workspace.id == bindparam("workspace_id"))


@dataclass(frozen=True, slots=True)
class MountWanted:
    """A team volume as asked for. Whether it may be mounted is checked again right before."""

    volume_id: str
    volume_name: str
    team: TeamValue
    host_folder: str | None
    target: str
    read_only: bool
    member_belongs: bool
    asked_read_only: bool = False       # whatever the volume allows


@dataclass(frozen=True, slots=True)
class CardHeld:
    """A card that it has a claim on, as it was last seen."""

    uuid: str
    label: str                          # domain.gpu.Gpu.label
    is_slice: bool                      # of a card in MIG mode
    is_well: bool
    fault: Mapping[str, Any] | None     # why it is not well
    simulated: bool


@dataclass(frozen=True, slots=True)
class WorkspaceInFull:
    """All that one workspace is made of, but for its secrets."""

    wanted: Wanted
    name: str
    host_id: str
    host_name: str
    owner_id: str
    person: Person
    owner_active: bool
    image_reference: str
    image_withdrawn: bool
    limits: Limits
    jupyter: bool
    mounts: tuple[MountWanted, ...]
    failures: int
    progress: Mapping[str, Any]
    started_at: datetime | None
    health: str
    note: Mapping[str, Any] | None
    reason: Mapping[str, Any] | None = None
    gpu_count: int = 0                  # cards that it is to have
    cards: tuple[CardHeld, ...] = ()    # those of them that it holds, ascending by UUID
    cuda_version: str | None = None     # of the image
    driver_version: str | None = None   # NVIDIA's, of the host
    before_change: Mapping[str, Any] | None = None      # as in the row: what it was, and may be again
    image_digest: str | None = None     # by which it is pulled; None = by its tag
    host_architecture: str | None = None


@dataclass(frozen=True, slots=True)
class SecretsInFull:
    jupyter_token: str = field(repr=False)
    host_private_key: str = field(repr=False)
    host_public_key: str


def hosts(session: Session) -> list[Host]:
    return list(session.scalars(select(Host).order_by(Host.name)))


def wanted_on(session: Session, host_id: str, instance: str) -> list[Wanted]:
    """Every workspace of the host that is not gone for good. Four statements, however many there are."""
    return _wanted_where(session, Workspace.phase != Phase.REMOVED, host_id, instance)


def wanted_of(session: Session, workspace_ids: Collection[str], host_id: str, instance: str) -> list[Wanted]:
    """The same for some of any phase; an id that is nobody's is left out."""
    return _wanted_where(session, Workspace.id.in_(workspace_ids), host_id, instance)


def _wanted_where(session: Session, which: ColumnElement[bool], host_id: str, instance: str) -> list[Wanted]:
    rows = session.scalars(select(Workspace).where(Workspace.host_id == host_id, which)).all()
    ports: dict[str, dict[Service, int]] = defaultdict(dict)
    for claim in session.scalars(select(PortClaim).where(PortClaim.host_id == host_id)):
        ports[claim.workspace_id][Service(claim.service)] = claim.port
    held: dict[str, list[str]] = defaultdict(list)
    for gpu in session.scalars(select(GpuClaim).where(GpuClaim.host_id == host_id)):
        held[gpu.workspace_id].append(gpu.gpu_uuid)
    mounts: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for mount in session.scalars(
            select(WorkspaceMount).join(Workspace, Workspace.id == WorkspaceMount.workspace_id)
            .where(Workspace.host_id == host_id, which)):
        mounts[mount.workspace_id].append((mount.volume_id, mount.read_only))
    return [_wanted(row, ports[row.id], held[row.id], mounts[row.id], instance) for row in rows]


def workspace(
    session: Session, workspace_id: str, instance: str, *, epoch: int, looking: bool = False,
) -> WorkspaceInFull | None:
    """None = there is no such workspace, or that agent may do nothing about it (any more).

    Args:  looking: it is only to be looked at, which may be done on hold too.
    """
    found = session.execute(
        select(Workspace, Member, Image, Host)
        .join(Member, Member.id == Workspace.owner_id)
        .join(Image, Image.id == Workspace.image_id)
        .join(Host, Host.id == Workspace.host_id)
        .where(Workspace.id == workspace_id, (_newest_agent if looking else _acting_agent) == epoch)
    ).one_or_none()
    if found is None:
        return None
    row, owner, image, host = found
    claims = session.scalars(select(PortClaim).where(PortClaim.workspace_id == workspace_id))
    ports = {Service(claim.service): claim.port for claim in claims}
    teams = _teams_of(session, owner.id)
    cards = _cards(session, workspace_id)
    mounts = _mounts(session, workspace_id, teams)
    mounted = [(mount.volume_id, mount.asked_read_only) for mount in mounts]
    return WorkspaceInFull(
        wanted=_wanted(row, ports, [card.uuid for card in cards], mounted, instance), name=row.name, host_id=host.id,
        host_name=host.name, owner_id=owner.id,
        person=Person(owner.username, owner.uid, teams), owner_active=owner.deactivated_at is None,
        image_reference=row.image_reference, image_withdrawn=image.withdrawn_at is not None,
        limits=Limits(row.cpu_millis, row.memory_bytes, row.shm_bytes, row.pids), jupyter=row.jupyter,
        mounts=mounts, failures=row.failures, progress=row.progress,
        started_at=row.started_at, health=row.health, reason=row.reason, note=row.note,
        gpu_count=row.gpu_count, cards=tuple(card for card in cards if card.uuid in row.gpu_uuids),
        image_digest=image.digest if row.image_reference == pulled(base=None, reference=image.reference) else None,
        host_architecture=(host.capabilities or {}).get("architecture"),
        before_change=row.before_change, cuda_version=image.cuda_version, driver_version=host.driver_version,
    )


def secrets(session: Session, workspace_id: str) -> SecretsInFull | None:
    row = session.get(WorkspaceSecret, workspace_id)
    return None if row is None else SecretsInFull(row.jupyter_token, row.host_private_key, row.host_public_key)


def authorized_keys(session: Session, member_id: str) -> tuple[str, ...]:
    keys = select(SshKey.line).where(SshKey.member_id == member_id).order_by(SshKey.created_at, SshKey.id)
    return tuple(session.scalars(keys))


def is_last_word(session: Session, workspace_id: str, *, generation: int, epoch: int) -> bool:
    """Whether that is still the newest intent for it, and that agent still the newest agent, and may act."""
    return session.execute(_LAST_WORD, {"workspace_id": workspace_id}).one_or_none() == (generation, epoch)


def is_newest_agent(session: Session, epoch: int) -> bool:
    return session.scalar(select(AgentState.epoch)) == epoch


def may_act(session: Session, epoch: int) -> bool:
    """Whether that agent is the newest, and Berth is not on hold."""
    return session.scalar(select(AgentState.epoch).where(AgentState.hold.is_(None))) == epoch


def without_secrets(session: Session, host_id: str) -> list[str]:
    """Ids of workspaces whose keys were in no backup. Rare: asked now and then."""
    return list(session.scalars(
        select(Workspace.id).outerjoin(WorkspaceSecret, WorkspaceSecret.workspace_id == Workspace.id)
        .where(Workspace.host_id == host_id, Workspace.desired != Desired.REMOVED,
               WorkspaceSecret.workspace_id.is_(None))
        .order_by(Workspace.id)))


def waiting_operations(session: Session, host_id: str) -> list[Operation]:
    """Oldest first."""
    return list(session.scalars(
        select(Operation).where(Operation.state == "waiting", Operation.host_id == host_id)
        .order_by(Operation.created_at)))


def to_be_checked(session: Session, host_id: str, epoch: int) -> list[str]:
    """Workspaces that run with cards which nobody has tried since their start, or an earlier agent did not end to."""
    rows = session.execute(
        select(Workspace.id, Workspace.gpu_check)
        .where(Workspace.host_id == host_id, Workspace.phase == Phase.RUNNING, Workspace.gpu_count > 0))
    return [
        workspace_id for workspace_id, check in rows
        if check is None or (check["state"] == CheckState.RUNNING and check["facts"].get("epoch") != epoch)
    ]


def claims(session: Session, workspace_id: str) -> frozenset[str]:
    """UUIDs of the cards that it holds now."""
    return frozenset(session.scalars(select(GpuClaim.gpu_uuid).where(GpuClaim.workspace_id == workspace_id)))


def all_claims(session: Session, host_id: str) -> frozenset[tuple[str, str]]:
    """Who holds which card of the host: workspace id, UUID."""
    held = session.execute(select(GpuClaim.workspace_id, GpuClaim.gpu_uuid).where(GpuClaim.host_id == host_id))
    return frozenset((workspace_id, uuid) for workspace_id, uuid in held)


def _cards(session: Session, workspace_id: str) -> tuple[CardHeld, ...]:
    """A claim on a card that no look has shown (its host's rows were lost) counts as one that is not well."""
    rows = session.execute(
        select(GpuClaim.gpu_uuid, Gpu)
        .outerjoin(Gpu, and_(Gpu.host_id == GpuClaim.host_id, Gpu.uuid == GpuClaim.gpu_uuid))
        .where(GpuClaim.workspace_id == workspace_id).order_by(GpuClaim.gpu_uuid))
    return tuple(
        CardHeld(uuid, uuid, False, False, None, False) if row is None else CardHeld(
            uuid=uuid, label=GpuValue(uuid, row.index, row.model).label, is_slice=row.parent_uuid is not None,
            is_well=row.condition == Condition.OK, fault=row.refusal if row.condition != Condition.OK else None,
            simulated=row.simulated)
        for uuid, row in rows
    )


def _wanted(
    row: Workspace, ports: Mapping[Service, int], held: Iterable[str], mounts: Iterable[tuple[str, bool]],
    instance: str,
) -> Wanted:
    claimed = tuple(sorted(held))
    applied = row.applied_limits
    return Wanted(
        instance=instance, workspace_id=row.id, desired=Desired(row.desired), generation=row.generation,
        attempted_generation=row.attempted_generation, observed_generation=row.observed_generation,
        phase=Phase(row.phase), revision=row.revision, container_id=row.container_id, private_image=row.private_image,
        ports=dict(ports), next_try_at=row.next_try_at, claimed=claimed,
        gpus=tuple(uuid for uuid in claimed if uuid in row.gpu_uuids),
        shape=moving.shape(row.shm_bytes, mounts), shape_unlabelled=row.shape_unlabelled,
        limits=moving.limits(Limits(row.cpu_millis, row.memory_bytes, row.shm_bytes)),
        applied_limits=(applied["container"], applied["limits"]) if applied else None,
    )


def _teams_of(session: Session, member_id: str) -> tuple[TeamValue, ...]:
    teams = session.execute(
        select(Team.name, Team.gid).join(TeamMember, TeamMember.team_id == Team.id)
        .where(TeamMember.member_id == member_id).order_by(Team.gid)
    )
    return tuple(TeamValue(name, gid) for name, gid in teams)


def _mounts(session: Session, workspace_id: str, teams: tuple[TeamValue, ...]) -> tuple[MountWanted, ...]:
    rows = session.execute(
        select(WorkspaceMount, Volume, Team)
        .join(Volume, Volume.id == WorkspaceMount.volume_id)
        .join(Team, Team.id == Volume.team_id)
        .where(WorkspaceMount.workspace_id == workspace_id).order_by(Volume.target)
    )
    return tuple(
        MountWanted(
            volume_id=volume.id, volume_name=volume.name, team=TeamValue(team.name, team.gid),
            host_folder=volume.host_folder, target=volume.target, read_only=mount.read_only or volume.read_only,
            member_belongs=TeamValue(team.name, team.gid) in teams, asked_read_only=mount.read_only,
        )
        for mount, volume, team in rows
    )
