"""Changes of a workspace that is there: limits, shared memory, mounts, GPUs. The agent makes it so.

CPU and memory change while it runs. For all else its container is made anew (domain.plan): what is in it is kept, and
programs end. One that runs has its former cards and the new ones until the new container runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.gpu import Condition
from webapp.domain.house import HouseRules
from webapp.domain.placement import CardRequest
from webapp.domain.wordings import WORDINGS
from webapp.domain.workspace import Desired, Limits, Phase
from webapp.errors import N_, InvalidInput, NoCapacity
from webapp.services import access, before, gpus, locks, orders, quotas, wishes
from webapp.services.problems import Problems
from webapp.store.tables import Gpu, Image, Workspace


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What a person typed and ticked, unread; "" and None = as it is now. Problems name the field as here."""

    cpus: str = ""
    memory: str = ""
    shm: str = ""
    mounts: tuple[tuple[str, bool], ...] | None = None      # (volume id, read only): all that it is to have
    gpus: str | None = None                                 # how many; "0" = none
    gpu_model: str = ""                                     # which alone will do
    gpu_uuids: tuple[str, ...] = ()                         # these very cards, all that it is to have


class Consequence(StrEnum):
    """The most that a change does to one that runs."""

    NOTHING = "nothing"
    LIVE = "live"           # at once, while it runs
    MOVE = "move"           # its container is made anew: programs in it end


@dataclass(frozen=True, slots=True)
class _Change:
    """A request that was read: what is None stays."""

    limits: Limits | None
    mounts: Mapping[str, bool] | None
    cards: CardRequest | None
    consequence: Consequence


_NOTHING = _Change(None, None, None, Consequence.NOTHING)


def consequence(
    session: Session, actor: Actor, workspace_id: str, request: ChangeRequest, *, house: HouseRules,
) -> Consequence:
    """What it would come to; changes nothing. Raises InvalidInput, Conflict, NotFound. Not asked: are cards free?"""
    workspace = access.workspace(session, actor, workspace_id, lock=False)
    wishes.refuse_removed(workspace)
    return _read(session, workspace, request, house).consequence


def change(
    session: Session, actor: Actor, workspace_id: str, request: ChangeRequest, *, house: HouseRules,
    start: bool = False, now: datetime,
) -> Workspace:
    """The new spec and the claims on its cards, all or nothing. One that runs goes on until the agent has it moved.

    Of one that is stopped, or has failed, only the spec changes; with `start` it is started as well. Nothing different
    asked for: no new intent.

    Raises:  InvalidInput: everything that is wrong with the request.   NoCapacity: not all of the cards are free.
             Conflict: it is removed.   Forbidden: its owner's account is not active.   NotFound.
    """
    locks.owner_and_host(session, workspace_id)
    workspace = access.workspace(session, actor, workspace_id)
    wishes.refuse_removed(workspace)
    wishes.refuse_former_owner(session, workspace)
    asked = _read(session, workspace, request, house)
    runs = wishes.is_to_run(workspace)
    if asked.consequence is Consequence.NOTHING and (runs or not start):
        return workspace
    was = _shown(session, workspace)
    if not runs:
        workspace.before_change = None
    before.keep(session, workspace, ran=runs and workspace.phase in (Phase.RUNNING, Phase.UNKNOWN))
    had = quotas.of_workspace(workspace) if runs else None
    _write(session, workspace, asked)
    if runs or start:
        session.flush()
        quotas.require_to_run(session, workspace, has=had)
    wishes.refuse_lost_volumes(session, workspace)
    if runs or start:
        _claim(session, workspace, asked, now)
    elif asked.cards is not None:
        workspace.gpu_uuids = _to_be_asked_for(workspace, asked.cards)
    details = {"before": was, "after": _shown(session, workspace)}
    if not (runs or start):
        wishes.note(session, actor, workspace, "workspace.change", now=now, **details)
        return workspace
    return wishes.want(session, actor, workspace, Desired.RUNNING, "workspace.change", now=now, **details)


# -- reading


def _read(session: Session, workspace: Workspace, request: ChangeRequest, house: HouseRules) -> _Change:
    if request == ChangeRequest():
        return _NOTHING
    problems = Problems()
    now = Limits(workspace.cpu_millis, workspace.memory_bytes, workspace.shm_bytes)
    limits = orders.read_limits(request.cpus, request.memory, request.shm, house, problems, now=now)
    mounts = _read_mounts(session, workspace, request, problems)
    cards = None
    with problems.gather():
        cards = _read_cards(session, workspace, request)
    problems.raise_if_any()
    if limits == now:
        limits = None
    is_moved = mounts is not None or cards is not None or (limits is not None and limits.shm_bytes != now.shm_bytes)
    if is_moved:
        return _Change(limits, mounts, cards, Consequence.MOVE)
    return _NOTHING if limits is None else _Change(limits, None, None, Consequence.LIVE)


def _read_mounts(
    session: Session, workspace: Workspace, request: ChangeRequest, problems: Problems,
) -> Mapping[str, bool] | None:
    if request.mounts is None:
        return None
    had = before.mounts_of(session, workspace.id)
    read = orders.read_mounts(session, workspace.owner_id, request.mounts, problems, had=had)
    mounts = {volume.id: read_only for volume, read_only in read}
    return None if mounts == had else mounts


def _read_cards(session: Session, workspace: Workspace, request: ChangeRequest) -> CardRequest | None:
    number, named = request.gpus or "", request.gpu_uuids
    if not number and not named:
        if not request.gpu_model:
            return None
        number = str(workspace.gpu_count)
    asked = orders.read_cards(session, number, request.gpu_model, named)
    _refuse_other_host(session, workspace, named)
    return None if _has(session, workspace, asked) else asked


def _refuse_other_host(session: Session, workspace: Workspace, named: tuple[str, ...]) -> None:
    here = set(session.scalars(select(Gpu.uuid).where(Gpu.host_id == workspace.host_id, Gpu.uuid.in_(named))))
    if not here >= set(named):
        raise InvalidInput.of("gpus", N_("A workspace stays on its host. Choose GPUs of that host."))


def _has(session: Session, workspace: Workspace, asked: CardRequest) -> bool:
    """Whether its present cards are what is asked for. One that is not well is not, unless it is named."""
    if asked.uuids or asked.count != workspace.gpu_count:
        return set(asked.uuids) == set(workspace.gpu_uuids) and asked.count == workspace.gpu_count
    models = gpus.models_of(session, workspace.host_id, workspace.gpu_uuids)
    if asked.model not in (None, workspace.gpu_model) and models != [asked.model]:
        return False
    ill = select(Gpu.key).where(Gpu.host_id == workspace.host_id, Gpu.uuid.in_(workspace.gpu_uuids),
                                Gpu.condition != Condition.OK)
    return session.scalar(ill.limit(1)) is None


# -- writing


def _write(session: Session, workspace: Workspace, asked: _Change) -> None:
    if asked.limits is not None:
        workspace.cpu_millis = asked.limits.cpu_millis
        workspace.memory_bytes = asked.limits.memory_bytes
        workspace.shm_bytes = asked.limits.shm_bytes
    if asked.cards is not None:
        workspace.gpu_count = asked.cards.count
        workspace.gpu_model = asked.cards.model
    if asked.mounts is not None:
        try:
            with session.begin_nested():
                before.set_mounts(session, workspace.id, asked.mounts.items())
        except IntegrityError as error:
            raise orders.no_such_volume() from error    # it was removed a moment ago (PostgreSQL only)


def _claim(session: Session, workspace: Workspace, asked: _Change, now: datetime) -> None:
    """Cards that were asked for are had, or nothing; otherwise as at a start."""
    if asked.cards is None:
        if wishes.claim_again(session, workspace, now=now):
            workspace.before_change = None
        return
    cuda_version = session.get_one(Image, workspace.image_id).cuda_version
    try:
        gpus.claim_for(session, workspace, asked.cards, cuda_version=cuda_version, now=now)
    except NoCapacity as error:
        if refusal := gpus.image_refusal(session, asked.cards, cuda_version):
            raise InvalidInput.of("gpus", WORDINGS[refusal.code].title, **refusal.facts) from error
        raise
    if asked.cards.count == 0:
        workspace.gpu_uuids = []


def _to_be_asked_for(workspace: Workspace, cards: CardRequest) -> list[str]:
    """At its next start, before others: those that were named, or of those that it had last as many as will do."""
    if cards.uuids or cards.model or cards.count > len(workspace.gpu_uuids):
        return list(cards.uuids)
    return workspace.gpu_uuids[:cards.count]


def _shown(session: Session, workspace: Workspace) -> dict[str, Any]:
    """For the history."""
    mounts = sorted(before.mounts_of(session, workspace.id).items())
    return {"cpu_millis": workspace.cpu_millis, "memory_bytes": workspace.memory_bytes,
            "shm_bytes": workspace.shm_bytes, "gpus": list(workspace.gpu_uuids), "gpu_count": workspace.gpu_count,
            "mounts": [f"{volume_id}:{'ro' if read_only else 'rw'}" for volume_id, read_only in mounts]}
