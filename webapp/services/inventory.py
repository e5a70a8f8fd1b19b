"""The cards of a host as the agent saw them, written down. A card that was known is never forgotten by a look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.gpu import NO_CARDS, Condition, Gpu, Inventory, MigMode, MigSlice, with_known
from webapp.domain.reasons import Reason
from webapp.services import locks
from webapp.store.tables import Gpu as Row
from webapp.store.tables import GpuClaim, Host

UNNAMED = "?"       # a driver that tells no model


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the cards of a host."""

    inventory: Inventory
    busy: Mapping[str, Reason]      # UUID → why it is not free although it is well: somebody else's work
    simulated: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A card, or a slice, is in another condition than it was."""

    key: str
    was: Condition | None       # None = it is new
    now: Condition | None       # None = forgotten: nobody held it
    reason: str | None = None   # code


@dataclass(frozen=True, slots=True)
class Recorded:
    changes: tuple[Change, ...]


def record(session: Session, host_id: str, look: Look, *, epoch: int, now: datetime) -> Recorded | None:
    """None = a newer agent has taken over, nothing was written."""
    host = session.scalar(          # locked: nobody claims a card that is just being forgotten
        select(Host).where(Host.id == host_id, locks.by_newest_agent(epoch)).with_for_update(**locks.ROW))
    if host is None:
        return None
    rows = {row.key: row for row in session.scalars(select(Row).where(Row.host_id == host_id).order_by(Row.key))}
    seen = look.inventory
    listed = {gpu.uuid for gpu in seen.gpus}
    whole = with_known(known(rows.values()), seen)
    cards = [card for gpu in whole.gpus for card in _with_slices(gpu, look)]
    changes: list[Change] = []
    for card in cards:
        is_seen = seen.trouble is None or card["uuid"] in listed
        changes += _write(session, rows.pop(card["key"], None), {**card, "host_id": host_id}, is_seen=is_seen, now=now)
    if seen.trouble is None or seen.trouble.code == NO_CARDS:
        changes += _drop(session, rows.values(), now=now)
    else:
        changes += _refuse(rows.values(), seen.trouble.reason, now=now)
    _write_host(session, host, seen, now)
    return Recorded(tuple(changes))


def known(rows: Iterable[Row]) -> list[Gpu]:
    """The cards of these rows as values, each with its slices."""
    rows = list(rows)
    models = {row.uuid: row.model for row in rows}
    slices: dict[str | None, list[MigSlice]] = {}
    for row in rows:
        if row.parent_uuid is not None:
            part = MigSlice(len(slices.get(row.parent_uuid, ())), row.uuid, memory_total_bytes=row.memory_bytes,
                            profile=_profile(row, models.get(row.parent_uuid)))
            slices.setdefault(row.parent_uuid, []).append(part)
    return [_value(row, tuple(slices.get(row.uuid, ()))) for row in rows if row.uuid and row.parent_uuid is None]


def _profile(row: Row, model: str | None) -> str | None:
    whole, _, profile = row.model.partition(" MIG ")
    return profile if whole == model and profile else None


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
        named = gpu.as_slice(part)
        why = look.busy.get(part.uuid) if part.uuid in claimable else gpu.fault or Reason(
            "gpu_faulty", {"gpu": named.label})
        yield {
            **card, "key": part.uuid, "uuid": part.uuid, "parent_uuid": gpu.uuid, "model": named.name or model,
            "memory_bytes": part.memory_total_bytes, "mig_mode": None, "refusal": why.as_json() if why else None,
        }


def _write(
    session: Session, row: Row | None, card: Mapping[str, Any], *, is_seen: bool, now: datetime
) -> Iterable[Change]:
    """What a look leaves out (a model, a size) is as it was known."""
    condition, code = card["condition"], (card["refusal"] or {}).get("code")
    if row is None:
        session.add(Row(**card, condition_at=now, seen_at=now))
        return [Change(card["key"], None, condition, code)]
    was = Condition(row.condition)
    for name, value in card.items():
        if value is None and name in ("memory_bytes", "pci_bus_id", "index") or value == UNNAMED:
            continue
        if getattr(row, name) != value:
            setattr(row, name, value)
    if is_seen and condition is not Condition.LOST:
        row.seen_at = now
    if was is condition:
        return []
    row.condition_at = now
    return [Change(row.key, was, condition, code)]


def _drop(session: Session, rows: Iterable[Row], *, now: datetime) -> Iterable[Change]:
    """Slices that an administrator did away with, and cards that had no name and have one now.

    One that somebody holds stays, lost, until it is given back.
    """
    for row in rows:
        is_held = row.uuid is not None and session.scalar(
            select(GpuClaim.gpu_uuid).where(GpuClaim.gpu_uuid == row.uuid)) is not None
        if is_held:
            yield from _mark(row, Condition.LOST, Reason("gpu_vanished", {"gpu": _label(row)}), now)
        else:
            session.delete(row)
            yield Change(row.key, Condition(row.condition), None)


def _refuse(rows: Iterable[Row], reason: Reason, *, now: datetime) -> Iterable[Change]:
    """Slices that a look did not come to: they are as before, and only refused to new workspaces."""
    for row in rows:
        if row.condition == Condition.OK:
            yield from _mark(row, Condition.FAULTY, reason, now)


def _mark(row: Row, condition: Condition, reason: Reason, now: datetime) -> Iterable[Change]:
    was = Condition(row.condition)
    if was is condition:
        return []
    row.condition, row.condition_at, row.refusal = condition, now, reason.as_json()
    return [Change(row.key, was, condition, reason.code)]


def _label(row: Row) -> str:
    return Gpu(row.uuid, row.index, row.model).label


def _write_host(session: Session, host: Host, seen: Inventory, now: datetime) -> None:
    host.gpus_seen_at = now
    host.gpu_trouble = seen.trouble.reason.as_json() if seen.trouble else None
    if seen.driver_version is not None or seen.trouble is None:
        host.driver_version, host.cuda_version = seen.driver_version, seen.cuda_version
    if seen.topology.links:
        host.gpu_links = {" ".join(pair): link.closeness for pair, link in seen.topology.links.items()}
