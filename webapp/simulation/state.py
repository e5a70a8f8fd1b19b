"""The state file: one simulated host with its cards. Everything that the stand-ins print comes from here.

The file is JSON, changed under a lock and replaced whole, so that a reader never sees half of it. A container gets
the folder, not the file: a mount of the file alone would keep showing the one that was replaced.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webapp.errors import AppError, Conflict, NotFound

MARK = "51e1a7ed"       # the first eight digits of the UUID of everything simulated
FORMAT = 1              # of the file; the stand-ins inside containers read it too

# What a card can suffer from, and what then shows.
CARD_FAULTS = {
    "lost": "fell off the bus: a line in its place, the others stay, exit 15",
    "lost-stops": "fell off the bus under an old driver: that line and nothing else, exit 15",
    "gone": "not in the list at all, without a word; the ones behind it move up",
    "reset-required": "every measurement says [GPU requires reset]",
    "err": "fan ERR!, utilization stuck at 93 %, recovery action Reset; all else looks healthy",
    "not-reported": "every measurement says [N/A]",
    "not-supported": "every measurement says [Not Supported]",
    "unknown-error": "every measurement says [Unknown Error]",
    "hidden": "every measurement says [Insufficient Permissions]",
}
HOST_FAULTS = {
    "no-driver": "couldn't communicate with the NVIDIA driver, exit 9",
    "no-library": "couldn't find libnvidia-ml.so, exit 12",
    "mismatch": "driver/library version mismatch, exit 18",
    "no-devices": "no devices were found, exit 6",
    "nvml-unknown": "failed to initialize NVML: unknown error, exit 255",
    "permissions": "failed to initialize NVML: insufficient permissions, exit 255",
    "slow": "answers after three seconds",
    "hang": "does not answer until healed",
    "stuck": "does not answer until healed, and ignores SIGTERM",
    "garbage": "prints bytes that are no text",
    "cut": "stops in the middle of the output",
}


# These are read on the command line alone, which speaks English: not marked for translation.
class NoSimulation(NotFound):
    """There is no state file at that path."""

    title = "There is no simulated host in %(path)s. Make one: berth simulate init --preset four"


class NoSimulatedCard(NotFound):
    """No card of the simulated host has that number or UUID."""

    title = "No simulated card is called “%(name)s”. “berth simulate show” lists them."


class SimulationTaken(Conflict):
    """A state file is there already; `init` does not replace what somebody set up."""

    code, retry = "already_taken", False
    title = "There is a simulated host in %(path)s already. Replace it with --replace."


class SimulationUnreadable(AppError):
    """The file is not one of ours, or of another version."""

    code, status = "simulation_unreadable", 500
    title = "%(path)s cannot be read as a simulated host: %(why)s."


@dataclass
class Process:
    """A program on a card. `memory_mib` None = not reported."""

    pid: int
    name: str
    memory_mib: int | None
    kind: str = "C"                         # C compute, G graphics, C+G
    gpu_instance: int | None = None         # of its MIG slice
    compute_instance: int | None = None


@dataclass
class Slice:
    """A MIG device of a card."""

    uuid: str                               # MIG-51e1a7ed-…
    profile: str                            # 3g.40gb
    gpu_instance: int
    compute_instance: int
    memory_mib: int
    multiprocessors: int
    used_mib: int = 0


@dataclass
class Card:
    """One card as a driver reports it. None = the driver says [N/A]."""

    uuid: str
    name: str
    serial: str | None
    bus_id: str                             # 00000000:53:00.0
    brand: str
    architecture: str
    compute_capability: str
    pci_device: str                         # device and vendor, 8 hexadecimal digits
    memory_mib: int | None
    reserved_mib: int | None
    power_limit_w: float | None
    idle_power_w: float | None
    max_clock_mhz: int | None
    memory_clock_mhz: int | None
    ecc: str | None                         # Enabled | Disabled; None on cards without it
    mig_mode: str | None                    # Enabled | Disabled; None on cards without it
    numa_node: int = 0
    fan_percent: int | None = None
    used_mib: int | None = 0
    utilization_percent: int | None = 0
    memory_utilization_percent: int | None = 0
    temperature_c: int | None = 31
    power_w: float | None = None
    clock_mhz: int | None = None
    corrected_errors: int = 0
    uncorrected_errors: int = 0
    fault: str | None = None                # of CARD_FAULTS
    slices: list[Slice] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    # Text that takes the place of a --query-gpu cell, as it stands: {"power.draw": "ERR!"}
    cells: dict[str, str] = field(default_factory=dict)


@dataclass
class Host:
    driver: str = "580.105.08"
    cuda: str = "13.0"
    fault: str | None = None                # of HOST_FAULTS
    unknown_fields: list[str] = field(default_factory=list)     # of --query-gpu, which this driver does not know
    ansi: bool = False                      # `topo -m` with escape sequences, as drivers from 550 on print it


@dataclass
class Simulation:
    """A simulated host.

    `links`: "UUID UUID" in the order of the cards → NV12, PIX, PXB, PHB, NODE; what is not named is SYS.
    """

    host: Host = field(default_factory=Host)
    cards: list[Card] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    preset: str = ""

    def card(self, name: str) -> Card:
        """By number, whole UUID, or a beginning of it that only one card has (with or without `GPU-`).

        Raises: NoSimulatedCard.
        """
        if name.isdecimal() and int(name) < len(self.cards):
            return self.cards[int(name)]
        found = [card for card in self.cards if name and card.uuid.startswith((name, f"GPU-{name}"))]
        if len(found) != 1:
            raise NoSimulatedCard(name=name)
        return found[0]


def simulated_uuid(seed: str, number: int, prefix: str = "GPU-") -> str:
    """The same for the same seed and number, on every machine."""
    digits = hashlib.sha256(f"{seed}/{number}/{prefix}".encode()).hexdigest()
    return f"{prefix}{MARK}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:24]}"


def is_simulated(uuid: str) -> bool:
    return uuid.removeprefix("GPU-").removeprefix("MIG-").startswith(f"{MARK}-")


def read(path: Path) -> Simulation:
    """Raises: NoSimulation, SimulationUnreadable."""
    try:
        return _from_document(json.loads(path.read_text("utf-8")))
    except FileNotFoundError as error:
        raise NoSimulation(path=path) from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SimulationUnreadable(path=path, why=error) from error


def create(path: Path, simulation: Simulation, *, replace: bool = False) -> None:
    """The folder too, both readable by everybody: members' uids read them in their containers.

    Raises: SimulationTaken: a file is there and `replace` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o755)
    with _locked(path):
        if path.exists() and not replace:
            raise SimulationTaken(path=path)
        _write(path, simulation)


@contextmanager
def changed(path: Path) -> Iterator[Simulation]:
    """The state to change in place; written at the end of the block, not at all when the block raises.

    Raises: NoSimulation, SimulationUnreadable.
    """
    if not path.exists():       # before the lock would make a file beside it
        raise NoSimulation(path=path)
    with _locked(path):
        simulation = read(path)
        yield simulation
        _write(path, simulation)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, simulation: Simulation) -> None:
    document = {"simulated": True, "format": FORMAT, **dataclasses.asdict(simulation)}
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".", delete=False) as new:
        json.dump(document, new, indent=1)
    os.chmod(new.name, 0o644)
    os.replace(new.name, path)


def _from_document(document: dict[str, Any]) -> Simulation:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']}, this version writes {FORMAT}")
    return Simulation(Host(**document["host"]), [_card(card) for card in document["cards"]], document["links"],
                      document["preset"])


def _card(row: dict[str, Any]) -> Card:
    card = Card(**row)
    card.slices = [Slice(**piece) for piece in row["slices"]]
    card.processes = [Process(**process) for process in row["processes"]]
    return card
