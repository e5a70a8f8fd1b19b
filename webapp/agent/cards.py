"""The cards of one host: how they are read, whether they were since this agent began, and how a container gets some."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from webapp.domain.container import NO_GPUS, FolderMount, GpuAccess
from webapp.gpus.local import LocalRunner
from webapp.gpus.output import Run
from webapp.settings import Settings
from webapp.simulation import install, state

FIRST_LOOK_SECONDS = 30.0       # how long a start waits for the first one; longer than nvidia-smi's own deadline


@dataclass(frozen=True, slots=True)
class Cards:
    """Shared by the threads of a host. `mounts`: of simulated cards that no engine hands out (simulation.install)."""

    mounts: tuple[FolderMount, ...] = ()
    simulated: bool = False
    run: Run = field(default_factory=LocalRunner)       # starts nvidia-smi there
    was_read: threading.Event = field(default_factory=threading.Event)
    look_again: threading.Event = field(default_factory=threading.Event)    # set: something may have changed

    def access(self, uuids: Iterable[str]) -> GpuAccess:
        chosen = tuple(sorted(uuids))
        return GpuAccess(chosen, self.mounts) if chosen else NO_GPUS

    def await_first_look(self) -> bool:
        """After a restart of the machine its driver may come late (promises.md 34). False = nobody has looked yet."""
        return self.was_read.wait(FIRST_LOOK_SECONDS)

    def close(self) -> None:
        """Ends an nvidia-smi that hangs."""
        if isinstance(self.run, LocalRunner):
            self.run.close()


def of_this_machine(settings: Settings) -> Cards:
    """Its own cards, or those of its simulated host.

    Raises:  NoSimulation, SimulationUnreadable: simulated ones are wanted, and there is no simulated host.
    """
    if settings.simulated_gpus == "no":
        return Cards()
    path = install.state_file_in(settings.state_dir)
    state.read(path)
    program = install.install_host(settings.state_dir / install.HOST_FOLDER, path)
    mounts = install.container_mounts(path) if settings.simulated_gpus == "mounted" else ()
    search = {"PATH": os.pathsep.join((str(program.parent), os.environ.get("PATH", os.defpath)))}
    return Cards(mounts, simulated=True, run=LocalRunner(environment=search))
