"""GPUs of a host as values: what a card is, how it is, and why it may not be had.

A UUID is the identity, an index only text on screen: indexes move when a card is lost or the host restarts
(promises.md 24). None = not reported by device or driver; never zero.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from webapp.domain.reasons import Reason, Wording
from webapp.errors import N_

_HEX = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_UUID = re.compile(rf"GPU-{_HEX}")
_MIG_UUID = re.compile(rf"MIG-(?:{_HEX}|GPU-{_HEX}/[0-9]{{1,3}}/[0-9]{{1,3}})")  # the second: drivers before 470
_NOBODY = re.compile(r"[^0-9]*[0-]+")   # GPU-00000000-0000-…: a placeholder, no identity


class Condition(StrEnum):
    OK = "ok"
    FAULTY = "faulty"           # there, but not to be used
    QUARANTINED = "quarantined"     # taken out of use by an administrator or a check
    LOST = "lost"               # known, and no longer reachable


class MigMode(StrEnum):
    ENABLED = "Enabled"
    DISABLED = "Disabled"


class LinkKind(StrEnum):
    """Words of `nvidia-smi topo -m`, nearest first."""

    NVLINK = "NV"
    PIX = "PIX"         # one PCIe bridge
    PXB = "PXB"         # several PCIe bridges
    PHB = "PHB"         # a PCIe host bridge
    NODE = "NODE"       # host bridges of one NUMA node
    SYS = "SYS"         # between NUMA nodes


_CLOSENESS = {kind: rank for rank, kind in enumerate(reversed(LinkKind), start=1)}


@dataclass(frozen=True, slots=True)
class Link:
    kind: LinkKind
    nvlinks: int = 0            # how many are bonded; 0 for every other kind

    @property
    def closeness(self) -> int:
        """1 (SYS) to 5 (PIX); NVLink 6 and one more for each link."""
        return _CLOSENESS[self.kind] + self.nvlinks


@dataclass(frozen=True, slots=True)
class Topology:
    """How cards are connected. Empty when the driver does not tell."""

    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)    # two UUIDs, the smaller first

    def between(self, one: str, other: str) -> Link | None:
        return self.links.get((min(one, other), max(one, other)))


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a card, as the host numbers it. It may be gone already when somebody looks (promises.md 21)."""

    pid: int                        # 1–4194304, the kernel's largest
    name: str | None                # a path, a command line or a part of one; None = hidden; written by its owner
    memory_used_bytes: int | None
    kind: str | None = None         # "C" computes, "G" draws, "C+G"

    @property
    def computes(self) -> bool:
        """Uses the card for more than drawing. Not told = yes: what is not known is not free."""
        return self.kind is None or "C" in self.kind


@dataclass(frozen=True, slots=True)
class MigSlice:
    """A part of a card in MIG mode. It is claimed like a card, by its own UUID."""

    index: int                              # within its card
    uuid: str | None = None                 # as this driver lists it: the form changed with 470 (promises.md 18)
    profile: str | None = None              # "3g.40gb"
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card of a host, as it was seen once."""

    uuid: str | None                        # as printed; None = it has no identity
    index: int | None                       # text on screen
    name: str | None
    pci_bus_id: str | None = None           # "00000000:53:00.0"
    memory_total_bytes: int | None = None
    shares_host_memory: bool = False        # unified memory: healthy, and no figure to divide by (promises.md 4)
    driver_version: str | None = None
    cuda_version: str | None = None         # the newest CUDA that the driver knows
    mig_mode: MigMode | None = None
    mig_slices: tuple[MigSlice, ...] = ()
    compute_mode: str | None = None
    processes: tuple[Process, ...] | None = None    # None = not told, which is not "none"
    condition: Condition = Condition.OK
    fault: Reason | None = None             # why it is not OK

    @property
    def label(self) -> str:
        """For sentences: `GPU 3 (NVIDIA A100-SXM4-80GB)`, or what is known of it."""
        name = self.name or self.pci_bus_id or self.uuid
        number = "GPU" if self.index is None else f"GPU {self.index}"
        return f"{number} ({name})" if name else number

    def as_slice(self, part: MigSlice) -> Gpu:
        """Under the name that one of its slices has: model and profile."""
        return replace(self, name=f"{self.name} MIG {part.profile}") if self.name and part.profile else self

    @property
    def why_not(self) -> Reason | None:
        """Why nobody can have this card as a whole; None = it may be claimed."""
        if self.condition is not Condition.OK:
            return self.fault or Reason(f"gpu_{self.condition}", {"gpu": self.label})
        code = _unfit(self)
        return Reason(code, {"gpu": self.label}) if code else None

    @property
    def claimable(self) -> tuple[str, ...]:
        """UUIDs that may be claimed: its own, or those of its MIG slices."""
        if self.why_not is None and self.uuid:
            return (self.uuid,)
        if self.condition is not Condition.OK or self.mig_mode is not MigMode.ENABLED:
            return ()
        return tuple(part.uuid for part in self.mig_slices if part.uuid and _MIG_UUID.fullmatch(part.uuid))


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment. None = not reported by device or driver; never zero.

    Source: the `nvidia-smi --query-gpu` field in brackets.
    """

    gpu_uuid: str                       # "GPU-…" | "MIG-…"; identity
    taken_at: datetime                  # aware UTC
    utilization_percent: int | None     # 0–100  [utilization.gpu]; of a card in MIG mode never reported
    memory_used_bytes: int | None       # bytes  [memory.used, MiB there]
    memory_total_bytes: int | None      # bytes  [memory.total, MiB there]
    temperature_celsius: int | None     # [temperature.gpu]
    power_watts: float | None           # [power.draw, else power.draw.average, else power.draw.instant]
    fan_percent: int | None             # may exceed 100  [fan.speed]


@dataclass(frozen=True, slots=True)
class InventoryTrouble:
    """Why a host's cards could not be read, or not all of them. The sentence is WORDINGS[code]."""

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> Reason:
        return Reason(self.code, self.facts)


# The host answers, and says that it has no card at hand. Every other trouble leaves open what there is.
NO_CARDS = "no_devices"


@dataclass(frozen=True, slots=True)
class Inventory:
    """All cards of one host as seen once, by index. `trouble` with no cards: nothing is known, which is not "none"."""

    gpus: tuple[Gpu, ...] = ()
    topology: Topology = Topology()
    driver_version: str | None = None
    cuda_version: str | None = None
    trouble: InventoryTrouble | None = None
    messages: tuple[str, ...] = ()      # lines that nvidia-smi printed beside the answer, such as warnings


def by_index(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """As numbers, not as text (promises.md 7); cards without an index last."""
    return tuple(sorted(gpus, key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.pci_bus_id or "")))


def refuse_doubles(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Two cards with one UUID: none of them can be told from the other, so neither is offered."""
    times = Counter(gpu.uuid for gpu in gpus if gpu.uuid)
    return [_faulty(gpu, "gpu_uuid_twice") if gpu.uuid and times[gpu.uuid] > 1 else gpu for gpu in gpus]


def with_known(known: Sequence[Gpu], seen: Inventory) -> Inventory:
    """What was seen, and the known cards (those with a UUID) that were not: their claims must not be forgotten.

    A card that is missing from a whole list is lost (promises.md 10, 13). When the list could not be read, the missing
    ones are as before and only refused to new workspaces: unknown is not gone.
    """
    there = {gpu.uuid for gpu in seen.gpus}
    missing = [gpu for gpu in known if gpu.uuid and gpu.uuid not in there]
    if not missing:
        return seen
    gone = {gpu.pci_bus_id: gpu for gpu in seen.gpus if gpu.uuid is None and gpu.condition is Condition.LOST}
    kept = [_missing(gpu, seen, gone) for gpu in missing]
    named = {gpu.pci_bus_id for gpu in kept}
    others = [gpu for gpu in seen.gpus if gpu.uuid or gpu.pci_bus_id not in named]   # a lost card without its name
    return replace(seen, gpus=by_index([*others, *kept]))


def _missing(gpu: Gpu, seen: Inventory, gone: Mapping[str | None, Gpu]) -> Gpu:
    """A card that was not listed. `gone`: what the driver names only by where it sits, and says to be lost."""
    lost = gone.get(gpu.pci_bus_id) if gpu.pci_bus_id else None
    fault = Reason("gpu_vanished", {"gpu": gpu.label})
    if lost is not None and lost.fault is not None:
        fault = replace(lost.fault, facts={**lost.fault.facts, "gpu": gpu.label})
    elif seen.trouble is not None and seen.trouble.code != NO_CARDS:
        return gpu if gpu.condition is not Condition.OK else replace(
            gpu, condition=Condition.FAULTY, fault=seen.trouble.reason, processes=None)
    return replace(gpu, condition=Condition.LOST, fault=fault, processes=None)


def _faulty(gpu: Gpu, code: str) -> Gpu:
    return replace(gpu, condition=Condition.FAULTY, fault=Reason(code, {"gpu": gpu.label}))


def _unfit(gpu: Gpu) -> str | None:
    if not gpu.uuid or _NOBODY.fullmatch(gpu.uuid):
        return "gpu_no_uuid"
    if not _UUID.fullmatch(gpu.uuid):
        return "gpu_odd_uuid"       # Jetson: no "GPU-", and the container toolkit cannot single it out
    if gpu.mig_mode is MigMode.ENABLED:
        return "gpu_mig_parent"
    if gpu.compute_mode and "prohibited" in gpu.compute_mode.lower():
        return "gpu_prohibited"
    return None


WORDINGS: dict[str, Wording] = {
    "gpu_lost": Wording(
        N_("%(gpu)s cannot be reached any more. The driver says: %(detail)s"),
        N_(
            "Start what ran on it again on another card. An administrator has to restart the host; if it is lost "
            "again, its seat, cable or power supply is suspect."
        ),
    ),
    "gpu_vanished": Wording(
        N_("%(gpu)s was here before and is no longer listed by the driver."),
        N_(
            "Start what ran on it again on another card. An administrator has to restart the host or look at the "
            "card."
        ),
    ),
    "gpu_reset_required": Wording(
        N_("%(gpu)s has to be reset before it can be used: the driver asks for %(action)s."),
        N_("An administrator can stop what uses it and reset it (nvidia-smi --gpu-reset), or restart the host."),
    ),
    "gpu_denied": Wording(
        N_("Berth may not use %(gpu)s: %(detail)s."),
        N_("An administrator has to give the agent access to /dev/nvidia*."),
    ),
    "gpu_unclear": Wording(
        N_("A card of this host does not answer, and it cannot be told whether it is %(gpu)s."),
        N_("An administrator has to look at the host with nvidia-smi."),
    ),
    "gpu_silent": Wording(
        N_("The driver lists %(gpu)s and says nothing about it."),
        N_("Wait a minute. If it stays, an administrator has to look at the host with nvidia-smi."),
    ),
    "gpu_uuid_twice": Wording(
        N_("%(gpu)s has the same UUID as another card of this host, so that they cannot be told apart."),
        N_("An administrator has to look at the host with nvidia-smi -L."),
    ),
    "gpu_quarantined": Wording(
        N_("%(gpu)s is out of use for now."),
        N_("An administrator can put it back into use."),
    ),
    "gpu_faulty": Wording(
        N_("%(gpu)s is faulty."),
        N_("An administrator has to look at the host with nvidia-smi."),
    ),
    "gpu_no_uuid": Wording(
        N_("%(gpu)s has no UUID, so that nobody can be given exactly this card."),
        N_("It is shown, and stays as it is."),
    ),
    "gpu_odd_uuid": Wording(
        N_(
            "%(gpu)s is built into the processor and has no UUID of a card, so that nobody can be given exactly "
            "this one."
        ),
        N_("It is shown, and stays as it is."),
    ),
    "gpu_mig_parent": Wording(
        N_("%(gpu)s is divided into MIG slices and cannot be had as a whole."),
        N_("Choose one of its slices, or ask an administrator to turn MIG off."),
    ),
    "gpu_busy": Wording(
        N_("%(gpu)s is in use by %(who)s, which is none of Berth's workspaces."),
        N_("It is offered again as soon as that has ended."),
    ),
    "gpu_prohibited": Wording(
        N_("%(gpu)s is set to accept no programs (compute mode Prohibited)."),
        N_("An administrator can allow them: nvidia-smi -c DEFAULT."),
    ),
    "smi_missing": Wording(
        N_("%(host)s has no nvidia-smi: there is no NVIDIA driver, or not all of it."),
        N_("Install NVIDIA's driver when this host has a GPU of theirs."),
    ),
    "smi_hangs": Wording(
        N_("nvidia-smi on %(host)s does not answer within %(seconds)s seconds."),
        N_("Wait a little. If it stays, an administrator has to restart the host: its driver hangs."),
    ),
    "smi_unreadable": Wording(
        N_("nvidia-smi on %(host)s answered something that cannot be read: %(detail)s"),
        N_("An administrator has to look at the host with nvidia-smi."),
    ),
    "driver_not_loaded": Wording(
        N_("%(host)s has no NVIDIA driver running."),
        N_("Install NVIDIA's driver, or load it (modprobe nvidia), when this host has a GPU of theirs."),
    ),
    "driver_library_version_mismatch": Wording(
        N_("The NVIDIA driver of %(host)s was upgraded while the old one was running."),
        N_("An administrator has to restart the host. What runs goes on; nothing new gets a GPU until then."),
    ),
    "nvml_library_not_found": Wording(
        N_("%(host)s lacks libnvidia-ml, a part of the NVIDIA driver."),
        N_("Install the whole driver package of the version that runs."),
    ),
    "nvml_unknown_error": Wording(
        N_("The NVIDIA driver of %(host)s answers with an error that it does not name."),
        N_("An administrator has to look at the host with nvidia-smi; a restart often helps."),
    ),
    "insufficient_permissions": Wording(
        N_("Berth may not use the NVIDIA devices of %(host)s."),
        N_("An administrator has to give the agent access to /dev/nvidia*."),
    ),
    "blocked_by_os": Wording(
        N_("Windows blocks the GPUs of %(host)s (WSL)."),
        N_("Restart WSL (wsl --shutdown) or update the Windows driver."),
    ),
    "no_devices": Wording(
        N_("The NVIDIA driver of %(host)s runs and finds no GPU."),
        N_("Look whether the card is seated and powered (lspci), and whether the driver knows it."),
    ),
    "card_unreachable": Wording(
        N_("A GPU of %(host)s does not answer: %(detail)s"),
        N_("An administrator has to restart the host. Nothing new gets a GPU that was not seen."),
    ),
    "usage_error": Wording(
        N_("nvidia-smi on %(host)s does not know what Berth asked for: %(detail)s"),
        N_("Install a newer NVIDIA driver."),
    ),
    "invalid_query_field": Wording(
        N_("nvidia-smi on %(host)s does not know what Berth asked for: %(detail)s"),
        N_("Install a newer NVIDIA driver."),
    ),
}
