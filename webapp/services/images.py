"""The catalogue of images that people may launch from."""

from __future__ import annotations

import re
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.names import excerpt, parse_display_name
from webapp.domain.references import parse_pinned_reference
from webapp.errors import N_, InvalidInput, NotFound
from webapp.services import access, events, locks
from webapp.services.ids import new_id
from webapp.services.problems import Problems
from webapp.store.tables import Image

# Title, base, CUDA. The first is the default. None of them is prepared: that takes the engine and a registry.
SEEDS = (
    ("PyTorch 2.8.0 · CUDA 12.8", "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", "12.8"),
    ("PyTorch 2.7.1 · last CUDA 11.8 line", "pytorch/pytorch:2.7.1-cuda11.8-cudnn9-runtime", "11.8"),
    ("PyTorch 2.10.0 · CUDA 13.0", "pytorch/pytorch:2.10.0-cuda13.0-cudnn9-runtime", "13.0"),
)
_CUDA = re.compile(r"[1-9][0-9]?\.[0-9]{1,2}")


def seed(session: Session, *, now: datetime) -> list[Image]:
    """Adds the entries that a new house begins with; those that are there, withdrawn or not, stay as they are."""
    locks.turn(session, locks.Lock.IMAGES)
    present = set(session.scalars(select(Image.base)))
    rows = [
        Image(id=new_id(), title=title, base=base, cuda_version=cuda, has_jupyter=True, position=position,
              created_at=now)
        for position, (title, base, cuda) in enumerate(SEEDS) if base not in present
    ]
    session.add_all(rows)
    session.flush()
    return rows


def add(
    session: Session, actor: Actor, *, title: str, reference: str | None, base: str | None, cuda_version: str | None,
    has_jupyter: bool, now: datetime,
) -> Image:
    """A ready workspace image (`reference`), or a `base` that is to be prepared; at least one of the two."""
    access.require_admin(actor)
    locks.turn(session, locks.Lock.IMAGES)
    problems = Problems()
    with problems.gather():
        title = parse_display_name(title, "title")
    reference = _parse_unused(session, reference, "reference", problems)
    base = _parse_unused(session, base, "base", problems)
    cuda_version = _parse_cuda(cuda_version, problems)
    if not (reference or base or problems.has("reference") or problems.has("base")):
        problems.add("reference", N_("Enter a workspace image, or the base that one is to be made from."))
    problems.raise_if_any()
    return _insert(session, actor, title=title, reference=reference, base=base, cuda_version=cuda_version,
                   has_jupyter=has_jupyter, now=now)


def register_prepared(
    session: Session, actor: Actor, *, base: str, title: str, reference: str, cuda_version: str | None,
    has_jupyter: bool, now: datetime,
) -> Image:
    """Notes that a workspace image was made on `base`: the entry becomes launchable, or is added."""
    access.require_admin(actor)
    locks.turn(session, locks.Lock.IMAGES)
    base = parse_pinned_reference(base, "base").familiar
    reference = parse_pinned_reference(reference, "reference").familiar
    image = session.scalar(select(Image).where(Image.base == base))
    if image is None:
        image = session.scalar(select(Image).where(Image.reference == reference))
    if image is None:
        return _insert(session, actor, title=title, reference=reference, base=base, cuda_version=cuda_version,
                       has_jupyter=has_jupyter, now=now)
    other = session.scalar(select(Image).where(Image.reference == reference, Image.id != image.id))
    if other is not None:
        raise _taken("reference", reference, other)
    if (image.base, image.reference, image.has_jupyter) != (base, reference, has_jupyter):
        image.base, image.reference, image.has_jupyter = base, reference, has_jupyter
        session.flush()
        events.write(session, actor, "image.prepare", "image", image.id, now=now, base=base, reference=reference)
    return image


def withdraw(session: Session, actor: Actor, image_id: str, *, now: datetime) -> Image:
    """No new launches of it; workspaces that were made from it stay, and can be stopped and started."""
    access.require_admin(actor)
    image = _get(session, image_id)
    if image.withdrawn_at is None:
        image.withdrawn_at = now
        events.write(session, actor, "image.withdraw", "image", image_id, now=now)
    return image


def offer_again(session: Session, actor: Actor, image_id: str, *, now: datetime) -> Image:
    access.require_admin(actor)
    image = _get(session, image_id)
    if image.withdrawn_at is not None:
        image.withdrawn_at = None
        events.write(session, actor, "image.offer_again", "image", image_id, now=now)
    return image


def _get(session: Session, image_id: str) -> Image:
    image = session.get(Image, image_id)
    if image is None:
        raise NotFound()
    return image


def _parse_unused(session: Session, text: str | None, field: str, problems: Problems) -> str | None:
    """The reference as people write it, which two spellings of one image share; None for none."""
    if not text:
        return None
    with problems.gather():
        written = parse_pinned_reference(text, field).familiar
        other = session.scalar(select(Image).where(getattr(Image, field) == written))
        if other is None:
            return written
        raise _taken(field, written, other)
    return None


def _taken(field: str, written: str, other: Image) -> InvalidInput:
    return InvalidInput.of(field, N_("%(given)s is in the catalogue already, as “%(title)s”."), given=written,
                           title=other.title)


def _parse_cuda(text: str | None, problems: Problems) -> str | None:
    if text and not _CUDA.fullmatch(text):
        problems.add("cuda_version", N_("“%(given)s” is not a CUDA version. Write it like 12.8, or leave it empty."),
                     given=excerpt(text))
    return text or None


def _insert(
    session: Session, actor: Actor, *, title: str, reference: str | None, base: str | None, cuda_version: str | None,
    has_jupyter: bool, now: datetime,
) -> Image:
    last = session.scalar(select(func.max(Image.position)))
    image = Image(
        id=new_id(), title=title, reference=reference, base=base, cuda_version=cuda_version, has_jupyter=has_jupyter,
        position=0 if last is None else last + 1, created_at=now,
    )
    session.add(image)
    session.flush()
    events.write(session, actor, "image.add", "image", image.id, now=now, reference=reference, base=base)
    return image
