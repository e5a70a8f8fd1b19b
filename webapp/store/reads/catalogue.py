"""The images as pages show them: what each is, where it is, who may launch it, and what is being done with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.orm import Session, defer

from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Desired
from webapp.store.reads.images import visible_to
from webapp.store.tables import Host, HostImage, Image, Member, Operation, Team, Workspace


@dataclass(frozen=True, slots=True)
class Work:
    """The newest thing that was asked for."""

    operation_id: str
    kind: OperationKind
    state: OperationState
    progress: dict[str, Any]            # "step", "number", "of", "done_bytes", …
    result: dict[str, Any]
    reason: dict[str, Any] | None
    host_name: str | None
    ends_soon: bool                     # somebody has cancelled it
    created_at: datetime
    ended_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.state in (OperationState.WAITING, OperationState.RUNNING)


@dataclass(frozen=True, slots=True)
class ImageEntry:
    id: str
    title: str
    base: str | None
    is_from_dockerfile: bool
    reference: str | None               # None = not prepared, or not saved yet
    digest: str | None
    cuda_version: str | None
    architecture: str | None
    size_bytes: int | None
    has_jupyter: bool
    is_saved: bool                      # from a workspace
    owner_id: str | None                # of a saved one
    owner_username: str | None
    team_name: str | None               # that may launch a saved one
    only_host: str | None               # None = any host can get it
    hosts: tuple[str, ...]              # that have it, by name
    withdrawn_at: datetime | None
    may_launch: bool                    # whoever asks
    workspaces: int                     # made from it and not removed
    work: Work | None


@dataclass(frozen=True, slots=True)
class ImagePage:
    entry: ImageEntry
    dockerfile: str | None
    log: str | None                     # of the newest work
    users: tuple[tuple[str, int], ...]  # (user name, how many workspaces of it), by name


def catalogue(session: Session, member_id: str, *, everything: bool) -> tuple[ImageEntry, ...]:
    """What that person may launch, and what they saved themselves; or everything, for administrators. Offered ones
    first, in their order. Three statements.
    """
    wanted = _with_names(member_id).where(Image.deleted_at.is_(None))
    if not everything:
        ready = and_(Image.withdrawn_at.is_(None), Image.reference.is_not(None))
        wanted = wanted.where(visible_to(member_id), or_(ready, Image.owner_id == member_id))
    rows = session.execute(wanted.order_by(
        Image.withdrawn_at.is_not(None), Image.saved_from.is_not(None), Image.position, Image.title)).all()
    return _entries(session, rows)


def image_page(session: Session, image_id: str, member_id: str, *, everything: bool) -> ImagePage | None:
    """None for what does not exist for that person; for administrators everything does. Five statements."""
    wanted = _with_names(member_id).where(Image.id == image_id, Image.deleted_at.is_(None))
    rows = session.execute(wanted if everything else wanted.where(visible_to(member_id))).all()
    if not rows:
        return None
    (entry,) = _entries(session, rows)
    log = session.scalar(select(Operation.log).where(Operation.id == entry.work.operation_id)) if entry.work else None
    users = session.execute(
        select(Member.username, func.count()).join(Workspace, Workspace.owner_id == Member.id)
        .where(Workspace.image_id == image_id, Workspace.desired != Desired.REMOVED)
        .group_by(Member.username).order_by(Member.username))
    return ImagePage(entry, rows[0][0].dockerfile, log, tuple((name, count) for name, count in users))


def _with_names(member_id: str) -> Select[Image, str | None, str | None, str | None, int, bool]:
    used = select(func.count()).where(Workspace.image_id == Image.id, Workspace.desired != Desired.REMOVED)
    return (
        select(Image, Member.username, Team.name, Host.name, used.scalar_subquery(),
               and_(visible_to(member_id), Image.reference.is_not(None), Image.withdrawn_at.is_(None)))
        .outerjoin(Member, Member.id == Image.owner_id).outerjoin(Team, Team.id == Image.team_id)
        .outerjoin(Host, Host.id == Image.host_id)
    )


def _entries(session: Session, rows: Collection[Any]) -> tuple[ImageEntry, ...]:
    """Two statements."""
    ids = [row[0].id for row in rows]
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    for image_id, name in session.execute(
            select(HostImage.image_id, Host.name).join(Host, Host.id == HostImage.host_id)
            .where(HostImage.image_id.in_(ids)).order_by(Host.name)):
        hosts[image_id].append(name)
    works = _works(session, ids)
    return tuple(
        ImageEntry(
            id=row.id, title=row.title, base=row.base, is_from_dockerfile=row.dockerfile is not None,
            reference=row.reference, digest=row.digest, cuda_version=row.cuda_version, architecture=row.architecture,
            size_bytes=row.size_bytes, has_jupyter=row.has_jupyter, is_saved=row.saved_from is not None,
            owner_id=row.owner_id, owner_username=owner, team_name=team, only_host=only_host,
            hosts=tuple(hosts[row.id]), withdrawn_at=row.withdrawn_at, may_launch=may_launch,
            workspaces=used, work=works.get(row.id))
        for row, owner, team, only_host, used, may_launch in rows)


def _works(session: Session, ids: Collection[str]) -> dict[str, Work]:
    """Without their logs."""
    found = session.execute(
        select(Operation, Host.name).outerjoin(Host, Host.id == Operation.host_id).options(defer(Operation.log))
        .where(Operation.image_id.in_(ids)).order_by(Operation.created_at, Operation.id))
    return {
        row.image_id: Work(
            operation_id=row.id, kind=OperationKind(row.kind), state=OperationState(row.state),
            progress=row.progress or {}, result=row.result or {}, reason=row.reason, host_name=host,
            ends_soon=row.cancel_asked_at is not None, created_at=row.created_at, ended_at=row.ended_at)
        for row, host in found if row.image_id}
