"""What the agent reads for its work on images."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.images import pulled
from webapp.domain.operation import OperationKind, OperationState
from webapp.store.tables import AgentState, Host, Image, Member, Operation, Workspace


@dataclass(frozen=True, slots=True)
class ImageInFull:
    id: str
    title: str
    base: str | None
    dockerfile: str | None
    reference: str | None
    digest: str | None              # of what comes from a registry
    cuda_version: str | None
    has_jupyter: bool
    saved_from: str | None
    deleted: bool

    @property
    def pulled(self) -> str | None:
        """What of it comes from a registry."""
        return pulled(base=self.base, reference=self.reference)


@dataclass(frozen=True, slots=True)
class HostFacts:
    architecture: str | None        # None = no agent has looked yet
    drivers: tuple[str | None, ...]     # NVIDIA's, of all hosts


def image(session: Session, image_id: str | None) -> ImageInFull | None:
    row = session.get(Image, image_id) if image_id else None
    return None if row is None else _in_full(row)


def images(session: Session) -> list[ImageInFull]:
    """All that are in the catalogue."""
    return [_in_full(row) for row in session.scalars(select(Image).where(Image.deleted_at.is_(None)))]


def title_of_reference(session: Session, reference: str, *, but: str) -> str | None:
    """Whose workspace image that is, where it is another entry's."""
    return session.scalar(select(Image.title).where(Image.reference == reference, Image.id != but))


def host(session: Session, host_id: str) -> HostFacts:
    capabilities = session.get_one(Host, host_id).capabilities or {}
    drivers = session.scalars(select(Host.driver_version).where(Host.driver_version.is_not(None)).distinct())
    return HostFacts(capabilities.get("architecture") or None, tuple(drivers))


def saver(session: Session, workspace_id: str) -> int | None:
    """uid of the owner of a workspace."""
    return session.scalar(
        select(Member.uid).join(Workspace, Workspace.owner_id == Member.id).where(Workspace.id == workspace_id))


def is_wanted(session: Session, operation_id: str, *, epoch: int) -> bool | None:
    """Whether it is to go on; None = this agent has nothing to do with it any more, or not now."""
    acting = select(AgentState.epoch).where(AgentState.hold.is_(None)).scalar_subquery()
    row = session.execute(
        select(Operation.state, Operation.cancel_asked_at, acting)
        .where(Operation.id == operation_id)).one_or_none()
    if row is None or row[0] != OperationState.RUNNING or row[2] != epoch:
        return None
    return row[1] is None


def unsaved(session: Session, host_id: str) -> list[str]:
    """Ids of images whose making was given up: an engine may have made them all the same, after that."""
    ended = session.scalars(select(Operation.arguments).where(
        Operation.kind == OperationKind.WORKSPACE_SAVE, Operation.host_id == host_id, Operation.image_id.is_(None),
        Operation.state.in_((OperationState.CANCELLED, OperationState.FAILED))))
    return [arguments["image"] for arguments in ended if "image" in arguments]


def _in_full(row: Image) -> ImageInFull:
    return ImageInFull(row.id, row.title, row.base, row.dockerfile, row.reference, row.digest, row.cuda_version,
                       row.has_jupyter, row.saved_from, row.deleted_at is not None)
