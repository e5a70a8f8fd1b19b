"""The catalogue of images that people may launch from."""

from __future__ import annotations

import re
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.dockerfile import parse_dockerfile
from webapp.domain.images import pulled
from webapp.domain.names import excerpt, parse_display_name
from webapp.domain.operation import OperationKind
from webapp.domain.references import parse_pinned_reference
from webapp.domain.workspace import Desired, Phase
from webapp.errors import (
    N_,
    Conflict,
    Forbidden,
    ImageBusy,
    ImageInUse,
    InvalidInput,
    NotFound,
    NotFromRegistry,
    NotPrepared,
)
from webapp.services import access, events, hosts, locks, operations
from webapp.services.ids import new_id
from webapp.services.problems import Problems
from webapp.store.tables import Host, Image, Member, Operation, TeamMember, Workspace

# Title, base, CUDA. The first is the default. None of them is prepared: that takes the engine and a registry.
SEEDS = (
    ("PyTorch 2.8.0 · CUDA 12.8", "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", "12.8"),
    ("PyTorch 2.7.1 · last CUDA 11.8 line", "pytorch/pytorch:2.7.1-cuda11.8-cudnn9-runtime", "11.8"),
    ("PyTorch 2.10.0 · CUDA 13.0", "pytorch/pytorch:2.10.0-cuda13.0-cudnn9-runtime", "13.0"),
)
MOST_OWNERS = 5         # named when an image is in use
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
    former = session.scalar(select(Image).where(Image.base == base)) if base else None
    if former is None:
        return _insert(session, actor, title=title, reference=reference, base=base, cuda_version=cuda_version,
                       has_jupyter=has_jupyter, now=now)
    _revive(session, former, title=title, cuda_version=cuda_version)
    former.reference, former.has_jupyter = reference, has_jupyter
    session.flush()
    events.write(session, actor, "image.add", "image", former.id, now=now, reference=reference, base=base)
    return former


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
    if image is not None and image.deleted_at is not None:
        _revive(session, image, title=title, cuda_version=cuda_version)
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
    image = access.image(session, image_id)
    if image.withdrawn_at is None:
        image.withdrawn_at = now
        events.write(session, actor, "image.withdraw", "image", image_id, now=now)
    return image


def offer_again(session: Session, actor: Actor, image_id: str, *, now: datetime) -> Image:
    access.require_admin(actor)
    image = access.image(session, image_id)
    if image.withdrawn_at is not None:
        image.withdrawn_at = None
        events.write(session, actor, "image.offer_again", "image", image_id, now=now)
    return image


# -- work for the agent


def prepare(
    session: Session, actor: Actor, *, title: str, base: str | None, dockerfile: str | None, cuda_version: str | None,
    with_jupyter: bool, now: datetime,
) -> Operation:
    """Have the workspace image made on `base`, or on what `dockerfile` builds; exactly one of the two.

    The entry of that base is taken if there is one, also a deleted one.

    Raises:  InvalidInput: all that is wrong, of a Dockerfile each line.   ImageBusy, NoHost.
    """
    access.require_admin(actor)
    locks.turn(session, locks.Lock.IMAGES)
    dockerfile = dockerfile if dockerfile and dockerfile.strip() else None
    problems = Problems()
    with problems.gather():
        title = parse_display_name(title, "title")
    with problems.gather():
        base = parse_pinned_reference(base, "base").familiar if base else None
    with problems.gather():
        dockerfile = parse_dockerfile(dockerfile).text if dockerfile else None
    if bool(base) == bool(dockerfile):
        problems.add("base", N_("Enter the image that it is to be built on, or a Dockerfile; one of the two."))
    cuda_version = _parse_cuda(cuda_version, problems)
    problems.raise_if_any()
    image = session.scalar(select(Image).where(Image.base == base).with_for_update(**locks.ROW)) if base else None
    if image is None:
        image = _insert(session, actor, title=title, reference=None, base=base, dockerfile=dockerfile,
                        cuda_version=cuda_version, has_jupyter=with_jupyter, now=now)
    elif image.deleted_at is not None:
        _revive(session, image, title=title, cuda_version=cuda_version)
    image.title = title
    return _ask_to_prepare(session, actor, image, {"with_jupyter": with_jupyter, "cuda_version": cuda_version}, now)


def prepare_again(
    session: Session, actor: Actor, image_id: str, *, dockerfile: str | None = None, now: datetime,
) -> Operation:
    """For an entry that has no image yet, or to take what is newer in the recipe; with a `dockerfile` that was mended.

    Raises:  NotPrepared, ImageBusy.   InvalidInput: of a Dockerfile each line.
    """
    access.require_admin(actor)
    image = access.image(session, image_id)
    if not (image.base or image.dockerfile):
        raise NotPrepared(title=image.title)
    if image.dockerfile and dockerfile and dockerfile.strip():
        _refuse_busy(session, image, now, OperationKind.IMAGE_PREPARE)
        image.dockerfile = parse_dockerfile(dockerfile).text
    return _ask_to_prepare(session, actor, image, {"with_jupyter": image.has_jupyter, "cuda_version": None}, now)


def pull(session: Session, actor: Actor, image_id: str, *, host_id: str | None = None, now: datetime) -> Operation:
    """What of it a registry has: the workspace image, else its base. None = a host that answers.

    Raises:  NotFromRegistry, ImageBusy; NoHost: no host has that id.
    """
    access.require_admin(actor)
    image = access.image(session, image_id)
    if image.saved_from is not None or pulled(base=image.base, reference=image.reference) is None:
        raise NotFromRegistry(title=image.title)
    host = hosts.choose(session, host_id)
    _refuse_busy(session, image, now, OperationKind.IMAGE_PREPARE, OperationKind.IMAGE_DELETE)
    events.write(session, actor, "image.pull", "image", image_id, now=now, host=host.name)
    return operations.request_for_image(session, actor, OperationKind.IMAGE_PULL, image_id=image_id, host_id=host.id,
                                        arguments={}, now=now)


def delete(session: Session, actor: Actor, image_id: str, *, now: datetime) -> Operation | None:
    """Takes it off every host and out of the catalogue, when no workspace is of it any more. Nobody can launch it from
    here on. Saved ones by who saved them; the rest by administrators. None = no host can have it: it is gone already.

    Raises:  ImageInUse, ImageBusy.
    """
    # Whoever launches it holds the row as well until their workspace is written down: on PostgreSQL one waits.
    image = session.get(Image, image_id, with_for_update=True)
    if image is None or image.deleted_at is not None or (image.owner_id and not _may_delete(actor, image)):
        raise NotFound()
    if not _may_delete(actor, image):
        raise Forbidden()
    _refuse_used(session, image)
    _refuse_busy(session, image, now, OperationKind.IMAGE_PULL, OperationKind.IMAGE_PREPARE,
                 OperationKind.WORKSPACE_SAVE)
    events.write(session, actor, "image.delete", "image", image_id, now=now, title=image.title,
                 reference=image.reference, base=image.base)
    where = select(Host.id).order_by(Host.created_at, Host.id)
    asked = [
        operations.request_for_image(session, actor, OperationKind.IMAGE_DELETE, image_id=image_id, host_id=host_id,
                                     arguments={}, now=now)
        for host_id in session.scalars(where.where(Host.id == image.host_id) if image.host_id else where)
    ]
    if not asked:
        mark_deleted(image, now)
    return asked[0] if asked else None


def mark_deleted(image: Image, now: datetime) -> None:
    """No host has it any more. The row stays for the history, and its base for whoever prepares it anew."""
    image.deleted_at, image.reference, image.digest, image.size_bytes = now, None, None, None


def save(
    session: Session, actor: Actor, workspace_id: str, *, title: str, team_id: str | None, now: datetime,
) -> Operation:
    """What is in the workspace, but for home and data, as an image: for its owner alone, or for one of their teams.

    While it is copied a running one stands still; that takes seconds for each GB that was written in it.

    Raises:  Forbidden: an administrator who is not the owner.   Conflict: it has no container now that could be saved.
    """
    owner = access.person(session, actor)
    workspace = access.workspace(session, actor, workspace_id)
    if workspace.owner_id != owner.id:
        raise Forbidden()
    problems = Problems()
    with problems.gather():
        title = parse_display_name(title, "title")
    if team_id and session.get(TeamMember, (team_id, owner.id)) is None:
        problems.add("team", N_("That is none of your teams. Choose one from the list."))
    problems.raise_if_any()
    if workspace.desired == Desired.REMOVED or workspace.phase not in (Phase.RUNNING, Phase.STOPPED, Phase.FAILED):
        raise Conflict(phase=Phase.REMOVING if workspace.desired == Desired.REMOVED else workspace.phase)
    source = session.get_one(Image, workspace.image_id)
    same = session.scalar(select(Operation).join(Image, Image.id == Operation.image_id).where(
        operations.is_open(now), Operation.kind == OperationKind.WORKSPACE_SAVE,
        Operation.workspace_id == workspace_id, Operation.cancel_asked_at.is_(None), Image.title == title,
        Image.team_id.is_(None) if not team_id else Image.team_id == team_id))
    if same is not None:
        return same     # pressed twice
    image = _insert(session, actor, title=title, reference=None, base=None, cuda_version=source.cuda_version,
                    has_jupyter=workspace.jupyter, now=now, action="image.save")
    image.owner_id, image.team_id, image.host_id = owner.id, team_id or None, workspace.host_id
    image.saved_from, image.architecture = workspace_id, source.architecture
    session.flush()
    return operations.save_into(session, actor, workspace, image.id, now=now)


def _ask_to_prepare(
    session: Session, actor: Actor, image: Image, arguments: dict[str, object], now: datetime,
) -> Operation:
    host = hosts.choose(session, image.host_id)
    _refuse_busy(session, image, now, OperationKind.IMAGE_PULL, OperationKind.IMAGE_DELETE)
    session.flush()
    events.write(session, actor, "image.ask_to_prepare", "image", image.id, now=now, host=host.name, base=image.base)
    return operations.request_for_image(session, actor, OperationKind.IMAGE_PREPARE, image_id=image.id,
                                        host_id=host.id, arguments=arguments, now=now)


def _refuse_busy(session: Session, image: Image, now: datetime, *kinds: OperationKind) -> None:
    if session.scalar(select(Operation.id).where(
            Operation.image_id == image.id, Operation.kind.in_(kinds), operations.is_open(now)).limit(1)):
        raise ImageBusy(title=image.title)


def _refuse_used(session: Session, image: Image) -> None:
    users = session.scalars(
        select(Member.display_name).join(Workspace, Workspace.owner_id == Member.id)
        .where(Workspace.image_id == image.id, Workspace.desired != Desired.REMOVED)
        .order_by(Member.display_name)).all()
    if users:
        names = list(dict.fromkeys(users))
        more = [] if len(names) <= MOST_OWNERS else ["…"]
        raise ImageInUse(title=image.title, count=len(users), owners=", ".join(names[:MOST_OWNERS] + more))


def _may_delete(actor: Actor, image: Image) -> bool:
    return actor.is_admin or (image.owner_id is not None and image.owner_id == actor.member_id)


# -- rows


def _revive(session: Session, image: Image, *, title: str, cuda_version: str | None) -> None:
    """An entry that was deleted, and whose base is wanted again."""
    image.deleted_at = image.withdrawn_at = None
    image.title, image.cuda_version, image.position = title, cuda_version, _next_position(session)


def _parse_unused(session: Session, text: str | None, field: str, problems: Problems) -> str | None:
    """The reference as people write it, which two spellings of one image share; None for none."""
    if not text:
        return None
    with problems.gather():
        written = parse_pinned_reference(text, field).familiar
        other = session.scalar(select(Image).where(getattr(Image, field) == written))
        if other is None or other.deleted_at is not None:
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
    has_jupyter: bool, now: datetime, dockerfile: str | None = None, action: str = "image.add",
) -> Image:
    image = Image(
        id=new_id(), title=title, reference=reference, base=base, dockerfile=dockerfile, cuda_version=cuda_version,
        has_jupyter=has_jupyter, position=_next_position(session), created_at=now,
    )
    session.add(image)
    session.flush()
    events.write(session, actor, action, "image", image.id, now=now, reference=reference, base=base)
    return image


def _next_position(session: Session) -> int:
    last = session.scalar(select(func.max(Image.position)))
    return 0 if last is None else last + 1
