"""What the page shows that changes a workspace: how it is now, what else it could have, and how large a move is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Desired, Phase
from webapp.store.reads import cards
from webapp.store.reads.cards import CardRow, GpusOfWorkspace
from webapp.store.reads.launch import HostFacts
from webapp.store.tables import Host, Image, Member, Operation, Team, TeamMember, Volume, Workspace, WorkspaceMount

OPEN = (OperationState.WAITING, OperationState.RUNNING)
FRESH = timedelta(minutes=1)        # a size that was asked for this short ago is good enough


@dataclass(frozen=True, slots=True)
class MountChoice:
    """A volume that it mounts, or could."""

    id: str
    name: str
    team_name: str
    target: str
    only_to_read: bool              # cannot be mounted for writing
    mounted_read_only: bool | None  # None = not mounted
    is_lost: bool                   # mounted, and its owner has left the team since


@dataclass(frozen=True, slots=True)
class Size:
    """What a move has to copy, as it was last measured."""

    is_coming: bool                 # being measured now
    asked_at: datetime
    size_bytes: int | None          # None = not measured, or not known
    layers: int | None
    free_bytes: int | None          # on its host, for images
    reason: Mapping[str, Any] | None    # why it could not be measured


@dataclass(frozen=True, slots=True)
class ChangePage:
    id: str
    name: str
    owner_id: str
    owner_username: str
    image_title: str
    image_cuda_version: str | None
    desired: Desired
    phase: Phase
    generation: int
    observed_generation: int
    revision: int                   # 0 = no container was made yet, so nothing has to be copied
    cpu_millis: int
    memory_bytes: int
    shm_bytes: int
    gpu_model: str | None           # which alone will do
    gpu_uuids: tuple[str, ...]      # those it has, or had last
    gpus: GpusOfWorkspace
    host: HostFacts
    mounts: tuple[MountChoice, ...]
    size: Size | None               # None = never asked for

    @property
    def is_to_run(self) -> bool:
        """As services.wishes.is_to_run: a change is carried out at once, not at the next start."""
        settled = self.phase in (Phase.STOPPED, Phase.FAILED) and self.observed_generation == self.generation
        return self.desired == Desired.RUNNING and not settled

    def needs_measuring(self, now: datetime) -> bool:
        """Whether the agent is to look how large it is. Without a container there is nothing to copy."""
        return self.revision > 0 and (
            self.size is None or (not self.size.is_coming and now - self.size.asked_at > FRESH))


def change_page(session: Session, workspace_id: str) -> ChangePage | None:
    """Not of a removed one. Whoever calls decides who may see it, by `owner_id`. Four statements."""
    row = session.execute(
        select(Workspace, Member, Host, Image).join(Member, Member.id == Workspace.owner_id)
        .join(Host, Host.id == Workspace.host_id).join(Image, Image.id == Workspace.image_id)
        .where(Workspace.id == workspace_id, Workspace.desired != Desired.REMOVED)).first()
    if row is None:
        return None
    workspace, owner, host, image = row
    lookup = cards.Lookup(session)
    theirs = lookup.of(workspace)
    return ChangePage(
        id=workspace.id, name=workspace.name, owner_id=owner.id, owner_username=owner.username,
        image_title=image.title, image_cuda_version=image.cuda_version, desired=Desired(workspace.desired),
        phase=Phase(workspace.phase), generation=workspace.generation,
        observed_generation=workspace.observed_generation, revision=workspace.revision,
        cpu_millis=workspace.cpu_millis, memory_bytes=workspace.memory_bytes, shm_bytes=workspace.shm_bytes,
        gpu_model=workspace.gpu_model, gpu_uuids=tuple(workspace.gpu_uuids), gpus=cards.summary(workspace, theirs),
        host=_host(host, lookup.on(host.id)), mounts=_mounts(session, workspace), size=size(session, workspace_id))


def size(session: Session, workspace_id: str) -> Size | None:
    """The newest. One statement."""
    row = session.scalars(
        select(Operation)
        .where(Operation.workspace_id == workspace_id, Operation.kind == OperationKind.WORKSPACE_SIZE)
        .order_by(Operation.created_at.desc(), Operation.id).limit(1)).first()
    if row is None:
        return None
    result = row.result or {}
    return Size(is_coming=row.state in OPEN, asked_at=row.created_at, size_bytes=result.get("size_bytes"),
                layers=result.get("layers"), free_bytes=result.get("free_bytes"), reason=row.reason)


def _host(row: Host, here: tuple[CardRow, ...]) -> HostFacts:
    can = row.capabilities or {}
    return HostFacts(
        id=row.id, name=row.name, unreachable_since=row.unreachable_since, seen_at=row.seen_at, cpus=can.get("cpus"),
        memory_bytes=can.get("memory_bytes"), gpus_seen_at=row.gpus_seen_at, driver_version=row.driver_version,
        gpu_trouble=row.gpu_trouble, cards=here)


def _mounts(session: Session, workspace: Workspace) -> tuple[MountChoice, ...]:
    rows = session.execute(
        select(Volume, Team.name, WorkspaceMount.read_only, TeamMember.member_id)
        .join(Team, Team.id == Volume.team_id)
        .outerjoin(TeamMember, and_(TeamMember.team_id == Volume.team_id, TeamMember.member_id == workspace.owner_id))
        .outerjoin(WorkspaceMount, and_(WorkspaceMount.volume_id == Volume.id,
                                        WorkspaceMount.workspace_id == workspace.id))
        .where(or_(TeamMember.member_id.is_not(None), WorkspaceMount.workspace_id.is_not(None)))
        .order_by(Volume.name))
    return tuple(
        MountChoice(row.id, row.name, team, row.target, row.read_only, read_only, is_lost=member_id is None)
        for row, team, read_only, member_id in rows)
