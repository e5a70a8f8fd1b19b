"""GPUs and volumes as a person chose them, in the form that launches a workspace and in the one that changes it."""

from __future__ import annotations

from dataclasses import dataclass

from webapp.domain.names import excerpt
from webapp.errors import N_, InvalidInput
from webapp.web.forms import Form, chosen, what_was_sent

MOUNT_WAYS = {"": None, "ro": True, "rw": False}    # value of a volume's choice → read only; None = not mounted
# Ways to get cards, values of the field gpu_way: none, `gpu_count` free ones (of `gpu_model`), those ticked (`gpu`).
NONE, ANY, THESE = "none", "any", "these"
SAME = "same"       # only where there is something that can stay as it is
CHOSEN_NOT_FREE = N_("Not all of the cards you chose are free now.")
MOST_UUID = 100     # characters; a MIG slice of an old driver has 54
MOST_TICKED = 200   # as forms.chosen; more than any host has


@dataclass(frozen=True, slots=True)
class Cards:
    """As the requests of services take them; `count` "" = as many as are named."""

    count: str = ""
    model: str = ""
    uuids: tuple[str, ...] = ()


def ticked(form: Form) -> list[str]:
    """UUIDs. `gpu_take` is the button of an offer: its cards count, as if they had been ticked."""
    taken = what_was_sent().get("gpu_take")
    if taken is None:
        return chosen("gpu")
    form.values["gpu_way"] = THESE
    return list(dict.fromkeys(taken.split(",")))[:MOST_TICKED]


def read_cards(form: Form, uuids: list[str], *, may_stay: bool = False) -> Cards | None:
    """None = as it is now, where it `may_stay`. A tick that would not count is refused rather than left out."""
    way = form["gpu_way"]
    if way not in (NONE, ANY, THESE) and not (may_stay and way == SAME):
        raise InvalidInput.of("gpus", N_("Choose whether it gets GPUs: none, any that are free, or cards you pick."))
    if way != THESE and uuids:
        raise InvalidInput.of(
            "gpus", N_("You ticked cards, but not “Pick cards”. Choose that, or untick them."))
    if way == SAME:
        return None
    if way == THESE:
        return Cards(uuids=_checked(uuids))
    if way == NONE:
        return Cards(count="0")
    count = form["gpu_count"].strip()
    if not count.strip("0"):
        raise InvalidInput.of("gpus", N_("Enter how many GPUs, at least 1; for none choose “No GPU”."))
    return Cards(count, form["gpu_model"])


def ways_of_volumes() -> list[tuple[str, str]]:
    """(volume id, way) of each field `mount-ID`, as sent."""
    return [(name.removeprefix("mount-"), way) for name, way in what_was_sent().items() if name.startswith("mount-")]


def read_mounts() -> tuple[tuple[str, bool], ...]:
    """(volume id, read only). An unknown way counts as not chosen, an unknown volume is refused by the service."""
    ways = ((volume_id, MOUNT_WAYS.get(way)) for volume_id, way in ways_of_volumes())
    return tuple((volume_id, read_only) for volume_id, read_only in ways if read_only is not None)


def _checked(uuids: list[str]) -> tuple[str, ...]:
    if not uuids:
        raise InvalidInput.of("gpus", N_("Tick the cards that it is to have, or choose another way."))
    odd = next((uuid for uuid in uuids if len(uuid) > MOST_UUID or not uuid.isprintable()), None)
    if odd is not None:
        raise InvalidInput.of("gpus", N_("There is no GPU %(given)s, or not any more. Choose from the list."),
                              given=excerpt(odd))
    return tuple(uuids)
