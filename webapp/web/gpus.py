"""GPUs as people see them: a tile for each card, why one cannot be had, and what could be had instead.

A state is an icon, a word and a tone; unknown is grey, and a figure that nobody reported is “—”, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import escape

from webapp.domain import cuda
from webapp.domain.gpu import Condition
from webapp.domain.gpu_check import CheckState
from webapp.domain.placement import OfferKind
from webapp.errors import N_
from webapp.store.reads.cards import CardRow, GpusOfWorkspace
from webapp.store.reads.launch import HostFacts, ImageChoice
from webapp.web.shown import Said, State, reason
from webapp.web.words import gettext

FREE = State("circle-dashed", N_("Free"), "ok")
MINE = State("user-check", N_("You"), "accent")
OWN = State("user-check", N_("Its own"), "accent")
HELD = State("user", "")            # the word is the holder's name
BUSY = State("user-question", N_("Not ours"))
DIVIDED = State("minus", N_("In MIG slices"), "mute")
SILENT = State("clock-question", N_("No answer"), "mute")
UNREAD = State("clock-question", N_("Unknown"), "mute")
NOT_OFFERED = State("minus", N_("Not offered"), "mute")
CONDITIONS = {
    Condition.LOST: State("plug-connected-x", N_("Lost"), "bad"),
    Condition.FAULTY: State("alert-triangle", N_("Faulty"), "bad"),
    Condition.QUARANTINED: State("shield-x", N_("Quarantined"), "bad"),
}
NO_DRIVER = ("smi_missing", "driver_not_loaded", "no_devices")      # worth knowing, and nothing to mend
CHECKS: Mapping[str, State] = {
    CheckState.RUNNING: State("loader-2", N_("PyTorch check runs"), turns=True),
    CheckState.PASSED: State("circle-check", N_("PyTorch check passed"), "ok"),
    CheckState.FAILED: State("circle-x", N_("PyTorch check failed"), "bad"),
    CheckState.UNAVAILABLE: State("minus", N_("Not checked with PyTorch"), "mute"),
    CheckState.SIMULATED: State("flask", N_("Simulated: not checked with PyTorch"), "mute"),
}
BUTTONS: Mapping[str, str] = {
    OfferKind.OTHER_CARDS: N_("Launch on these"),
    OfferKind.OTHER_MODEL: N_("Launch on these"),
    OfferKind.FEWER: N_("Launch with fewer"),
}


@dataclass(frozen=True, slots=True)
class Tile:
    """One card in the form or in a list. `look`: a hook of the stylesheet."""

    card: CardRow
    look: str               # free, own, mine, held, busy, bad, off
    state: State
    word: str               # of the state, translated; a holder's name as it is
    since: datetime | None  # of the holder, else of the condition; None = not worth saying
    can: bool               # may be chosen now; its own, too
    is_own: bool            # held by the workspace that is being changed
    said: Said | None       # why it is not offered, and what to do


@dataclass(frozen=True, slots=True)
class Group:
    """The cards of one host."""

    host: HostFacts
    tiles: tuple[Tile, ...]
    models: str             # "4 × NVIDIA A100-SXM4-80GB"
    free: int
    can_be_had: int         # at some time: no cards in MIG mode, none without a UUID
    trouble: Said | None    # of its driver
    is_calm: bool           # the trouble is none: there is no driver

    @property
    def whys(self) -> list[Tile]:
        return [tile for tile in self.tiles if tile.said]


@dataclass(frozen=True, slots=True)
class Offer:
    said: Said
    button: str
    uuids: str              # with commas between, as the button sends them
    cards: str              # "GPU 2, GPU 3"
    host: str
    simulated: bool


def group(host: HostFacts, member_id: str, *, own: str | None = None) -> Group:
    """`own`: the workspace that is being changed, which may keep what it has."""
    found = tuple(tiles(
        host.cards, member_id, silent=host.unreachable_since is not None, trouble=host.gpu_trouble, own=own))
    return Group(
        host=host, tiles=found, models=counted(card.model for card in host.cards if card.parent_uuid is None),
        free=sum(tile.can and not tile.is_own for tile in found),
        can_be_had=sum(bool(card.uuid) and not card.is_divided for card in host.cards),
        trouble=reason(host.gpu_trouble), is_calm=is_calm(host.gpu_trouble))


def tiles(
    cards: Iterable[CardRow], member_id: str, *, silent: bool, trouble: Mapping[str, Any] | None = None,
    own: str | None = None,
) -> list[Tile]:
    """Cards of one host. `silent`: it does not answer.   `trouble`: of its driver, so that no card repeats it."""
    return [_tile(card, member_id, silent=silent, trouble=trouble, own=own) for card in cards]


def is_calm(trouble: Mapping[str, Any] | None) -> bool:
    """There is no driver or no card: worth knowing, and nothing to mend."""
    return trouble is not None and trouble.get("code") in NO_DRIVER


def counted(models: Iterable[str]) -> str:
    """`4 × A100 + 2 × L40S`, most first."""
    return " + ".join(f"{count} × {model}" for model, count in Counter(models).most_common())


def in_line(gpus: GpusOfWorkspace) -> str:
    """`2 × NVIDIA A100-SXM4-80GB`, for the line of a workspace; "" = it has none."""
    if gpus.count == 0:
        return ""
    return f"{gpus.count} × {' / '.join(gpus.models) or 'GPU'}"


def unfit_hosts(image: ImageChoice, hosts: Iterable[HostFacts]) -> list[tuple[str, Said]]:
    """Hosts with cards on which the image cannot run, by the sentence that names both versions."""
    names: dict[str, list[str]] = {}
    said: dict[str, Said] = {}
    for host in hosts:
        why = cuda.refusal(image.cuda_version, host.driver_version) if host.cards else None
        if why and host.driver_version and (sentence := reason(why.as_json())):
            names.setdefault(host.driver_version, []).append(host.name)
            said[host.driver_version] = sentence
    return [(", ".join(those), said[driver]) for driver, those in names.items()]


def models_of(hosts: Iterable[HostFacts]) -> list[str]:
    """Models that may be asked for, each once, sorted."""
    return sorted({card.model for host in hosts for card in host.cards if card.uuid and not card.is_divided})


def offers(
    facts: Mapping[str, Any], hosts: Sequence[HostFacts], buttons: Mapping[str, str] = BUTTONS,
) -> list[Offer]:
    """What a refusal for want of cards offers instead; `facts` of errors.NoCapacity. `buttons`: kind → message id."""
    names = {host.id: host.name for host in hosts}
    known = {card.uuid: card for host in hosts for card in host.cards if card.uuid}
    return [_offer(each, said, names, known, buttons) for each in facts.get("next_best", ()) if (said := reason(each))]


def whys(facts: Mapping[str, Any]) -> list[Said]:
    """Why each card in the way is not to be had."""
    return [said for each in facts.get("why", ()) if (said := reason(each))]


def check_state(check: Mapping[str, Any]) -> State:
    """Of the look with PyTorch; a state of a newer agent is shown as it is."""
    state = str(check.get("state", "?"))
    return CHECKS.get(state) or State("info-circle", str(escape(state)), "mute")    # templates trust a state's word


def _offer(
    each: Mapping[str, Any], said: Said, hosts: Mapping[str, str], known: Mapping[str, CardRow],
    buttons: Mapping[str, str],
) -> Offer:
    uuids = each["uuids"]
    return Offer(
        said=said, button=gettext(buttons.get(each["kind"], buttons[OfferKind.OTHER_CARDS])), uuids=",".join(uuids),
        cards=", ".join(known[uuid].short if uuid in known else uuid for uuid in uuids),
        host=hosts.get(each["host_id"], ""), simulated=any(uuid in known and known[uuid].simulated for uuid in uuids))


def _tile(
    card: CardRow, member_id: str, *, silent: bool, trouble: Mapping[str, Any] | None, own: str | None,
) -> Tile:
    look, state = _state(card, member_id, silent=silent, trouble=trouble)
    holder = card.holder
    is_own = own is not None and holder is not None and holder.workspace_id == own
    if is_own and state in (MINE, HELD):
        look, state = "own", OWN
    word = holder.username if state is HELD and holder else gettext(state.word)
    since = holder.since if holder else card.condition_at if card.condition is not Condition.OK else None
    repeats = card.refusal is not None and card.refusal == trouble
    return Tile(
        card=card, look=look, state=state, word=word, since=since,
        can=card.uuid is not None and card.refusal is None and (is_own or holder is None) and not silent, is_own=is_own,
        said=None if repeats else reason(card.refusal))


def _state(
    card: CardRow, member_id: str, *, silent: bool, trouble: Mapping[str, Any] | None,
) -> tuple[str, State]:
    """What matters most first: a lost card stays lost whoever holds it."""
    if card.refusal is not None and card.refusal == trouble:
        return "off", UNREAD
    if card.condition in CONDITIONS:
        return "bad", CONDITIONS[card.condition]
    if card.holder:
        return ("mine", MINE) if card.holder.member_id == member_id else ("held", HELD)
    if silent:
        return "off", SILENT
    if card.is_divided:
        return "off", DIVIDED
    if card.refusal is not None:
        return ("busy", BUSY) if card.refusal.get("code") == "gpu_busy" else ("off", NOT_OFFERED)
    return "free", FREE
