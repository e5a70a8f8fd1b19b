"""What a container must be made anew for, what changes while it lives, and why either cannot be done now. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from webapp.domain.container import Layer, Room
from webapp.domain.reasons import Reason, Wording
from webapp.domain.sizes import MIB, show_size
from webapp.domain.workspace import Limits
from webapp.errors import N_

# An engine mounts at most 125 layers on each other (moby: maxLayerDepth); the rest is for whoever builds on it.
MOST_LAYERS = 118
ROOM_SHARE = 10                 # a tenth more than the layer: a commit writes file by file, and others write too
ROOM_MARGIN_BYTES = 256 * MIB
MEMORY_MARGIN_BYTES = 32 * MIB  # between the look at what is used and the new limit


def shape(shm_bytes: int, mounts: Iterable[tuple[str, bool]]) -> str:
    """All but ports and cards. `mounts`: (volume id, read only). For containers of before 0003 that migration wrote it.
    """
    named = sorted(f"{volume_id}:{'ro' if read_only else 'rw'}" for volume_id, read_only in mounts)
    return f"shm={shm_bytes} mounts={','.join(named)}"


def limits(asked: Limits) -> str:
    """What an engine changes while a container lives."""
    return f"cpu={asked.cpu_millis} memory={asked.memory_bytes}"


def refusal(layer: Layer, room: Room | None, host: str) -> Reason | None:
    """Why a container with that layer cannot be moved; None = it can. `room` None = not known."""
    if layer.layers > MOST_LAYERS:
        return Reason("too_many_layers", {"layers": layer.layers, "most": MOST_LAYERS})
    needed = layer.size_bytes + layer.size_bytes // ROOM_SHARE + ROOM_MARGIN_BYTES
    if room is not None and room.free_bytes < needed:
        facts = {"host": host, "layer": show_size(layer.size_bytes), "needed": show_size(needed),
                 "free": show_size(room.free_bytes)}
        return Reason("no_room_to_move", facts)
    return None


def memory_refusal(used_bytes: int, asked_bytes: int) -> Reason | None:
    """Why the limit cannot be lowered so far: the kernel would end a program at once."""
    if used_bytes + MEMORY_MARGIN_BYTES <= asked_bytes:
        return None
    return Reason("memory_in_use", {"used": show_size(used_bytes), "asked": show_size(asked_bytes)})


WORDINGS: dict[str, Wording] = {
    "no_room_to_move": Wording(
        N_("%(host)s has no room to make it anew: what is in it takes %(layer)s, for which %(needed)s are needed, and "
           "%(free)s are free."),
        N_("Nothing in it was lost, and if it ran it goes on as it was. Delete what you do not need outside your home, "
           "or ask an administrator to make room, then try again."),
    ),
    "too_many_layers": Wording(
        N_("It was made anew so often that it cannot be once more: it lies on %(layers)s layers, and at most %(most)s "
           "will do."),
        N_("Nothing in it was lost, and if it ran it goes on as it was. Copy what you need to your home and launch a "
           "new one."),
    ),
    "memory_in_use": Wording(
        N_("It uses %(used)s of memory, so it cannot be limited to %(asked)s now."),
        N_("It goes on with the limit that it had. End a program in it, or stop it first, then change it."),
    ),
    "change_undone": Wording(
        N_("It could not be changed, and goes on as it was: %(detail)s"),
        N_("Nothing in it was lost. Try again later; if it stays, show this sentence to an administrator."),
    ),
    "commit_unanswered": Wording(
        N_("%(host)s did not finish keeping what is in it in time."),
        N_("Nothing in it was lost. Try again when the host has less to do."),
    ),
}
