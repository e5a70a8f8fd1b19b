"""The cards of the stage's host: in pairs with NVLink, and they can fall off the bus and come back."""

from __future__ import annotations

from typing import Any

from webapp.domain.gpu import Gpu, Inventory, Link, LinkKind, Topology
from webapp.domain.reasons import Reason
from webapp.engines import ExecResult
from webapp.engines.fake import FakeEngine
from webapp.engines.fake_state import FakeContainer
from webapp.errors import GpusRefused
from webapp.services.inventory import Look

MODEL = "NVIDIA A100-SXM4-80GB"


def card(number: int) -> str:
    """UUID of the host's card with that index."""
    return f"GPU-{number:08d}-aaaa-bbbb-cccc-{number + 1:012d}"


class Rack:
    """`gone`: what the driver does not list any more. `models`: of those that are not like the others."""

    def __init__(self, size: int, *, first: int = 0) -> None:
        self.uuids = tuple(card(first + number) for number in range(size))
        self.gone: set[str] = set()
        self.busy: dict[str, Reason] = {}
        self.models: dict[str, str] = {}
        self.driver_version = "580.65.06"

    def look(self) -> Look:
        there = tuple(
            Gpu(uuid, index, self.models.get(uuid, MODEL), memory_total_bytes=80 * 1024**3)
            for index, uuid in enumerate(self.uuids) if uuid not in self.gone)
        pairs = zip(self.uuids[::2], self.uuids[1::2], strict=False)
        links = {pair: Link(LinkKind.NVLINK, 4) for pair in pairs}
        seen = Inventory(there, Topology(links), self.driver_version, "13.0")
        return Look(seen, self.busy, simulated=False)


class RackEngine(FakeEngine):
    """The twin with a toolkit that hands out only cards that are there."""

    def __init__(self, rack: Rack, **named: Any) -> None:
        super().__init__(**named)
        self.rack = rack

    def start(self, name: str) -> None:
        container = self.machine.find(name)
        asked = set(container.spec.gpus.uuids) if container and not container.is_up else set()
        if missing := sorted(asked & self.rack.gone):
            self.calls.append(("start", name))
            detail = f"nvidia-container-cli: device error: {missing[0]}: unknown device"
            raise GpusRefused(host=self._host, detail=detail)
        super().start(name)

    def _nvidia_smi(self, container: FakeContainer) -> ExecResult:
        left = [uuid for uuid in container.spec.gpus.uuids if uuid not in self.rack.gone]
        if container.spec.gpus.uuids and not left:
            return ExecResult(0, "No devices found.\n")
        return ExecResult(0, "".join(f"GPU {i}: {MODEL} (UUID: {uuid})\n" for i, uuid in enumerate(left)))
