"""What the agent did with images, written down in the transaction that ends the operation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.container import ImageFacts
from webapp.domain.images import ImageOnEngine
from webapp.domain.operation import OperationKind, OperationState
from webapp.services import events, images, locks
from webapp.services.rows import change
from webapp.store.tables import AgentState, HostImage, Image, Operation


def pulled(session: Session, image_id: str, facts: ImageFacts, *, digest: str | None) -> None:
    """The digest is kept from the first pull on: later ones are by it."""
    session.execute(update(Image).where(Image.id == image_id).values(
        digest=func.coalesce(Image.digest, digest), architecture=facts.architecture, size_bytes=facts.size_bytes))


def prepared(
    session: Session, image_id: str, facts: ImageFacts, *, reference: str, digest: str | None, cuda_version: str | None,
    has_jupyter: bool, now: datetime,
) -> None:
    """From here on it can be launched."""
    session.execute(update(Image).where(Image.id == image_id).values(
        reference=reference, digest=func.coalesce(Image.digest, digest), cuda_version=cuda_version,
        has_jupyter=has_jupyter, architecture=facts.architecture, size_bytes=facts.size_bytes))
    events.write(session, Actor.house(), "image.prepare", "image", image_id, now=now, reference=reference)


def saved(session: Session, image_id: str, facts: ImageFacts, *, reference: str, now: datetime) -> None:
    session.execute(update(Image).where(Image.id == image_id).values(
        reference=reference, architecture=facts.architecture, size_bytes=facts.size_bytes))
    events.write(session, Actor.house(), "image.saved", "image", image_id, now=now, reference=reference)


def removed(session: Session, image_id: str, host_id: str, *, now: datetime) -> None:
    """That host has it no more. The entry goes with the last one that was asked."""
    image = session.get(Image, image_id, with_for_update=locks.ROW)
    session.execute(delete(HostImage).where(HostImage.image_id == image_id, HostImage.host_id == host_id))
    others = session.scalar(select(Operation.id).where(
        Operation.image_id == image_id, Operation.kind == OperationKind.IMAGE_DELETE,
        Operation.state.in_((OperationState.WAITING, OperationState.RUNNING))).limit(1))
    if image is not None and others is None:
        images.mark_deleted(image, now)
        events.write(session, Actor.house(), "image.deleted", "image", image_id, now=now, title=image.title)


def on_host(session: Session, host_id: str, found: Mapping[str, ImageOnEngine], *, epoch: int, now: datetime) -> bool:
    """Which images of the catalogue a host has, by id. False = an older agent says so."""
    if session.scalar(select(AgentState.id).where(locks.by_newest_agent(epoch))) is None:
        return False
    known = set(session.scalars(
        select(Image.id).where(Image.id.in_(found)).with_for_update(read=True, key_share=True)))
    session.execute(delete(HostImage).where(HostImage.host_id == host_id, HostImage.image_id.not_in(known)))
    for image_id in sorted(known):
        values = {"engine_id": found[image_id].id, "size_bytes": found[image_id].size_bytes, "seen_at": now}
        row = (HostImage.host_id == host_id, HostImage.image_id == image_id)
        if not change(session, update(HostImage).where(*row).values(**values)):
            session.add(HostImage(host_id=host_id, image_id=image_id, **values))
    return True
