"""What a person asks for, read and judged: every problem told at once, with the field's name.

`read` is for a launch; the readers of limits, mounts and cards serve changes as well (services.changes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.house import MIN_MEMORY_BYTES, MIN_SHM_BYTES, SHM_SHARE_OF_MEMORY, HouseRules
from webapp.domain.mounts import refuse_nesting
from webapp.domain.names import excerpt, parse_workspace_name, suggest_name
from webapp.domain.placement import NO_CARDS, CardRequest
from webapp.domain.sizes import MIB, format_cpus, format_size, parse_cpus, parse_size
from webapp.domain.workspace import Desired, Limits
from webapp.errors import N_, InvalidInput
from webapp.services import volumes
from webapp.services.problems import Problems
from webapp.store.reads import images as reads
from webapp.store.tables import Gpu, Image, Member, SshKey, Volume, Workspace

MOST_GPUS = 64          # of one workspace; the largest hosts have 16 or 18


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What a person typed and ticked, unread. Problems name the field as here, but `image` for `image_id`."""

    name: str
    image_id: str
    cpus: str = ""                                  # domain.sizes; "" = the house's default
    memory: str = ""                                # the same
    shm: str = ""                                   # "" = a quarter of memory
    mounts: tuple[tuple[str, bool], ...] = ()       # (volume id, read only)
    gpus: str = ""                                  # how many; "" = none, or as many as are named
    gpu_model: str = ""                             # which alone will do; "" = any
    gpu_uuids: tuple[str, ...] = ()                 # these very cards


@dataclass(frozen=True, slots=True)
class Order:
    """A request that was read and can be carried out."""

    name: str
    image: Image
    reference: str
    limits: Limits
    mounts: tuple[tuple[Volume, bool], ...]
    cards: CardRequest


def read(session: Session, owner: Member, request: LaunchRequest, house: HouseRules) -> Order:
    problems = Problems()
    with problems.gather():
        _check_name(session, owner, request.name)
    image = _find_image(session, owner, request.image_id)
    with problems.gather():
        _check_image(session, owner, image)
    limits = read_limits(request.cpus, request.memory, request.shm, house, problems)
    mounts = read_mounts(session, owner.id, request.mounts, problems)
    cards = NO_CARDS
    with problems.gather():
        cards = read_cards(session, request.gpus, request.gpu_model, request.gpu_uuids)
    problems.raise_if_any()
    if image is None or image.reference is None or limits is None:
        raise AssertionError("a launch was read without problems, but not whole")
    return Order(request.name, image, image.reference, limits, mounts, cards)


def _check_name(session: Session, owner: Member, name: str) -> None:
    parse_workspace_name(name, "name")
    live = select(Workspace.name).where(Workspace.owner_id == owner.id, Workspace.desired != Desired.REMOVED)
    taken = set(session.scalars(live))
    if name in taken:
        raise name_taken(name, taken)


def name_taken(name: str, taken: set[str]) -> InvalidInput:
    return InvalidInput.of("name", N_("You have a workspace named %(given)s already. Try %(suggestion)s."),
                           given=name, suggestion=suggest_name(taken, name))


def lost_volumes(names: Iterable[str]) -> InvalidInput:
    return InvalidInput.of(
        "mounts", N_("It mounts %(volumes)s of a team that its owner has left. Choose its volumes anew, without it."),
        volumes=", ".join(names))


def no_such_volume() -> InvalidInput:
    return InvalidInput.of("mounts", N_("One of the volumes is not yours. Choose from the list, each once."))


def _find_image(session: Session, owner: Member, image_id: str) -> Image | None:
    """None for what is not theirs. Held against a deletion until the launch is written down (images.delete)."""
    return session.scalar(
        select(Image).where(Image.id == image_id, reads.visible_to(owner.id))
        .with_for_update(read=True, key_share=True))


def _check_image(session: Session, owner: Member, image: Image | None) -> None:
    if image is None:
        raise InvalidInput.of("image", N_("There is no such image. Choose one from the list."))
    if image.withdrawn_at is not None or session.scalar(
            select(Image.id).where(Image.id == image.id, reads.is_being_deleted())):
        raise InvalidInput.of("image", N_("%(title)s is no longer offered. Choose another image."), title=image.title)
    if image.reference is None and image.saved_from is not None:
        raise InvalidInput.of("image", N_("%(title)s is still being saved. Wait until it is there."), title=image.title)
    if image.reference is None and image.base is None:
        raise InvalidInput.of("image", N_("%(title)s is not prepared yet. An administrator prepares it on the page of "
                                          "images."), title=image.title)
    if image.reference is None:
        raise InvalidInput.of(
            "image",
            N_("%(title)s is not prepared yet. An administrator prepares it with: berth image prepare %(base)s"),
            title=image.title, base=image.base)
    if not image.has_jupyter and session.scalar(select(SshKey.id).where(SshKey.member_id == owner.id).limit(1)) is None:
        raise InvalidInput.of(
            "ssh_keys", N_("%(title)s has no JupyterLab, so SSH is the only way in. Add an SSH key first."),
            title=image.title)


def read_limits(
    cpus: str, memory: str, shm: str, house: HouseRules, problems: Problems, *, now: Limits | None = None,
) -> Limits | None:
    """What is "" stays as `now`, or is the house's default; all of it is judged. None when it cannot be read.

    Shared memory is judged against memory: the kernel counts it inside, so it is never more.
    """
    cpu_millis = now.cpu_millis if now else house.default_cpu_millis
    memory_bytes = now.memory_bytes if now else house.default_memory_bytes
    with problems.gather():
        cpu_millis = parse_cpus(cpus or format_cpus(cpu_millis), field="cpus", maximum=house.max_cpu_millis)
    with problems.gather():
        memory_bytes = parse_size(memory or format_size(memory_bytes), field="memory", minimum=MIN_MEMORY_BYTES,
                                  maximum=house.max_memory_bytes)
    if problems.has("memory"):
        return None
    with problems.gather():
        shm = shm or format_size(now.shm_bytes if now else _default_shm(memory_bytes))
        shm_bytes = parse_size(shm, field="shm", minimum=MIN_SHM_BYTES, maximum=memory_bytes)
        return Limits(cpu_millis, memory_bytes, shm_bytes)
    return None


def _default_shm(memory_bytes: int) -> int:
    """Whole MiB."""
    return max(MIN_SHM_BYTES, memory_bytes // SHM_SHARE_OF_MEMORY // MIB * MIB)


def read_mounts(
    session: Session, owner_id: str, asked: Iterable[tuple[str, bool]], problems: Problems, *,
    had: Collection[str] = (),
) -> tuple[tuple[Volume, bool], ...]:
    """`had`: ids of volumes that the workspace mounts now; one that its owner may not have any more is named."""
    available = {volume.id: volume for volume in volumes.available_to(session, owner_id)}
    mounts: dict[str, tuple[Volume, bool]] = {}
    for volume_id, read_only in asked:
        volume = available.get(volume_id)
        with problems.gather():
            if volume is None and volume_id in had:
                raise lost_volumes([session.get_one(Volume, volume_id).name])
            if volume is None or volume_id in mounts:
                raise no_such_volume()
            if volume.read_only and not read_only:
                raise InvalidInput.of("mounts", N_("%(volume)s can only be mounted read-only."), volume=volume.name)
            refuse_nesting({other.name: other.target for other, _ in mounts.values()}, volume.target, "mounts")
            mounts[volume_id] = (volume, read_only)
    return tuple(mounts.values())


def read_cards(session: Session, number: str, model: str, named: tuple[str, ...]) -> CardRequest:
    """Whether they are free is another question; this asks whether they can be meant at all."""
    count = _read_count(number) if number else len(named)
    if not named:
        return _of_model(session, count, model)
    if len(set(named)) != len(named) or count != len(named):
        raise InvalidInput.of("gpus", N_("%(count)s GPUs are asked for and %(named)s chosen. Choose each once."),
                              count=count, named=len(set(named)))
    rows = session.execute(select(Gpu.uuid, Gpu.host_id).where(Gpu.uuid.in_(named))).all()
    unknown = [uuid for uuid in named if uuid not in {row.uuid for row in rows}]
    if unknown:
        raise InvalidInput.of("gpus", N_("There is no GPU %(given)s, or not any more. Choose from the list."),
                              given=excerpt(unknown[0]))
    if not set.intersection(*({row.host_id for row in rows if row.uuid == uuid} for uuid in named)):
        raise InvalidInput.of("gpus", N_("The GPUs you chose are in different hosts. Choose GPUs of one host."))
    return CardRequest.these(named)


def _read_count(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= MOST_GPUS:
        return int(text)
    raise InvalidInput.of(
        "gpus", N_("“%(given)s” is no number of GPUs. Enter a whole number up to %(most)s, 0 for none."),
        given=excerpt(text), most=MOST_GPUS)


def _of_model(session: Session, count: int, model: str) -> CardRequest:
    if model and count and session.scalar(select(Gpu.key).where(Gpu.model == model).limit(1)) is None:
        raise InvalidInput.of("gpu_model", N_("No host has a GPU of the model %(given)s. Choose from the list."),
                              given=excerpt(model))
    return CardRequest(count, model=model or None) if count else NO_CARDS
