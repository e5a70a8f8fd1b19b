"""Several outputs about one host → its cards.

`-L` and the CSV say which cards there are. The XML only adds: it holds process names, which users write (see
parse/report.py), so that no card, and no fault of a card, is believed on its word alone. A card is in order only when a
second output says something about it: `-L` goes on listing cards that are lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from webapp.domain.gpu import (
    Condition,
    Gpu,
    Inventory,
    InventoryTrouble,
    Link,
    MigSlice,
    Topology,
    by_index,
    refuse_doubles,
)
from webapp.domain.reasons import Reason
from webapp.gpus.parse import cells
from webapp.gpus.parse.facts import CardFacts
from webapp.gpus.parse.failures import DeviceFailure, device_failures
from webapp.gpus.parse.listing import Listing
from webapp.gpus.parse.report import Report
from webapp.gpus.parse.rows import GpuRows
from webapp.gpus.parse.topology import TopologyTable

_PCI = re.compile(r"([0-9A-F]{4,8}):([0-9A-F]{2}):([0-9A-F]{2})\.([0-9A-F])")
MOST_MESSAGES = 20
MOST_CARDS = 512            # more is garbage, and pairs of it are compared


@dataclass(frozen=True, slots=True)
class _Card:
    facts: CardFacts
    confirmed: bool             # another output than `-L` says something about it


def merge(
    listing: Listing, rows: GpuRows, report: Report, topology: TopologyTable, *, trouble: InventoryTrouble | None
) -> Inventory:
    cards = _joined(listing.cards[:MOST_CARDS], rows.cards[:MOST_CARDS])
    cards = _with_report(cards, report) if cards else _of_report(report)
    failures = device_failures((*listing.stray, *rows.stray))[:MOST_CARDS]
    driver = next((card.facts.driver_version for card in cards if card.facts.driver_version), report.driver_version)
    cuda = cells.text(report.cuda_version)
    seen = [_gpu(card, driver, cuda) for card in cards]
    gpus = by_index(refuse_doubles(_with_failures(seen, failures)))
    return Inventory(
        gpus=gpus, topology=_topology(topology, gpus), driver_version=driver, cuda_version=cuda, trouble=trouble,
        messages=(*listing.stray, *rows.stray)[:MOST_MESSAGES])


def normal_pci(text: str | None) -> str | None:
    """`0000:53:00.0` → `00000000:53:00.0`: drivers print 4 or 8 digits of the domain."""
    match = _PCI.fullmatch(text.upper()) if text else None
    return f"{match[1].zfill(8)}:{match[2]}:{match[3]}.{match[4]}" if match else text


def _joined(listed: Sequence[CardFacts], rows: Sequence[CardFacts]) -> list[_Card]:
    left = list(rows)
    cards = []
    for card in listed:
        row = _take(left, card)
        cards.append(_Card(row.or_else(card) if row else card, confirmed=row is not None))
    return cards + [_Card(row, confirmed=True) for row in left]


def _take(rows: list[CardFacts], card: CardFacts) -> CardFacts | None:
    """The row of this card, taken out of the list."""
    place = next((place for place, row in enumerate(rows) if _is_same(card, row)), None)
    return None if place is None else rows.pop(place)


def _is_same(card: CardFacts, row: CardFacts) -> bool:
    """By UUID; a row that has none (its driver prints an error there) by index."""
    return row.uuid == card.uuid if row.uuid else row.index is not None and row.index == card.index


def _with_report(cards: list[_Card], report: Report) -> list[_Card]:
    """Each card and what the report adds. Two of one UUID, and one of them may be forged: neither is used."""
    times = Counter(_key(card) for card in report.cards)
    once = {_key(card): card for card in report.cards if times[_key(card)] == 1}
    return [_added(card, once.get(_key(card.facts))) for card in cards]


def _key(card: CardFacts) -> str | None:
    return card.uuid or normal_pci(card.pci_bus_id)


def _added(card: _Card, report: CardFacts | None) -> _Card:
    if report is None:
        return card
    report = replace(report, index=None, mig_slices=_slices(card.facts.mig_slices, report.mig_slices))
    if card.confirmed:
        report = replace(report, lost=None, reset=None, unread=None)
    facts = replace(card.facts, mig_slices=report.mig_slices)
    return _Card(facts.or_else(report), confirmed=True)


def _slices(listed: Sequence[MigSlice] | None, reported: Sequence[MigSlice] | None) -> tuple[MigSlice, ...]:
    """`-L` has UUID and profile, the report instances and memory; both have the index within the card."""
    more = {part.index: part for part in reported or ()}
    if listed is None:
        return tuple(reported or ())
    return tuple(_slice(part, more.get(part.index)) for part in listed)


def _slice(part: MigSlice, more: MigSlice | None) -> MigSlice:
    if more is None:
        return part
    return replace(
        part, memory_total_bytes=more.memory_total_bytes,
        gpu_instance_id=part.gpu_instance_id if part.gpu_instance_id is not None else more.gpu_instance_id,
        compute_instance_id=(
            part.compute_instance_id if part.compute_instance_id is not None else more.compute_instance_id))


def _of_report(report: Report) -> list[_Card]:
    """Nothing else could be read. Positions are indexes only when no card is left out."""
    whole = report.attached_gpus == len(report.cards)
    return [_Card(card if whole else replace(card, index=None), confirmed=True) for card in report.cards[:MOST_CARDS]]


def _gpu(card: _Card, driver: str | None, cuda: str | None) -> Gpu:
    facts = card.facts
    gpu = Gpu(
        uuid=facts.uuid, index=facts.index, name=facts.name, pci_bus_id=normal_pci(facts.pci_bus_id),
        memory_total_bytes=facts.memory_total_bytes, shares_host_memory=bool(facts.shares_host_memory),
        driver_version=facts.driver_version or driver, cuda_version=cuda, mig_mode=facts.mig_mode,
        mig_slices=facts.mig_slices or (), compute_mode=facts.compute_mode, processes=facts.processes)
    if facts.lost:
        return _lost(gpu, facts.lost)
    if facts.reset:
        return _faulty(gpu, "gpu_reset_required", action=facts.reset)
    return gpu if card.confirmed and not facts.unread else _faulty(gpu, "gpu_silent")


def _with_failures(gpus: Sequence[Gpu], failures: Sequence[DeviceFailure]) -> list[Gpu]:
    """Cards that the driver could not reach: marked when they are known by their PCI address, else added."""
    result = list(gpus)
    for failure in failures:
        pci = normal_pci(failure.pci_bus_id)
        known = next((place for place, gpu in enumerate(result) if gpu.pci_bus_id == pci), None)
        if known is None:
            result = [_unclear(gpu) for gpu in result]
            result.append(_failed(Gpu(uuid=None, index=failure.index, name=None, pci_bus_id=pci), failure))
        else:
            result[known] = _failed(result[known], failure)
    return result


def _failed(gpu: Gpu, failure: DeviceFailure) -> Gpu:
    if failure.denied:
        return _faulty(gpu, "gpu_denied", detail=failure.detail)
    return _lost(gpu, failure.detail)


def _unclear(gpu: Gpu) -> Gpu:
    """Without an address it may be the very card that failed."""
    if gpu.pci_bus_id or gpu.condition is not Condition.OK:
        return gpu
    return _faulty(gpu, "gpu_unclear")


def _lost(gpu: Gpu, detail: str) -> Gpu:
    return replace(gpu, condition=Condition.LOST, fault=Reason("gpu_lost", {"gpu": gpu.label, "detail": detail}),
                   processes=None)


def _faulty(gpu: Gpu, code: str, **facts: str) -> Gpu:
    return replace(gpu, condition=Condition.FAULTY, fault=Reason(code, {"gpu": gpu.label, **facts}))


def _topology(table: TopologyTable, gpus: Sequence[Gpu]) -> Topology:
    """By UUID. The table has indexes only: it is used when every card that has one is in it, and each once."""
    by_number = {gpu.index: gpu.uuid for gpu in gpus if gpu.index is not None and gpu.uuid}
    live = [gpu for gpu in gpus if gpu.condition is not Condition.LOST]
    if len(by_number) < len(live) or not set(by_number) <= table.indexes:
        return Topology()
    links: dict[tuple[str, str], Link] = {}
    for (one, other), link in table.links.items():
        first, second = by_number.get(one), by_number.get(other)
        if first and second and first != second:
            links[min(first, second), max(first, second)] = link
    return Topology(links)


