"""What one output says about one card."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from webapp.domain.gpu import MigMode, MigSlice, Process
from webapp.gpus.parse import cells

# What a driver prints in place of figures when the card is no longer with it, and when it has to be reset first
# (promises.md 6, 9). `-L` goes on listing both.
_LOST = frozenset({"gpu is lost"})
_RESET = frozenset({"gpu requires reset", "reset required"})


@dataclass(frozen=True, slots=True)
class CardFacts:
    """None = this output does not say. Sizes in bytes."""

    index: int | None = None
    uuid: str | None = None                 # as printed, with or without `GPU-`
    name: str | None = None
    pci_bus_id: str | None = None           # as printed: the domain has 4 or 8 digits
    minor_number: int | None = None         # of /dev/nvidia*; neither index nor position
    driver_version: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None        # of the GPU, not of its memory or module
    power_average_watts: float | None = None
    power_instant_watts: float | None = None
    fan_percent: int | None = None
    mig_mode: MigMode | None = None
    mig_slices: tuple[MigSlice, ...] | None = None
    compute_mode: str | None = None
    processes: tuple[Process, ...] | None = None
    shares_host_memory: bool | None = None
    lost: str | None = None                 # the driver's words
    reset: str | None = None                # what the driver asks for
    unread: bool | None = None              # the driver tried and could not read the most basic figure

    def or_else(self, other: CardFacts) -> CardFacts:
        """These facts, and those of `other` where these say nothing."""
        missing = {item.name: getattr(other, item.name) for item in fields(self) if getattr(self, item.name) is None}
        return replace(self, **missing)


def first_power(*draws: float | None) -> float | None:
    """power_draw, else the average, else the instant one: some cards report only the last (T4 with driver 595)."""
    return next((watts for watts in draws if watts is not None), None)


def fault_words(texts: Iterable[str]) -> tuple[str | None, str | None]:
    """(lost, reset): the driver's words in any figure of a card."""
    seen = {cells.word(cell): cell.strip().strip("[]") for cell in texts}
    lost = next((seen[word] for word in _LOST if word in seen), None)
    reset = next((seen[word] for word in _RESET if word in seen), None)
    return lost, reset


def wanted_recovery(action: str | None, reset_required: str | None) -> str | None:
    """What the driver asks for (`Reset`, `Reboot`, `Drain and Reset` …), the only sign of some faults (promises.md 7).

    `reset_status.reset_required` is what drivers 525 to 565 have instead of gpu_recovery_action.
    """
    asked = cells.text(action)
    if asked and asked.lower() not in ("none", "no"):
        return asked
    return "Reset" if cells.word(reset_required) == "yes" else None


def shares_memory(total_cell: str | None, mode: MigMode | None) -> bool | None:
    """Unified memory: the driver knows the card and says that it has no memory of its own (GB10, Jetson)."""
    if total_cell is None or mode is MigMode.ENABLED:
        return None
    return cells.word(total_cell) in cells.NOT_REPORTED
