"""The cards of one host: whether they were read since this agent began, and how a container is given some."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from webapp.domain.container import NO_GPUS, FolderMount, GpuAccess

FIRST_LOOK_SECONDS = 30.0       # how long a start waits for the first one; longer than nvidia-smi's own deadline


@dataclass(frozen=True, slots=True)
class Cards:
    """Shared by the threads of a host. `mounts`: of simulated cards that no engine hands out (simulation.install)."""

    mounts: tuple[FolderMount, ...] = ()
    was_read: threading.Event = field(default_factory=threading.Event)

    def access(self, uuids: Iterable[str]) -> GpuAccess:
        chosen = tuple(sorted(uuids))
        return GpuAccess(chosen, self.mounts) if chosen else NO_GPUS

    def await_first_look(self) -> bool:
        """After a restart of the machine its driver may come late (promises.md 34). False = nobody has looked yet."""
        return self.was_read.wait(FIRST_LOOK_SECONDS)
