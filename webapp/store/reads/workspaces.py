"""What pages show of workspaces. Never a token or a private key: of the secrets only the public host key is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, exists, select
from sqlalchemy.orm import Session

from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.sshkeys import parse_public_keys
from webapp.domain.workspace import Desired, Health, Phase, Service
from webapp.store.reads import cards
from webapp.store.reads.cards import CardRow, GpusOfWorkspace
from webapp.store.tables import (
    Host,
    Image,
    Member,
    Operation,
    PortClaim,
    SshKey,
    Team,
    Volume,
    Workspace,
    WorkspaceMount,
    WorkspaceSecret,
)


@dataclass(frozen=True, slots=True)
class WorkspaceCard:
    """One workspace in a list."""

    id: str
    name: str
    owner_id: str
    owner_username: str
    host_name: str
    host_unreachable_since: datetime | None
    image_title: str
    desired: Desired
    phase: Phase
    phase_at: datetime
    health: Health
    reason: dict[str, Any] | None       # {"code", "facts"}: domain.reasons
    note: dict[str, Any] | None         # the same
    generation: int
    observed_generation: int
    progress: dict[str, Any]            # domain.progress
    next_try_at: datetime | None
    cpu_millis: int
    memory_bytes: int
    shm_bytes: int
    jupyter: bool
    gpus: GpusOfWorkspace
    ssh_port: int | None                # None once it is removed
    jupyter_port: int | None
    created_at: datetime
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class MountRow:
    volume_name: str
    team_name: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class LogsRow:
    """The newest request for log lines."""

    operation_id: str
    state: OperationState
    text: str | None
    truncated: bool
    reason: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class SaveRow:
    """The newest request to save it as an image."""

    operation_id: str
    state: OperationState
    image_id: str | None                # None: it came to nothing, and its entry in the catalogue is gone
    image_title: str | None
    progress: dict[str, Any]
    reason: dict[str, Any] | None
    ends_soon: bool                     # somebody has cancelled it
    ended_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class WorkspacePage:
    """All that one workspace's own page shows."""

    card: WorkspaceCard
    owner_uid: int
    owner_has_keys: bool
    image_reference: str
    revision: int
    failures: int
    log_tail: str | None
    host_public_key: str | None         # "ssh-ed25519 AAAA…"; None once it is removed
    host_fingerprint: str | None        # "SHA256:…", as ssh prints it
    mounts: tuple[MountRow, ...]
    logs: LogsRow | None
    save: SaveRow | None
    cards: tuple[CardRow, ...]          # those that it holds, and those that it had last
    forgotten_gpus: tuple[str, ...]     # UUIDs of those that it had last and that no longer exist
    gpu_check: Mapping[str, Any] | None  # domain.gpu_check.Finding.as_json


def list_cards(session: Session, owner_id: str | None) -> tuple[WorkspaceCard, ...]:
    """Not yet gone, newest first; None = of everybody, for admins. Three statements."""
    wanted = _with_names().where(Workspace.phase != Phase.REMOVED)
    claims = select(PortClaim)
    if owner_id is not None:
        wanted = wanted.where(Workspace.owner_id == owner_id)
        claims = claims.join(Workspace, Workspace.id == PortClaim.workspace_id).where(Workspace.owner_id == owner_id)
    rows = session.execute(wanted.order_by(Workspace.created_at.desc(), Workspace.id)).all()
    ports = _ports(session.scalars(claims))
    lookup = cards.Lookup(session)
    return tuple(_card(*row, ports[row[0].id], lookup.of(row[0])) for row in rows)


def page(session: Session, workspace_id: str) -> WorkspacePage | None:
    """A removed one too. Whoever calls decides who may see it, by `card.owner_id`. Seven statements."""
    row = session.execute(_with_names().where(Workspace.id == workspace_id)).first()
    if row is None:
        return None
    workspace, owner = row[0], row[1]
    ports = _ports(session.scalars(select(PortClaim).where(PortClaim.workspace_id == workspace_id)))
    public_key, has_keys = session.execute(select(
        select(WorkspaceSecret.host_public_key).where(WorkspaceSecret.workspace_id == workspace_id).scalar_subquery(),
        exists().where(SshKey.member_id == owner.id),
    )).one()
    theirs = cards.of_workspace(session, workspace)
    return WorkspacePage(
        card=_card(*row, ports[workspace_id], theirs), owner_uid=owner.uid, owner_has_keys=has_keys,
        image_reference=workspace.image_reference, revision=workspace.revision, failures=workspace.failures,
        log_tail=workspace.log_tail, host_public_key=public_key,
        host_fingerprint=parse_public_keys(public_key)[0].fingerprint if public_key else None,
        mounts=_mounts(session, workspace_id), logs=_logs(session, workspace_id),
        save=_save(session, workspace_id), cards=theirs,
        forgotten_gpus=tuple(sorted(set(workspace.gpu_uuids) - {card.uuid for card in theirs})),
        gpu_check=workspace.gpu_check,
    )


def _with_names() -> Select[Workspace, Member, Host, Image]:
    return (
        select(Workspace, Member, Host, Image)
        .join(Member, Member.id == Workspace.owner_id)
        .join(Host, Host.id == Workspace.host_id)
        .join(Image, Image.id == Workspace.image_id)
    )


def _ports(claims: Iterable[PortClaim]) -> defaultdict[str, dict[str, int]]:
    ports: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for claim in claims:
        ports[claim.workspace_id][claim.service] = claim.port
    return ports


def _card(row: Workspace, owner: Member, host: Host, image: Image, ports: dict[str, int],
          theirs: Iterable[CardRow]) -> WorkspaceCard:
    return WorkspaceCard(
        id=row.id, name=row.name, owner_id=owner.id, owner_username=owner.username, host_name=host.name,
        host_unreachable_since=host.unreachable_since, image_title=image.title, desired=Desired(row.desired),
        phase=Phase(row.phase), phase_at=row.phase_at, health=Health(row.health), reason=row.reason, note=row.note,
        generation=row.generation, observed_generation=row.observed_generation, progress=row.progress,
        next_try_at=row.next_try_at, cpu_millis=row.cpu_millis, memory_bytes=row.memory_bytes,
        shm_bytes=row.shm_bytes, jupyter=row.jupyter, gpus=cards.summary(row, theirs), ssh_port=ports.get(Service.SSH),
        jupyter_port=ports.get(Service.JUPYTER), created_at=row.created_at, started_at=row.started_at,
    )


def _mounts(session: Session, workspace_id: str) -> tuple[MountRow, ...]:
    rows = session.execute(
        select(Volume.name, Team.name, Volume.target, WorkspaceMount.read_only)
        .join(Volume, Volume.id == WorkspaceMount.volume_id).join(Team, Team.id == Volume.team_id)
        .where(WorkspaceMount.workspace_id == workspace_id).order_by(Volume.target))
    return tuple(MountRow(*row) for row in rows)


def _logs(session: Session, workspace_id: str) -> LogsRow | None:
    row = session.scalars(
        select(Operation)
        .where(Operation.workspace_id == workspace_id, Operation.kind == OperationKind.WORKSPACE_LOGS)
        .order_by(Operation.created_at.desc(), Operation.id).limit(1)).first()
    if row is None:
        return None
    result = row.result or {}
    return LogsRow(
        operation_id=row.id, state=OperationState(row.state), text=result.get("text"),
        truncated=bool(result.get("truncated")), reason=row.reason, created_at=row.created_at, ended_at=row.ended_at,
    )


def _save(session: Session, workspace_id: str) -> SaveRow | None:
    row = session.execute(
        select(Operation, Image.title).outerjoin(Image, Image.id == Operation.image_id)
        .where(Operation.workspace_id == workspace_id, Operation.kind == OperationKind.WORKSPACE_SAVE)
        .order_by(Operation.created_at.desc(), Operation.id).limit(1)).first()
    if row is None:
        return None
    operation, title = row
    return SaveRow(
        operation_id=operation.id, state=OperationState(operation.state), image_id=operation.image_id,
        image_title=title, progress=operation.progress or {}, reason=operation.reason,
        ends_soon=operation.cancel_asked_at is not None, ended_at=operation.ended_at)
