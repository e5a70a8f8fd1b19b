"""Of a container that the rows do not know, or know otherwise: whose it is, and what it was made from.

Nothing is guessed: what is not known for sure cannot be taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.hold import FindingKind, Truth, truth_in
from webapp.errors import N_
from webapp.store.tables import HostImage, Image, Member, Volume

NO_CONTAINER = N_("There is no container to take over.")
NO_OWNER = N_("Its owner is not known: the home in it belongs to nobody in this database.")
OTHER_UID = N_("Its owner is not known for sure: the home in it belongs to somebody with another uid.")
NO_IMAGE = N_("Its image is not known: no image of the catalogue has that name.")
NO_VOLUME = N_("It mounts a volume that this database does not know.")
NO_LIMITS = N_("Its limits are not known.")


@dataclass(frozen=True, slots=True)
class Origin:
    owner: Member
    image: Image


def refusal(session: Session, kind: str, facts: Mapping[str, Any]) -> str | None:
    """Why what is there cannot be taken over, as a message id; None = it can."""
    truth = truth_in(facts)
    if truth is None:
        return NO_CONTAINER
    if volumes(session, truth) is None:
        return NO_VOLUME
    if kind != FindingKind.UNKNOWN_CONTAINER:
        return None
    found = find(session, truth)
    return found if isinstance(found, str) else None


def find(session: Session, truth: Truth) -> Origin | str:
    """Whose it is and what it is made from, or why that is not known.

    A uid alone proves nothing: after a restore a new member may get one that somebody else had.
    """
    owner = session.get(Member, truth.home_of) if truth.home_of else None
    if owner is None:
        return NO_OWNER
    if truth.uid != owner.uid:
        return OTHER_UID
    image = _image(session, truth)
    if image is None:
        return NO_IMAGE
    if 0 in (truth.cpu_millis, truth.memory_bytes, truth.shm_bytes):
        return NO_LIMITS
    return Origin(owner, image)


def volumes(session: Session, truth: Truth) -> dict[str, bool] | None:
    """Volume id → whether it is mounted read-only; None = one of them is not known."""
    known = {row.id: row for row in session.scalars(select(Volume))}
    by_folder = {row.host_folder: row.id for row in known.values() if row.host_folder is not None}
    named = {str(volume_id): bool(read_only) for volume_id, read_only in truth.volumes}
    folders = {by_folder.get(folder): bool(read_only) for folder, read_only in truth.folders if folder in by_folder}
    found = {**named, **{volume_id: read_only for volume_id, read_only in folders.items() if volume_id}}
    return found if found.keys() <= known.keys() else None


def _image(session: Session, truth: Truth) -> Image | None:
    """By what its label says, the name that it was made from, or the image itself; one that was deleted too."""
    names = [name for name in (truth.origin, "" if truth.is_private else truth.image) if name]
    for name in names:
        if (image := session.scalar(select(Image).where(Image.reference == name))) is not None:
            return image
    return session.scalar(
        select(Image).join(HostImage, HostImage.image_id == Image.id)
        .where(HostImage.engine_id == truth.image_id).order_by(Image.id).limit(1))
