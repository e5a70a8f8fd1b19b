"""GPUs in the engine's words: how a container asks for cards, and what one asks for. Pure.

By UUID always, never by number or count: a count gives the first cards of the host to everybody (measured on moby),
and an index moves when a card is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from webapp.domain.container import GpuAccess

CDI_KIND = "nvidia.com/gpu="
NO_GPU = "void"     # not "none": the container toolkit 1.18.2 took that for all of them
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
SIMULATED = "BERTH_SIMULATED_GPUS"      # what the stand-in inside shows, where no toolkit hands cards out
ALL = "all"
_CAPABILITIES = ["gpu", "compute", "utility"]
_NOTHING = frozenset({"", NO_GPU, "none"})


def cdi_gpus(info: Mapping[str, Any]) -> frozenset[str]:
    """UUIDs of the cards that this engine knows by CDI (GET /info, from 28.3 on)."""
    devices = info.get("DiscoveredDevices") or []
    names = (str(device.get("ID") or "") for device in devices if isinstance(device, Mapping))
    return frozenset(name.removeprefix(CDI_KIND) for name in names if name.startswith(CDI_KIND))


def device_requests(gpus: GpuAccess, known_by_cdi: Collection[str]) -> list[dict[str, Any]]:
    """HostConfig.DeviceRequests. By CDI when the engine knows all of the cards so: the two ways do not mix."""
    if not gpus.uuids or gpus.mounts:
        return []
    if _is_by_cdi(gpus, known_by_cdi):
        ids, driver, capabilities = [f"{CDI_KIND}{uuid}" for uuid in gpus.uuids], "cdi", []
    else:
        ids, driver, capabilities = list(gpus.uuids), "nvidia", [_CAPABILITIES]
    return [{"Driver": driver, "Count": 0, "DeviceIDs": ids, "Capabilities": capabilities, "Options": {}}]


def environment(gpus: GpuAccess, known_by_cdi: Collection[str]) -> list[str]:
    """Said in every container, or an image's own `NVIDIA_VISIBLE_DEVICES=all` would count (promises.md 30)."""
    is_asked_for = bool(gpus.uuids) and not gpus.mounts and not _is_by_cdi(gpus, known_by_cdi)
    lines = [f"{VISIBLE}={','.join(gpus.uuids) if is_asked_for else NO_GPU}"]
    if gpus.uuids:
        lines += ["NVIDIA_DRIVER_CAPABILITIES=compute,utility", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]
    if gpus.uuids and gpus.mounts:
        lines.append(f"{SIMULATED}={','.join(gpus.uuids)}")
    return lines


def is_said_by_berth(variable: str) -> bool:
    """Of `environment`: whatever an image says, it is Berth's to say."""
    return variable.startswith("NVIDIA_") or variable in ("CUDA_DEVICE_ORDER", SIMULATED)


def is_reserved(variable: str) -> bool:
    """What decides about cards cannot come from a person."""
    return is_said_by_berth(variable) or variable == "CUDA_VISIBLE_DEVICES"


def asked_for(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Cards that an inspected container asks for, ascending: UUIDs, indexes as text, or "all".

    The environment counts only where no request does: for the nvidia runtime as the engine's default, and for
    simulated cards. With CDI it says `void` and means nothing (promises.md 32).
    """
    host = found.get("HostConfig") or {}
    asked = {name for request in host.get("DeviceRequests") or [] for name in _of_request(request)}
    asked |= set(_of_devices(host.get("Devices") or []))
    lines = (found.get("Config") or {}).get("Env") or []
    said = dict(line.partition("=")[::2] for line in lines)     # of two lines the last one counts
    if not asked and host.get("Runtime") == "nvidia":
        asked = _names(said.get(VISIBLE, ""))
    return tuple(sorted(asked or _names(said.get(SIMULATED, ""))))


def _is_by_cdi(gpus: GpuAccess, known_by_cdi: Collection[str]) -> bool:
    return all(uuid in known_by_cdi for uuid in gpus.uuids)


def _of_request(request: Mapping[str, Any]) -> Iterable[str]:
    """moby's nvidia driver takes a count for the first cards of the host."""
    capabilities = [name for group in request.get("Capabilities") or [] for name in group]
    ids, count = request.get("DeviceIDs") or [], int(request.get("Count") or 0)
    if request.get("Driver") == "cdi":
        return [name.removeprefix(CDI_KIND) for name in ids if name.startswith(CDI_KIND)]
    if request.get("Driver") not in ("", None, "nvidia") or not {"gpu", "nvidia"} & set(capabilities):
        return []
    if ids:
        return list(ids)
    return [ALL] if count < 0 else [str(number) for number in range(count)]


def _of_devices(devices: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """/dev/nvidia0 and its kin, handed in one by one. The number is that of the device file: mostly the index."""
    for device in devices:
        number = str(device.get("PathOnHost") or "").removeprefix("/dev/nvidia")
        if number.isdecimal():
            yield number


def _names(visible: str) -> set[str]:
    return set() if visible in _NOTHING else {name.strip() for name in visible.split(",") if name.strip()}
