"""Facts of a card as text, and how a token of the tables becomes a value."""

from __future__ import annotations

import time
from typing import Any

_CELL_FAULTS = {"reset-required": "[GPU requires reset]", "not-reported": "[N/A]", "unknown-error": "[Unknown Error]",
                "not-supported": "[Not Supported]", "hidden": "[Insufficient Permissions]"}
_MEASURED = ("utilization", "memory_utilization", "zero", "temperature", "power", "clock", "memory_clock", "used_mib",
             "free_mib", "fan", "pstate", "corrected", "uncorrected", "ecc_zero")


def facts_of(state: dict[str, Any], card: dict[str, Any]) -> dict[str, str]:
    """Every @ of the tables above as text without its unit; what is not reported stands in square brackets."""
    bus = card["bus_id"]
    total, used, reserved = card["memory_mib"], card["used_mib"], card["reserved_mib"]
    told: dict[str, Any] = {
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.") + f"{time.time() % 1 * 1000:03.0f}"[:3],
        "driver": state["host"]["driver"], "count": card["count"], "index": card["index"], "name": card["name"],
        "serial": card["serial"], "uuid": card["uuid"], "bus_id": bus, "domain": "0x" + bus[4:8],
        "bus": "0x" + bus[9:11], "device": "0x" + bus[12:14], "device_id": "0x" + card["pci_device"],
        "domain_digits": bus[4:8], "bus_digits": bus[9:11], "device_digits": bus[12:14], "board": f"0x{bus[9:11]}00",
        "device_id_digits": card["pci_device"], "brand": card["brand"], "architecture": card["architecture"],
        "compute_cap": card["compute_capability"], "memory_mib": total, "used_mib": used, "reserved_mib": reserved,
        "free_mib": None if total is None or used is None else max(total - used - (reserved or 0), 0),
        "utilization": card["utilization_percent"], "memory_utilization": card["memory_utilization_percent"],
        "zero": None if card["utilization_percent"] is None else 0, "temperature": card["temperature_c"],
        "power": _watts(card["power_w"]), "power_limit": _watts(card["power_limit_w"]), "clock": card["clock_mhz"],
        "max_clock": card["max_clock_mhz"], "memory_clock": card["memory_clock_mhz"], "mig": card["mig_mode"],
        "fan": card["fan_percent"], "pstate": "P0" if card["utilization_percent"] else "P8", "ecc": card["ecc"],
        "idle": "Not Active" if card["utilization_percent"] else "Active", "recovery": "None", "reset": "No",
        "reasons": "0x000000000000000" + ("0" if card["utilization_percent"] else "1")}
    counted = card["ecc"] == "Enabled"
    told.update(corrected=card["corrected_errors"] if counted else None, ecc_zero=0 if counted else None,
                uncorrected=card["uncorrected_errors"] if counted else None, ecc_no="No" if counted else None)
    facts = {name: "[N/A]" if value is None else str(value) for name, value in told.items()}
    return _faulty(facts, card["fault"])


def _watts(power: float | None) -> str | None:
    return None if power is None else f"{power:.2f}"


def _faulty(facts: dict[str, str], fault: str | None) -> dict[str, str]:
    if fault in _CELL_FAULTS:
        facts.update(dict.fromkeys(_MEASURED, _CELL_FAULTS[fault]))
    if fault == "err":
        facts.update(fan="[Unknown Error]", utilization="93")
    if fault in ("err", "reset-required"):
        facts.update(recovery="Reset", reset="Yes")
    return facts


def tokens(text: str) -> list[tuple[list[str], str, str]]:
    """[(names, unit, value)] of `name|alias:unit=value …`."""
    found = []
    for token in text.split():
        left, _, value = token.partition("=")
        names, _, unit = left.partition(":")
        found.append((names.split("|"), unit, value if value.startswith("@") else value.replace("_", " ") or "[N/A]"))
    return found


def value_of(source: str, facts: dict[str, str]) -> str:
    return facts[source[1:]] if source.startswith("@") else source


def plain(source: str, unit: str, facts: dict[str, str]) -> str:
    """For XML and the table: without brackets, with its unit if it is a figure."""
    value = value_of(source, facts)
    return value[1:-1] if value.startswith("[") else f"{value} {unit}" if unit else value
def process_facts(process: dict[str, Any], fault: str | None) -> dict[str, str]:
    memory, hidden = process["memory_mib"], fault == "hidden"
    told = {"pid": process["pid"], "process": _CELL_FAULTS["hidden"] if hidden else process["name"],
            "process_mib": _CELL_FAULTS["hidden"] if hidden else memory, "kind": process["kind"],
            "gi": process["gpu_instance"], "ci": process["compute_instance"]}
    return {name: "[N/A]" if value is None else str(value) for name, value in told.items()}
