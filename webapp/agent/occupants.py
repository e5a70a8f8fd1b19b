"""Who is on the cards beside Berth's workspaces: somebody else's containers, and processes that compute.

A card is busy when a container that is none of ours was given it, also while it does nothing with it, and when a
process computes on it that is in no container of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from webapp.domain.container import LABEL_WORKSPACE, Container, GpuUser
from webapp.domain.gpu import Gpu, MigMode, MigSlice, Process
from webapp.domain.reasons import Reason

PROC = Path("/proc")
MOST_PROGRAM = 40       # characters of a process's name: its owner writes it

# "12:memory:/docker/ID", "0::/system.slice/docker-ID.scope", "0::/kubepods/…/cri-containerd-ID.scope"
_CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

ContainerOf = Callable[[int], str | None]


@dataclass(frozen=True, slots=True)
class Around:
    """What engine and database say about a host's cards at one moment."""

    foreign: Sequence[GpuUser] = ()
    own: Sequence[Container] = ()
    held: frozenset[tuple[str, str]] = frozenset()      # workspace id, UUID of a card that it holds


def busy(gpus: Sequence[Gpu], around: Around, container_of: ContainerOf) -> dict[str, Reason]:
    """UUID of a card, or of a MIG slice → whose work it does.

    Args:  container_of: id of the container that a process is in; "" = in none, None = nobody knows.
    """
    found: dict[str, Reason] = {}
    for gpu in gpus:
        if gpu.uuid and (who := _on_card(gpu, gpu.uuid, around, container_of)):
            found[gpu.uuid] = _reason(gpu, who)
        for part in gpu.mig_slices:
            if part.uuid and (who := _on_slice(gpu, part, part.uuid, around)):
                found[part.uuid] = _reason(gpu.as_slice(part), who)
    return found


def container_of(pid: int, proc: Path = PROC) -> str | None:
    """Id of the container that a process of this machine is in, "" for none, by its control groups of either version.

    None = it has ended, or belongs to another PID namespace.
    """
    try:
        ids = _CONTAINER_ID.findall((proc / str(pid) / "cgroup").read_text("utf-8", "replace"))
    except OSError:
        return None
    return ids[-1] if ids else ""


def unknown(_pid: int) -> str | None:
    """`container_of` for the processes of a simulated host: none of this machine's has to do with them."""
    return None


def _on_card(gpu: Gpu, uuid: str, around: Around, container_of: ContainerOf) -> str | None:
    if who := _given(lambda user: user.has(uuid, gpu.index), around) or _astray(uuid, around):
        return who
    if gpu.mig_mode is MigMode.ENABLED:
        return None         # which slice a process is on is not told
    computing = (process for process in gpu.processes or () if process.computes)
    return next(filter(None, (_stranger(process, uuid, around, container_of) for process in computing)), None)


def _on_slice(gpu: Gpu, part: MigSlice, uuid: str, around: Around) -> str | None:
    """Whoever has the whole card has its slices. "0:1" is the second slice of the first card."""
    place = f"{gpu.index}:{part.index}"

    def has(user: GpuUser) -> bool:
        return user.has(uuid, gpu.index) or user.has(gpu.uuid, None) or place in user.gpus

    return _given(has, around) or _astray(uuid, around)


def _given(has: Callable[[GpuUser], bool], around: Around) -> str | None:
    """Name of a foreign container that was given it."""
    return next((user.name for user in around.foreign if has(user)), None)


def _astray(uuid: str, around: Around) -> str | None:
    """Name of a container of ours that was given this card, and whose workspace does not hold it (any more)."""
    up = (one for one in around.own if one.is_up and uuid in one.gpu_uuids)
    return next((one.name for one in up if not _holds(one, uuid, around)), None)


def _stranger(process: Process, uuid: str, around: Around, container_of: ContainerOf) -> str | None:
    """What to call it; None = a holder of the card is at work.

    One that nobody can place is a holder's on a card that is held: what is claimed is not offered anyway.
    """
    id_ = container_of(process.pid)
    ours = next((one for one in around.own if one.id == id_), None)
    if ours is not None:
        return None if _holds(ours, uuid, around) else ours.name
    if id_ is None and any(uuid == held for _, held in around.held):
        return None
    program = _program(process)
    return f"{program} (process {process.pid})" if program else f"process {process.pid}"


def _holds(container: Container, uuid: str, around: Around) -> bool:
    return (container.labels.get(LABEL_WORKSPACE, ""), uuid) in around.held


def _program(process: Process) -> str:
    """The program alone: a command line is its owner's business."""
    words = (process.name or "").split()
    return words[0].rpartition("/")[2][:MOST_PROGRAM] if words else ""


def _reason(gpu: Gpu, who: str) -> Reason:
    return Reason("gpu_busy", {"gpu": gpu.label, "who": who})
