"""Simulated hosts to begin with, and what a load does to a card's figures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from webapp.simulation.state import Card, Host, Process, Simulation, Slice, simulated_uuid

IDLE_C, BUSY_C = 31, 74
IDLE_CLOCK_MHZ = 210
FIRST_PID = 40_001

# As drivers report these models: memory of an A100 is 81920 MiB, of an H100 81559 MiB, with ECC on.
_MODELS: dict[str, dict[str, Any]] = {
    "NVIDIA A100-SXM4-80GB": {
        "brand": "NVIDIA", "architecture": "Ampere", "compute_capability": "8.0", "pci_device": "20B210DE",
        "memory_mib": 81920, "reserved_mib": 644, "power_limit_w": 400.0, "idle_power_w": 61.0,
        "max_clock_mhz": 1410, "memory_clock_mhz": 1593, "ecc": "Enabled", "mig_mode": "Disabled"},
    "NVIDIA H100 80GB HBM3": {
        "brand": "NVIDIA", "architecture": "Hopper", "compute_capability": "9.0", "pci_device": "233010DE",
        "memory_mib": 81559, "reserved_mib": 480, "power_limit_w": 700.0, "idle_power_w": 69.0,
        "max_clock_mhz": 1980, "memory_clock_mhz": 2619, "ecc": "Enabled", "mig_mode": "Disabled"},
    "NVIDIA L4": {
        "brand": "NVIDIA", "architecture": "Ada Lovelace", "compute_capability": "8.9", "pci_device": "27B810DE",
        "memory_mib": 23034, "reserved_mib": 455, "power_limit_w": 72.0, "idle_power_w": 16.0,
        "max_clock_mhz": 2040, "memory_clock_mhz": 6251, "ecc": "Enabled", "mig_mode": None},
    "NVIDIA GeForce RTX 3090": {
        "brand": "GeForce", "architecture": "Ampere", "compute_capability": "8.6", "pci_device": "220410DE",
        "memory_mib": 24576, "reserved_mib": 405, "power_limit_w": 350.0, "idle_power_w": 18.0,
        "max_clock_mhz": 2100, "memory_clock_mhz": 9751, "ecc": None, "mig_mode": None, "fan_percent": 30},
    "NVIDIA GeForce RTX 3080 Ti": {
        "brand": "GeForce", "architecture": "Ampere", "compute_capability": "8.6", "pci_device": "220810DE",
        "memory_mib": 12288, "reserved_mib": 303, "power_limit_w": 350.0, "idle_power_w": 21.0,
        "max_clock_mhz": 2100, "memory_clock_mhz": 9501, "ecc": None, "mig_mode": None, "fan_percent": 0},
    "NVIDIA RTX A5000": {
        "brand": "NVIDIA RTX", "architecture": "Ampere", "compute_capability": "8.6", "pci_device": "223110DE",
        "memory_mib": 24564, "reserved_mib": 427, "power_limit_w": 230.0, "idle_power_w": 15.0,
        "max_clock_mhz": 2100, "memory_clock_mhz": 8001, "ecc": "Disabled", "mig_mode": None, "fan_percent": 30},
    "NVIDIA GB10": {
        "brand": "NVIDIA", "architecture": "Blackwell", "compute_capability": "12.1", "pci_device": "2E1210DE",
        "memory_mib": None, "reserved_mib": None, "used_mib": None, "power_limit_w": None, "idle_power_w": 4.0,
        "max_clock_mhz": 3003, "memory_clock_mhz": None, "ecc": None, "mig_mode": None},
    "Orin (nvgpu)": {
        "brand": "N/A", "architecture": "Ampere", "compute_capability": "8.7", "pci_device": "00000000",
        "memory_mib": None, "reserved_mib": None, "used_mib": None, "power_limit_w": None, "idle_power_w": None,
        "max_clock_mhz": None, "memory_clock_mhz": None, "ecc": None, "mig_mode": None,
        "utilization_percent": None, "memory_utilization_percent": None, "temperature_c": None},
}
# Profile, GPU instance, memory in MiB, multiprocessors; as an H100 of 80 GB is cut.
_H100_SLICES = (("3g.40gb", 2, 40448, 60), ("2g.20gb", 3, 20096, 32), ("1g.10gb", 9, 9984, 16),
                ("1g.10gb", 10, 9984, 16))


def preset(name: str, seed: str = "berth") -> Simulation:
    """A fresh simulated host; UUIDs and serials are the same for the same seed.

    Args:    name: a key of PRESETS.
    """
    simulation = PRESETS[name](f"{seed}/{name}")    # another preset has other cards, so no UUID of this one
    simulation.preset = name
    return simulation


def four(seed: str) -> Simulation:
    """Four A100: cards 0 and 1, 2 and 3 share twelve NVLinks, the pairs are on different processors."""
    cards = _cards(["NVIDIA A100-SXM4-80GB"] * 4, seed)
    return Simulation(cards=cards, links={**_pair(cards, 0, 1, "NV12"), **_pair(cards, 2, 3, "NV12")})


def eighteen(seed: str) -> Simulation:
    """Eighteen L4, nine on each processor: two-digit numbers, no NVLink."""
    cards = _cards(["NVIDIA L4"] * 18, seed)
    links: dict[str, str] = {}
    for first in range(18):
        for second in range(first + 1, 18):
            if cards[first].numa_node == cards[second].numa_node:
                links |= _pair(cards, first, second, "PIX" if first // 3 == second // 3 else "NODE")
    return Simulation(cards=cards, links=links)


def mixed(seed: str) -> Simulation:
    """Three models, none of them in order; the two 3090 share a bridge."""
    cards = _cards(["NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 3090", "NVIDIA RTX A5000",
                    "NVIDIA GeForce RTX 3090"], seed)
    return Simulation(cards=cards, links={**_pair(cards, 1, 3, "NV4"), **_pair(cards, 0, 1, "PHB")})


def mig(seed: str) -> Simulation:
    """Two H100; the first is cut into four slices."""
    cards = _cards(["NVIDIA H100 80GB HBM3"] * 2, seed)
    first = cards[0]
    first.mig_mode, first.utilization_percent, first.memory_utilization_percent = "Enabled", None, None
    first.slices = [Slice(simulated_uuid(seed, number, "MIG-"), profile, instance, 0, memory, processors)
                    for number, (profile, instance, memory, processors) in enumerate(_H100_SLICES)]
    return Simulation(cards=cards, links=_pair(cards, 0, 1, "NV18"))


def unified(seed: str) -> Simulation:
    """A GB10 (DGX Spark): one memory for processor and GPU, so that the driver names no size and no use."""
    return Simulation(host=Host(driver="580.126.09"), cards=_cards(["NVIDIA GB10"], seed))


def jetson(seed: str) -> Simulation:
    """A Jetson Orin: a UUID without `GPU-`, and nothing measured."""
    cards = _cards(["Orin (nvgpu)"], seed)
    cards[0].uuid, cards[0].serial = simulated_uuid(seed, 0, ""), None
    return Simulation(host=Host(driver="540.4.0", cuda="12.6"), cards=cards)


PRESETS: dict[str, Callable[[str], Simulation]] = {
    "four": four, "eighteen": eighteen, "mixed": mixed, "mig": mig, "unified": unified, "jetson": jetson}


def put_load(card: Card, *, utilization_percent: int | None = None, memory_mib: int | None = None) -> None:
    """What a driver would report then: power, heat and clocks follow utilization. What a card lacks stays unreported.

    Args:    utilization_percent: 0–100.   memory_mib: all that is in use.   None = leave as it is.
    """
    if memory_mib is not None and card.memory_mib is not None:
        card.used_mib = memory_mib
    if utilization_percent is None or card.utilization_percent is None:
        return
    share = utilization_percent / 100
    card.utilization_percent, card.memory_utilization_percent = utilization_percent, round(60 * share)
    card.temperature_c = round(IDLE_C + (BUSY_C - IDLE_C) * share)
    card.clock_mhz = card.max_clock_mhz if utilization_percent else IDLE_CLOCK_MHZ
    if card.idle_power_w is not None:
        most = card.power_limit_w or 10 * card.idle_power_w
        card.power_w = round(card.idle_power_w + (most - card.idle_power_w) * 0.9 * share, 2)


def put_process(card: Card, name: str, *, memory_mib: int | None, pid: int | None = None) -> Process:
    """A program on that card; its memory is part of what the card has in use, not added to it."""
    taken = max((process.pid for process in card.processes), default=FIRST_PID - 1)
    process = Process(pid or taken + 1, name, memory_mib)
    card.processes.append(process)
    return process


def put_idle(card: Card) -> None:
    card.processes.clear()
    put_load(card, utilization_percent=0, memory_mib=0)


def _cards(names: Sequence[str], seed: str) -> list[Card]:
    """In the order of their bus ids; the second half is on the second processor."""
    half = (len(names) + 1) // 2
    return [_card(name, seed, number, numa_node=number // half) for number, name in enumerate(names)]


def _card(name: str, seed: str, number: int, *, numa_node: int) -> Card:
    serial = 1_320_000_000_000 + int(hashlib.sha256(f"{seed}/{number}".encode()).hexdigest()[:8], 16)
    card = Card(uuid=simulated_uuid(seed, number), name=name, serial=str(serial),
                bus_id=f"00000000:{0x07 + 8 * number:02X}:00.0", numa_node=numa_node, **_MODELS[name])
    card.power_w, card.clock_mhz = card.idle_power_w, card.max_clock_mhz and IDLE_CLOCK_MHZ
    return card


def _pair(cards: Sequence[Card], first: int, second: int, link: str) -> dict[str, str]:
    return {f"{cards[first].uuid} {cards[second].uuid}": link}
