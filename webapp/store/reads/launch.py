"""What the launch form offers to one person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from webapp.domain.names import suggest_name
from webapp.domain.workspace import Desired
from webapp.store.reads import cards
from webapp.store.reads.cards import CardRow
from webapp.store.reads.images import is_being_deleted, visible_to
from webapp.store.tables import Host, Image, SshKey, Team, TeamMember, Volume, Workspace


@dataclass(frozen=True, slots=True)
class ImageChoice:
    id: str
    title: str
    base: str | None
    reference: str | None
    cuda_version: str | None        # None = no CUDA inside
    has_jupyter: bool
    host_id: str | None             # the only host that has it; None = any can
    team_name: str | None           # saved for that team
    is_own: bool                    # saved by the person who asks

    @property
    def is_ready(self) -> bool:
        """False = shown with the command that prepares it."""
        return self.reference is not None


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    id: str
    name: str
    team_name: str
    target: str
    read_only: bool                 # True = cannot be mounted for writing


@dataclass(frozen=True, slots=True)
class HostFacts:
    id: str
    name: str
    unreachable_since: datetime | None
    seen_at: datetime | None        # None = the agent has not looked yet
    cpus: int | None                # None = not known yet
    memory_bytes: int | None
    gpus_seen_at: datetime | None   # None = nobody has looked for cards yet
    driver_version: str | None
    gpu_trouble: Mapping[str, Any] | None   # {"code", "facts"}: why its cards could not be read, or not all
    cards: tuple[CardRow, ...]


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The first image that is ready is the default."""

    images: tuple[ImageChoice, ...]
    volumes: tuple[VolumeChoice, ...]
    has_keys: bool
    hosts: tuple[HostFacts, ...]
    suggested_name: str             # free at this moment

    @property
    def default_image(self) -> ImageChoice | None:
        return next((image for image in self.images if image.is_ready), None)


def options(session: Session, member_id: str) -> LaunchOptions:
    """Six statements."""
    taken = session.scalars(
        select(Workspace.name).where(Workspace.owner_id == member_id, Workspace.desired != Desired.REMOVED))
    return LaunchOptions(
        images=_images(session, member_id), volumes=_volumes(session, member_id),
        has_keys=session.scalar(select(SshKey.id).where(SshKey.member_id == member_id).limit(1)) is not None,
        hosts=hosts(session), suggested_name=suggest_name(set(taken)),
    )


def hosts(session: Session) -> tuple[HostFacts, ...]:
    """By name, with their cards as they are now. Two statements."""
    by_host = cards.by_host(session)
    return tuple(
        HostFacts(
            id=row.id, name=row.name, unreachable_since=row.unreachable_since, seen_at=row.seen_at,
            cpus=(row.capabilities or {}).get("cpus"), memory_bytes=(row.capabilities or {}).get("memory_bytes"),
            gpus_seen_at=row.gpus_seen_at, driver_version=row.driver_version, gpu_trouble=row.gpu_trouble,
            cards=by_host.get(row.id, ()),
        )
        for row in session.scalars(select(Host).order_by(Host.name))
    )


def _images(session: Session, member_id: str) -> tuple[ImageChoice, ...]:
    """What can be launched comes first. Left out is what is being saved or deleted just now."""
    rows = session.execute(
        select(Image, Team.name).outerjoin(Team, Team.id == Image.team_id)
        .where(Image.withdrawn_at.is_(None), visible_to(member_id), ~is_being_deleted(),
               or_(Image.reference.is_not(None), Image.saved_from.is_(None)))
        .order_by(Image.reference.is_(None), Image.position, Image.title, Image.id))
    return tuple(
        ImageChoice(row.id, row.title, row.base, row.reference, row.cuda_version, row.has_jupyter, row.host_id, team,
                    row.owner_id == member_id)
        for row, team in rows)


def _volumes(session: Session, member_id: str) -> tuple[VolumeChoice, ...]:
    rows = session.execute(
        select(Volume, Team.name).join(Team, Team.id == Volume.team_id)
        .join(TeamMember, TeamMember.team_id == Volume.team_id)
        .where(TeamMember.member_id == member_id).order_by(Volume.name))
    return tuple(VolumeChoice(row.id, row.name, team, row.target, row.read_only) for row, team in rows)
