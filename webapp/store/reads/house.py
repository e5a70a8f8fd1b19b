"""What admins see of the house: the agent's sign of life, hosts, images, volumes, and how far a new house is set up."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from webapp.domain.workspace import Desired, Phase
from webapp.store.reads import cards
from webapp.store.reads.cards import CardRow
from webapp.store.reads.hold import Hold, as_hold
from webapp.store.tables import (
    AgentState,
    Host,
    HostImage,
    Image,
    Member,
    PortClaim,
    Team,
    Volume,
    Workspace,
    WorkspaceMount,
)


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """Of the agent. None = it has never run."""

    epoch: int
    started_at: datetime | None
    alive_at: datetime | None
    hold: Hold | None = None                # None = it may act


@dataclass(frozen=True, slots=True)
class HostRow:
    id: str
    name: str
    engine_url: str
    seen_at: datetime | None
    unreachable_since: datetime | None
    trouble: str | None
    capabilities: dict[str, Any] | None     # engines.Capabilities
    findings: tuple[str, ...]               # codes: what is wrong with its set-up
    workspaces: int                         # not yet gone
    wanted_running: int
    ports_claimed: int
    gpus_seen_at: datetime | None           # None = no agent has looked for cards yet
    driver_version: str | None
    cuda_version: str | None                # the newest that the driver knows
    gpu_trouble: dict[str, Any] | None      # {"code", "facts"}: why cards could not be read, or not all of them
    cards: tuple[CardRow, ...]
    images: tuple[tuple[str, str, int], ...]    # of the catalogue, that it has: (id, title, bytes), by title


@dataclass(frozen=True, slots=True)
class ImageOnHost:
    host_id: str
    host_name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageRow:
    id: str
    title: str
    base: str | None
    dockerfile: str | None
    reference: str | None                   # None = not prepared
    digest: str | None                      # of what a registry has of it
    cuda_version: str | None
    architecture: str | None
    size_bytes: int | None
    has_jupyter: bool
    withdrawn_at: datetime | None
    owner_id: str | None                    # who saved it
    owner_name: str | None
    team_id: str | None                     # for whom
    team_name: str | None
    host_id: str | None                     # the only host that has it
    saved_from: str | None                  # id of a workspace
    workspaces: int                         # made from it and not yet gone
    hosts: tuple[ImageOnHost, ...]          # that have it, as the agent saw last


@dataclass(frozen=True, slots=True)
class VolumeRow:
    id: str
    name: str
    team_name: str
    host_folder: str | None                 # None = a named volume of the engine
    target: str
    read_only: bool
    workspaces: int                         # that mount it and are not yet gone


@dataclass(frozen=True, slots=True)
class Checklist:
    """What a new house still needs. One statement; counts of what is in use."""

    agent_alive_at: datetime | None
    hosts_answering: int
    images_ready: int
    members: int
    launches: int                           # ever


def sign_of_life(session: Session) -> SignOfLife | None:
    state = session.get(AgentState, 1)
    if state is None:
        return None
    return SignOfLife(state.epoch, state.started_at, state.alive_at, as_hold(state.hold) if state.hold else None)


def hosts(session: Session) -> tuple[HostRow, ...]:
    """By name, with their cards and images. Three statements."""
    by_host, images_on = cards.by_host(session), _images_on(session)
    here = select(func.count()).where(Workspace.host_id == Host.id, Workspace.phase != Phase.REMOVED)
    wanted = here.where(Workspace.desired == Desired.RUNNING)
    claimed = select(func.count()).where(PortClaim.host_id == Host.id)
    rows = session.execute(
        select(Host, here.scalar_subquery(), wanted.scalar_subquery(), claimed.scalar_subquery())
        .order_by(Host.name))
    return tuple(
        HostRow(
            id=row.id, name=row.name, engine_url=row.engine_url, seen_at=row.seen_at,
            unreachable_since=row.unreachable_since, trouble=row.trouble, capabilities=row.capabilities,
            findings=tuple((row.capabilities or {}).get("findings", ())), workspaces=n_here, wanted_running=n_wanted,
            ports_claimed=n_ports, gpus_seen_at=row.gpus_seen_at, driver_version=row.driver_version,
            cuda_version=row.cuda_version, gpu_trouble=row.gpu_trouble, cards=by_host.get(row.id, ()),
            images=tuple(images_on[row.id]),
        )
        for row, n_here, n_wanted, n_ports in rows
    )


def images(session: Session) -> tuple[ImageRow, ...]:
    """Offered ones first, in their order; without those that were deleted. Two statements."""
    made = select(func.count()).where(
        Workspace.image_id == Image.id, Workspace.phase != Phase.REMOVED).scalar_subquery()
    rows = session.execute(
        select(Image, Member.display_name, Team.name, made)
        .outerjoin(Member, Member.id == Image.owner_id).outerjoin(Team, Team.id == Image.team_id)
        .where(Image.deleted_at.is_(None))
        .order_by(Image.withdrawn_at.is_not(None), Image.position, Image.title))
    where = defaultdict(list)
    for found, name in session.execute(select(HostImage, Host.name).join(Host).order_by(Host.name)):
        where[found.image_id].append(ImageOnHost(found.host_id, name, found.size_bytes))
    return tuple(
        ImageRow(
            id=row.id, title=row.title, base=row.base, dockerfile=row.dockerfile, reference=row.reference,
            digest=row.digest, cuda_version=row.cuda_version, architecture=row.architecture, size_bytes=row.size_bytes,
            has_jupyter=row.has_jupyter, withdrawn_at=row.withdrawn_at, owner_id=row.owner_id, owner_name=owner,
            team_id=row.team_id, team_name=team, host_id=row.host_id, saved_from=row.saved_from, workspaces=count,
            hosts=tuple(where[row.id]),
        )
        for row, owner, team, count in rows
    )


def deleted_bases(session: Session) -> set[str]:
    """Of entries that an administrator has deleted: nothing brings them back by itself."""
    gone = select(Image.base).where(Image.deleted_at.is_not(None), Image.base.is_not(None))
    return set(filter(None, session.scalars(gone)))


def volumes(session: Session) -> tuple[VolumeRow, ...]:
    """By name. One statement."""
    mounted = (
        select(func.count()).select_from(WorkspaceMount)
        .join(Workspace, Workspace.id == WorkspaceMount.workspace_id)
        .where(WorkspaceMount.volume_id == Volume.id, Workspace.phase != Phase.REMOVED).scalar_subquery()
    )
    rows = session.execute(
        select(Volume, Team.name, mounted).join(Team, Team.id == Volume.team_id).order_by(Volume.name))
    return tuple(
        VolumeRow(row.id, row.name, team, row.host_folder, row.target, row.read_only, count)
        for row, team, count in rows
    )


def checklist(session: Session) -> Checklist:
    answering = select(func.count()).where(Host.seen_at.is_not(None), Host.unreachable_since.is_(None))
    ready = select(func.count()).where(Image.reference.is_not(None), Image.withdrawn_at.is_(None),
                                       Image.deleted_at.is_(None), Image.owner_id.is_(None))
    active = select(func.count()).where(Member.deactivated_at.is_(None))
    row = session.execute(select(
        select(AgentState.alive_at).where(AgentState.id == 1).scalar_subquery(),
        answering.scalar_subquery(), ready.scalar_subquery(), active.scalar_subquery(),
        select(func.count(Workspace.id)).scalar_subquery(),
    )).one()
    return Checklist(*row)


def _images_on(session: Session) -> defaultdict[str, list[tuple[str, str, int]]]:
    """By host."""
    found: defaultdict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for host_id, image_id, title, size_bytes in session.execute(
            select(HostImage.host_id, Image.id, Image.title, HostImage.size_bytes)
            .join(Image, Image.id == HostImage.image_id).where(Image.deleted_at.is_(None)).order_by(Image.title)):
        found[host_id].append((image_id, title, size_bytes))
    return found
