"""What the house allows in one workspace: plain values, taken from the settings where Berth is put together."""

from __future__ import annotations

from dataclasses import dataclass

from webapp.domain.ports import PortRange

MIB = 1024 * 1024
MIN_CPU_MILLIS = 100
MIN_MEMORY_BYTES = 256 * MIB    # sshd, JupyterLab and one kernel need about 200 MiB
MIN_SHM_BYTES = 64 * MIB        # Docker's own default
SHM_SHARE_OF_MEMORY = 4         # the default: a quarter of memory, for PyTorch's DataLoader (pytorch#5040)


@dataclass(frozen=True, slots=True)
class HouseRules:
    ports: PortRange
    default_cpu_millis: int
    max_cpu_millis: int
    default_memory_bytes: int
    max_memory_bytes: int
