"""Hosts full of cards in every state that a page shows, written down as the agent does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from web.conftest import NOON
from webapp.domain.gpu import Condition, Gpu, Inventory, InventoryTrouble, MigMode, MigSlice
from webapp.domain.reasons import Reason
from webapp.services import gpus, hosts, inventory
from webapp.store.session import Store
from webapp.store.tables import Host, Workspace

GIB = 2**30
A100, H100, SPARK = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA GB10"


def uuid(number: int) -> str:
    return f"GPU-51e1a7ed-0000-0000-0000-{number:012d}"


def mig_uuid(number: int) -> str:
    return f"MIG-51e1a7ed-0000-0000-0000-{number:012d}"


def card(number: int, model: str = A100, **changes: Any) -> Gpu:
    """The index is the number's last two digits."""
    values = {"memory_total_bytes": 81920 * 2**20, "pci_bus_id": f"00000000:{number % 100:02X}:00.0"}
    return Gpu(uuid(number), number % 100, model, **values | changes)


def lost(number: int) -> Gpu:
    whole = card(number)
    return card(number, condition=Condition.LOST, fault=Reason("gpu_vanished", {"gpu": whole.label}))


def divided(number: int) -> Gpu:
    slices = (MigSlice(0, mig_uuid(10 * number), "3g.40gb", 1, 0, 40 * GIB),
              MigSlice(1, mig_uuid(10 * number + 1), "1g.10gb", 2, 0, 10 * GIB))
    return card(number, mig_mode=MigMode.ENABLED, mig_slices=slices)


def unified(number: int) -> Gpu:
    return card(number, SPARK, memory_total_bytes=None, shares_host_memory=True)


def without_uuid(index: int) -> Gpu:
    return Gpu(None, index, "Orin (nvgpu)", shares_host_memory=True)


def busy(gpu: Gpu, who: str = "python (pid 20931)") -> dict[str, Reason]:
    assert gpu.uuid
    return {gpu.uuid: Reason("gpu_busy", {"gpu": gpu.label, "who": who})}


def saw(
    store: Store, host_id: str, *cards: Gpu, trouble: InventoryTrouble | None = None, simulated: bool = False,
    driver: str | None = "570.86.15", others: Mapping[str, Reason] | None = None,
) -> None:
    """The agent looked at the host and wrote this down."""
    version = None if trouble else driver
    look = inventory.Look(
        Inventory(cards, driver_version=version, cuda_version=version and "12.8", trouble=trouble), others or {},
        simulated)
    with store.write() as session:
        assert inventory.record(session, host_id, look, epoch=1, now=NOON)
        session.get_one(Host, host_id).seen_at = NOON


def add_host(store: Store, name: str) -> str:
    with store.write() as session:
        host = hosts.ensure_local(session, name=name, engine_url=f"unix:///{name}", now=NOON)
        return host.id


def give_back(store: Store, workspace_id: str) -> None:
    """Its container was seen down."""
    with store.write() as session:
        gpus.release(session, workspace_id)


def cards_of(store: Store, workspace_id: str) -> tuple[list[str], list[str]]:
    """Those that it is to have, and those that it holds."""
    with store.read() as session:
        return session.get_one(Workspace, workspace_id).gpu_uuids, list(gpus.held(session, workspace_id))
