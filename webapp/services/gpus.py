"""Claims on GPUs. They move only through these functions, whoever calls them.

A claim is a row that exists, by UUID: the database refuses a second holder. All cards of a request or none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from webapp.domain import cuda
from webapp.domain.placement import NO_CARDS, Card, CardRequest, Links, NoPlacement, Placement, place
from webapp.domain.reasons import Reason
from webapp.errors import NoCapacity
from webapp.services import hold
from webapp.store.tables import Gpu, GpuClaim, Host, Workspace

TRIES = 2       # whoever loses a race places once more, among what is left
SLOT = 0        # a card has one holder


def find(
    session: Session, request: CardRequest, *, cuda_version: str | None, host_id: str | None = None,
    lost: Collection[str] = (), own: Collection[str] = (),
) -> Placement:
    """Cards for `request`, not yet claimed. Raises NoCapacity; OnHold, because nobody knows then what is free.

    Args:  cuda_version: of the image; a host whose driver is too old for it offers nothing.   host_id: the only host
           that will do; None = any.   lost: UUIDs that somebody else was seen to claim a moment ago.   own: those that
           who asks holds already; where they are enough for a number of cards, it keeps to them.
    """
    if request == NO_CARDS:
        return Placement(None, ())
    hold.refuse_cards(session)
    cards, links = offered(session, cuda_version=cuda_version, host_id=host_id)
    cards = [replace(card, claimed=card.uuid not in own and (card.claimed or card.uuid in lost)) for card in cards]
    found = place(request, [card for card in cards if card.uuid in own], links)
    if isinstance(found, NoPlacement):
        found = place(request, cards, links)
    if isinstance(found, NoPlacement):
        raise NoCapacity(**found.facts())
    return found


def claim(
    session: Session, workspace: Workspace, request: CardRequest, found: Placement, *, cuda_version: str | None,
    host_id: str | None = None, own: Collection[str] = (), now: datetime,
) -> Placement:
    """`found`, now the workspace's; others if somebody was faster. Raises NoCapacity.

    Its `gpu_uuids` are set; its host is not: another placement may be on another one.
    """
    lost: frozenset[str] = frozenset()
    for _ in range(TRIES):
        new = [uuid for uuid in found.uuids if uuid not in own]
        if _insert(session, workspace.id, found.host_id, new, now):
            workspace.gpu_uuids = list(found.uuids)
            return found
        lost |= _held_of(session, new)
        found = find(session, request, cuda_version=cuda_version, host_id=host_id, lost=lost, own=own)
    raise NoCapacity(wanted=request.count, largest_free=0, why=[], next_best=[])


def claim_for(
    session: Session, workspace: Workspace, request: CardRequest, *, cuda_version: str | None, now: datetime,
) -> Placement:
    """Find and claim on its own host, beside what it holds: what it needs no more is given back when it has moved."""
    own, host_id = held(session, workspace.id), workspace.host_id
    found = find(session, request, cuda_version=cuda_version, host_id=host_id, own=own)
    return claim(session, workspace, request, found, cuda_version=cuda_version, host_id=host_id, own=own, now=now)


def release(session: Session, workspace_id: str, *, keep: Collection[str] = ()) -> tuple[str, ...]:
    """For the agent, with proof that no container with them is up; never at the request. What was given back."""
    released = tuple(uuid for uuid in held(session, workspace_id) if uuid not in keep)
    session.execute(
        delete(GpuClaim).where(GpuClaim.workspace_id == workspace_id, GpuClaim.gpu_uuid.in_(released)))
    return released


def assign(session: Session, workspace_id: str, host_id: str, uuids: Collection[str], *, now: datetime) -> None:
    """These very cards and no others, as a hold ends. Nobody else holds one of them any more."""
    session.execute(delete(GpuClaim).where(GpuClaim.workspace_id == workspace_id))
    session.add_all(GpuClaim(gpu_uuid=uuid, slot=SLOT, host_id=host_id, workspace_id=workspace_id, claimed_at=now)
                    for uuid in sorted(uuids))
    session.flush()


def held(session: Session, workspace_id: str) -> tuple[str, ...]:
    """UUIDs that it holds, ascending."""
    return tuple(session.scalars(
        select(GpuClaim.gpu_uuid).where(GpuClaim.workspace_id == workspace_id).order_by(GpuClaim.gpu_uuid)))


def offered(
    session: Session, *, cuda_version: str | None, host_id: str | None = None,
) -> tuple[list[Card], Links]:
    """Every card there is, each with the reason why it is not offered, if there is one."""
    hosts = {host.id: host for host in session.scalars(select(Host)) if host_id in (None, host.id)}
    taken = set(session.scalars(select(GpuClaim.gpu_uuid)))
    rows = session.scalars(select(Gpu).where(Gpu.host_id.in_(hosts)))
    cards = [_card(row, hosts[row.host_id], cuda_version, taken) for row in rows]
    links: dict[frozenset[str], int] = {}
    for host in hosts.values():
        links |= {frozenset(pair.split(" ")): rank for pair, rank in (host.gpu_links or {}).items()}
    return cards, links


def models_of(session: Session, host_id: str, uuids: Collection[str]) -> list[str]:
    """Models of these cards of the host, each once, sorted."""
    rows = session.scalars(select(Gpu.model).where(Gpu.host_id == host_id, Gpu.uuid.in_(uuids)).distinct())
    return sorted(rows)


def image_refusal(session: Session, request: CardRequest, cuda_version: str | None) -> Reason | None:
    """Why no card would ever do for that image: each that could be meant is in a host whose driver is too old."""
    drivers = select(Host.driver_version).join(Gpu, Gpu.host_id == Host.id).where(Gpu.uuid.is_not(None))
    if request.uuids:
        drivers = drivers.where(Gpu.uuid.in_(request.uuids))
    refusals = [cuda.refusal(cuda_version, driver) for driver in session.scalars(drivers.distinct())]
    return refusals[0] if refusals and all(refusals) else None


def _card(row: Gpu, host: Host, cuda_version: str | None, taken: set[str]) -> Card:
    card = Card(uuid=row.uuid, host_id=row.host_id, index=row.index, model=row.model, memory_bytes=row.memory_bytes,
                refusal=_as_reason(row.refusal), claimed=row.uuid in taken)
    if card.refusal is None and host.unreachable_since is not None:
        return replace(card, refusal=Reason("gpu_host_silent", {"gpu": card.label}))
    return replace(card, refusal=card.refusal or cuda.refusal(cuda_version, host.driver_version))


def _as_reason(written: Mapping[str, object] | None) -> Reason | None:
    if written is None:
        return None
    facts = written.get("facts")
    return Reason(str(written["code"]), facts if isinstance(facts, Mapping) else {})


def _insert(
    session: Session, workspace_id: str, host_id: str | None, uuids: Collection[str], now: datetime,
) -> bool:
    """Sorted by UUID, so that two that cross each other on PostgreSQL wait instead of locking each other out."""
    rows = [
        GpuClaim(gpu_uuid=uuid, slot=SLOT, host_id=host_id, workspace_id=workspace_id, claimed_at=now)
        for uuid in sorted(uuids)
    ]
    try:
        with session.begin_nested():
            session.add_all(rows)
    except IntegrityError:
        return False
    return True


def _held_of(session: Session, uuids: Collection[str]) -> frozenset[str]:
    return frozenset(session.scalars(select(GpuClaim.gpu_uuid).where(GpuClaim.gpu_uuid.in_(uuids))))
