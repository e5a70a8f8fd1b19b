"""The cards of a host as the agent saw them, written down. A card that was known is never forgotten by a look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.gpu import NO_CARDS, Condition, Gpu, Inventory, MigMode, MigSlice, with_known
from webapp.domain.reasons import Reason
from webapp.store.reads.agent import is_newest_agent
from webapp.store.tables import Gpu as Row
from webapp.store.tables import GpuClaim, Host

UNNAMED = "?"       # a driver that tells no model


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the cards of a host."""

    inventory: Inventory
    busy: Mapping[str, Reason]      # UUID → why it is not free although it is well: somebody else's work
    simulated: bool


def record(session: Session, host_id: str, look: Look, *, epoch: int, now: datetime) -> bool:
    """False = a newer agent has taken over, nothing was written."""
    if not is_newest_agent(session, epoch):
        return False
    rows = {row.key: row for row in session.scalars(select(Row).where(Row.host_id == host_id))}
    seen = look.inventory
    listed = {gpu.uuid for gpu in seen.gpus}
    whole = with_known(known(rows.values()), seen)
    cards = [card for gpu in whole.gpus for card in _with_slices(gpu, look)]
    for card in cards:
        row = rows.pop(card["key"], None)
        is_seen = seen.trouble is None or card["uuid"] in listed
        _write(session, row, {**card, "host_id": host_id}, is_seen=is_seen, now=now)
    _drop(session, rows.values(), is_whole=seen.trouble is None or seen.trouble.code == NO_CARDS, now=now)
    _write_host(session, session.get_one(Host, host_id), seen, now)
    return True


def known(rows: Iterable[Row]) -> list[Gpu]:
    """The cards of these rows as values, each with its slices."""
    rows = list(rows)
    slices: dict[str | None, list[MigSlice]] = {}
    for row in rows:
        if row.parent_uuid is not None:
            part = MigSlice(index=row.index or 0, uuid=row.uuid, memory_total_bytes=row.memory_bytes)
            slices.setdefault(row.parent_uuid, []).append(part)
    return [_value(row, tuple(slices.get(row.uuid, ()))) for row in rows if row.uuid and row.parent_uuid is None]


def _value(row: Row, slices: tuple[MigSlice, ...]) -> Gpu:
    condition = Condition(row.condition)
    fault = Reason(row.refusal["code"], row.refusal["facts"]) if row.refusal and condition is not Condition.OK else None
    return Gpu(
        uuid=row.uuid, index=row.index, name=row.model, pci_bus_id=row.pci_bus_id, memory_total_bytes=row.memory_bytes,
        shares_host_memory=row.shares_host_memory, mig_mode=MigMode(row.mig_mode) if row.mig_mode else None,
        mig_slices=slices, condition=condition, fault=fault)


def _with_slices(gpu: Gpu, look: Look) -> Iterable[dict[str, Any]]:
    """A row for the card, and one for each of its slices that has a UUID."""
    refusal = gpu.why_not or look.busy.get(gpu.uuid or "")
    model = gpu.name or UNNAMED
    card = {
        "key": gpu.uuid or f"{UNNAMED}{gpu.pci_bus_id or gpu.index}", "uuid": gpu.uuid, "parent_uuid": None,
        "index": gpu.index, "model": model, "pci_bus_id": gpu.pci_bus_id, "memory_bytes": gpu.memory_total_bytes,
        "shares_host_memory": gpu.shares_host_memory, "mig_mode": gpu.mig_mode, "condition": gpu.condition,
        "refusal": refusal.as_json() if refusal else None, "simulated": look.simulated,
    }
    yield card
    claimable = gpu.claimable
    for part in gpu.mig_slices:
        if not part.uuid:
            continue
        named = replace(gpu, name=f"{model} MIG {part.profile}" if part.profile else model)
        why = look.busy.get(part.uuid) if part.uuid in claimable else gpu.fault or Reason(
            "gpu_faulty", {"gpu": named.label})
        yield {
            **card, "key": part.uuid, "uuid": part.uuid, "parent_uuid": gpu.uuid, "model": named.name,
            "memory_bytes": part.memory_total_bytes, "mig_mode": None, "refusal": why.as_json() if why else None,
        }


def _write(session: Session, row: Row | None, card: Mapping[str, Any], *, is_seen: bool, now: datetime) -> None:
    """What a look leaves out (a model, a size) is as it was known."""
    if row is None:
        session.add(Row(**card, condition_at=now, seen_at=now))
        return
    if row.condition != card["condition"]:
        row.condition_at = now
    for name, value in card.items():
        if value is None and name in ("memory_bytes", "pci_bus_id", "index") or value == UNNAMED:
            continue
        if getattr(row, name) != value:
            setattr(row, name, value)
    if is_seen and row.condition != Condition.LOST:
        row.seen_at = now


def _drop(session: Session, rows: Iterable[Row], *, is_whole: bool, now: datetime) -> None:
    """Slices that an administrator did away with, and cards that had no name and have one now.

    One that somebody holds stays, lost, until it is given back.
    """
    if not is_whole:
        return
    for row in rows:
        is_held = row.uuid is not None and session.scalar(
            select(GpuClaim.gpu_uuid).where(GpuClaim.gpu_uuid == row.uuid)) is not None
        if not is_held:
            session.delete(row)
        elif row.condition != Condition.LOST:
            label = Gpu(row.uuid, row.index, row.model).label
            row.condition, row.condition_at = Condition.LOST, now
            row.refusal = Reason("gpu_vanished", {"gpu": label}).as_json()


def _write_host(session: Session, host: Host, seen: Inventory, now: datetime) -> None:
    host.gpus_seen_at = now
    host.gpu_trouble = seen.trouble.reason.as_json() if seen.trouble else None
    if seen.driver_version is not None or seen.trouble is None:
        host.driver_version, host.cuda_version = seen.driver_version, seen.cuda_version
    if seen.topology.links:
        host.gpu_links = {" ".join(pair): link.closeness for pair, link in seen.topology.links.items()}
