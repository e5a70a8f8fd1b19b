"""place(request, cards, links) → which cards a workspace gets, or why not and what it could have instead.

Pure. All cards come from one host. The database refuses a double afterwards; here nothing is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from webapp.domain.connected import UNKNOWN, Field, Score
from webapp.domain.reasons import Reason, Wording
from webapp.errors import N_

Links = Mapping[frozenset[str], int]    # {UUID, UUID} → closeness: 1 SYS … 5 PIX, above NVLink; missing = unknown


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU or MIG slice, as far as placing needs it."""

    uuid: str | None            # identity; None = the driver tells none: shown, never placed
    host_id: str
    index: int | None           # as the driver counts today; decides between equals and is text on screen
    model: str                  # as the driver names it
    memory_bytes: int | None    # bytes; None = not reported
    refusal: Reason | None      # why it is not offered: lost, faulty, quarantined, MIG parent, busy with others' work …
    claimed: bool               # a workspace holds it

    @property
    def label(self) -> str:
        """For sentences, as gpu.Gpu.label: `GPU 3 (NVIDIA A100-SXM4-80GB)`."""
        return f"GPU ({self.model})" if self.index is None else f"GPU {self.index} ({self.model})"


@dataclass(frozen=True, slots=True)
class CardRequest:
    """No cards (count 0), any `count` cards, or the very cards in `uuids`; of `model`, unless it is None.

    Raises: ValueError: count below 0, a UUID twice, or a count that is not that of the UUIDs.
    """

    count: int
    uuids: tuple[str, ...] = ()
    model: str | None = None

    def __post_init__(self) -> None:
        if self.count < 0 or len(set(self.uuids)) != len(self.uuids):
            raise ValueError(f"no request for cards: {self}")
        if self.uuids and self.count != len(self.uuids):
            raise ValueError(f"{self.count} cards wanted, {len(self.uuids)} named")

    @classmethod
    def these(cls, uuids: Iterable[str]) -> CardRequest:
        named = tuple(uuids)
        return cls(len(named), named)


NO_CARDS = CardRequest(0)


@dataclass(frozen=True, slots=True)
class Placement:
    """host_id None and no cards: none were wanted, any host will do."""

    host_id: str | None
    cards: tuple[Card, ...]     # ascending index

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(card.uuid for card in self.cards if card.uuid is not None)

    @property
    def models(self) -> tuple[str, ...]:
        """Each model once, sorted. More than one only where no host had enough cards of one model."""
        return tuple(sorted({card.model for card in self.cards}))


class OfferKind(StrEnum):
    OTHER_CARDS = "other_cards"     # as many of the same model, others than were named
    OTHER_MODEL = "other_model"     # as many, of another model
    FEWER = "fewer"                 # fewer; of the named ones where there are some


@dataclass(frozen=True, slots=True)
class Offer:
    """What would fit now instead."""

    kind: OfferKind
    placement: Placement

    @property
    def reason(self) -> Reason:
        facts = {"count": len(self.placement.cards), "models": ", ".join(self.placement.models)}
        return Reason(f"gpu_offer_{self.kind}", facts)


@dataclass(frozen=True, slots=True)
class WhyNot:
    uuid: str | None
    card: Card | None           # None: no card has the UUID that was named
    reason: Reason


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """Nothing fits now. Nothing was chosen, not even in part."""

    wanted: int
    largest_free: int               # most cards that one host could give now, of the model asked for, named or not
    why: tuple[WhyNot, ...]         # named cards: those in the way; else every card; by host and index
    next_best: tuple[Offer, ...]    # best first; empty = nothing is free

    def facts(self) -> dict[str, Any]:
        """For `NoCapacity(**facts)`; JSON-ready."""
        return {
            "wanted": self.wanted,
            "largest_free": self.largest_free,
            "why": [{"uuid": each.uuid, **each.reason.as_json()} for each in self.why],
            "next_best": [_offer_as_json(offer) for offer in self.next_best],
        }


def place(request: CardRequest, cards: Sequence[Card], links: Links) -> Placement | NoPlacement:
    """Choose cards of one host for `request`: all of them or none.

    Cards of one model where any host has enough of them, else of as few models as can be. Among those the best
    connected ones, and NVLink pairs stay whole (connected.py has the order). Equal sets: the host that comes first by
    id, then the lowest index. The order of `cards` changes nothing.

    Args:    cards: of all hosts that may be used, whatever their state.   links: unknown ones may be missing.
    Of two offered cards with one UUID neither is placed.
    """
    ordered = sorted(_without_doubles(cards), key=_place_in_list)
    free = [card for card in ordered if why_not(card, request.model) is None]
    chosen = _named(request, free) if request.uuids else _choose(free, request.count, links)
    if len(chosen) == request.count:
        return _placement(chosen)
    return _no_placement(request, ordered, free, links)


def why_not(card: Card, model: str | None = None) -> Reason | None:
    """Why this card cannot be placed now, for a request of `model` (None = any); None = it can."""
    if card.refusal is not None:
        return card.refusal
    if card.uuid is None:
        return Reason("gpu_no_uuid", {"gpu": card.label})
    if card.claimed:
        return Reason("gpu_taken", {"gpu": card.label})
    if model is not None and card.model != model:
        return Reason("gpu_other_model", {"gpu": card.label, "wanted": model})
    return None


# -- choosing


def _named(request: CardRequest, free: Sequence[Card]) -> Sequence[Card]:
    """The named cards that are free on the host that has most of them."""
    by_host = _grouped(free, lambda card: card.host_id)
    named = ([card for card in group if card.uuid in request.uuids] for group in by_host)
    return max(named, key=len, default=[])


def _choose(free: Sequence[Card], count: int, links: Links) -> Sequence[Card]:
    """`count` cards of one host; empty when no host has as many."""
    best: tuple[Score, Sequence[Card]] | None = None
    for group in _grouped(free, lambda card: card.host_id):
        if not 0 < count <= len(group):
            continue
        field = Field([[_rank(a, b, links) for b in group] for a in group], [card.model for card in group])
        positions = field.best(count)
        score = field.score(positions)._replace(order=())    # positions on two hosts say nothing
        if best is None or score > best[0]:
            best = score, [group[position] for position in positions]
    return best[1] if best else []


def _rank(a: Card, b: Card, links: Links) -> int:
    return UNKNOWN if a.uuid is None or b.uuid is None else links.get(frozenset((a.uuid, b.uuid)), UNKNOWN)


# -- when nothing fits


def _no_placement(request: CardRequest, cards: Sequence[Card], free: Sequence[Card], links: Links) -> NoPlacement:
    on_host = Counter(card.host_id for card in free)
    why = _why_named(request, cards, free) if request.uuids else _why_each(request, cards, on_host)
    return NoPlacement(
        wanted=request.count,
        largest_free=max(on_host.values(), default=0),
        why=tuple(why),
        next_best=tuple(_next_best(request, cards, free, links)),
    )


def _why_each(request: CardRequest, cards: Sequence[Card], on_host: Mapping[str, int]) -> Iterable[WhyNot]:
    for card in cards:
        facts = {"gpu": card.label, "free": on_host.get(card.host_id, 0), "wanted": request.count}
        too_few = Reason("gpu_too_few", facts)
        yield WhyNot(card.uuid, card, why_not(card, request.model) or too_few)


def _why_named(request: CardRequest, cards: Sequence[Card], free: Sequence[Card]) -> Iterable[WhyNot]:
    """Those in the way. Free ones are, when they are not on the host that has most of the free ones."""
    fitting = {card.uuid for card in _named(request, free)}
    for card in cards:
        if card.uuid in request.uuids and card.uuid not in fitting:
            elsewhere = Reason("gpu_other_host", {"gpu": card.label})
            yield WhyNot(card.uuid, card, why_not(card, request.model) or elsewhere)
    known = {card.uuid for card in cards}
    for uuid in request.uuids:
        if uuid not in known:
            yield WhyNot(uuid, None, Reason("gpu_not_found", {"uuid": uuid}))


def _next_best(request: CardRequest, cards: Sequence[Card], free: Sequence[Card], links: Links) -> Iterable[Offer]:
    """As many come before fewer."""
    model = request.model or _model_of_all([card for card in cards if card.uuid in request.uuids])
    alike = [card for card in free if model is None or card.model == model]
    as_many = _choose(alike, request.count, links) if request.uuids else []
    if as_many:
        yield Offer(OfferKind.OTHER_CARDS, _placement(as_many))
    elif model is not None and (of_another := _of_another_model(model, request.count, cards, links)):
        yield Offer(OfferKind.OTHER_MODEL, _placement(of_another))
    named = _named(request, free)
    if fewer := named or (() if as_many else _fewer(alike, request.count, links)):
        yield Offer(OfferKind.FEWER, _placement(fewer))


def _of_another_model(model: str, count: int, cards: Sequence[Card], links: Links) -> Sequence[Card]:
    """The model with the least memory that has no less than `model`; else the one with most. Unknown memory last."""
    needed = max((card.memory_bytes or 0 for card in cards if card.model == model), default=0)
    others = [card for card in cards if card.model != model and why_not(card) is None]
    found = (_choose(group, count, links) for group in _grouped(others, lambda card: card.model))
    return min((chosen for chosen in found if chosen), key=lambda chosen: _shortfall(chosen, needed), default=[])


def _shortfall(chosen: Sequence[Card], needed: int) -> tuple[bool, int]:
    memory = min(card.memory_bytes or 0 for card in chosen)
    return memory < needed, abs(memory - needed)


def _fewer(free: Sequence[Card], count: int, links: Links) -> Sequence[Card]:
    most = max(Counter(card.host_id for card in free).values(), default=0)
    return _choose(free, min(most, count - 1), links)


# -- small things


def _placement(cards: Sequence[Card]) -> Placement:
    return Placement(cards[0].host_id if cards else None, tuple(cards))


def _model_of_all(cards: Sequence[Card]) -> str | None:
    models = {card.model for card in cards}
    return models.pop() if len(models) == 1 else None


def _without_doubles(cards: Sequence[Card]) -> Iterable[Card]:
    """Refuses offered cards that share a UUID; a row that is refused already (a card's former host) harms nobody."""
    offered = Counter(card.uuid for card in cards if card.refusal is None)
    for card in cards:
        is_double = card.uuid is not None and card.refusal is None and offered[card.uuid] > 1
        yield replace(card, refusal=Reason("gpu_uuid_twice", {"gpu": card.label})) if is_double else card


def _place_in_list(card: Card) -> tuple[str, bool, int, str]:
    """By host and index; cards without one last."""
    return card.host_id, card.index is None, card.index or 0, card.uuid or ""


def _grouped(cards: Iterable[Card], key: Callable[[Card], str]) -> list[list[Card]]:
    """Groups and cards in the order in which they come."""
    groups: dict[str, list[Card]] = {}
    for card in cards:
        groups.setdefault(key(card), []).append(card)
    return list(groups.values())


def _offer_as_json(offer: Offer) -> dict[str, Any]:
    placement = offer.placement
    where = {"host_id": placement.host_id, "uuids": list(placement.uuids)}
    return {"kind": str(offer.kind), **where, **offer.reason.as_json()}


WORDINGS: dict[str, Wording] = {
    "gpu_taken": Wording(
        N_("%(gpu)s is taken: a workspace holds it."),
        N_("Choose another one, or wait until that workspace is stopped."),
    ),
    "gpu_other_model": Wording(
        N_("%(gpu)s is not of the model asked for, %(wanted)s."),
        N_("Choose that model, or leave the model open."),
    ),
    "gpu_too_few": Wording(
        N_("%(gpu)s is free, but only %(free)s are free together on its host and %(wanted)s are wanted."),
        N_("Take fewer, or wait until others are free."),
    ),
    "gpu_other_host": Wording(
        N_("%(gpu)s is on another host than most of the cards you chose; a workspace has cards of one host."),
        N_("Choose cards of one host."),
    ),
    "gpu_not_found": Wording(
        N_("There is no card %(uuid)s, or not any more."),
        N_("Choose from the list."),
    ),
    "gpu_host_silent": Wording(
        N_("The host of %(gpu)s does not answer."),
        N_("Choose a card of another host, or wait until it answers again."),
    ),
    "gpu_offer_other_cards": Wording(
        N_("%(count)s other cards of the same kind are free now: %(models)s."),
        N_("Launch on these."),
    ),
    "gpu_offer_other_model": Wording(
        N_("%(count)s cards of another model are free now: %(models)s."),
        N_("Launch on these."),
    ),
    "gpu_offer_fewer": Wording(
        N_("%(count)s of the cards can be had now: %(models)s."),
        N_("Launch with fewer."),
    ),
}
