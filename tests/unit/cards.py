"""Hosts full of cards, for the tests of placement: pairs, islands, sockets, models."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from webapp.domain import connected
from webapp.domain.placement import (
    Card,
    CardRequest,
    Links,
    NoPlacement,
    OfferKind,
    Placement,
    place,
    why_not,
)
from webapp.domain.reasons import Reason

GIB = 1024**3
LOST = Reason("gpu_lost")
NEARNESS = {"?": 0, "SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5}


def nearness(word: str) -> int:
    """As gpu.Link.closeness: NVLink above everything, more for each link."""
    return 6 + int(word[2:]) if word.startswith("NV") else NEARNESS[word]


@dataclass(frozen=True)
class House:
    cards: tuple[Card, ...]
    links: Links

    def claimed(self, *uuids: str | None) -> House:
        cards = tuple(replace(card, claimed=True) if card.uuid in uuids else card for card in self.cards)
        return replace(self, cards=cards)

    def refused(self, *uuids: str, reason: Reason = LOST) -> House:
        cards = tuple(replace(card, refusal=reason) if card.uuid in uuids else card for card in self.cards)
        return replace(self, cards=cards)

    def __add__(self, other: House) -> House:
        return House(self.cards + other.cards, {**self.links, **other.links})


def card(uuid: str | None, index: int = 0, *, host: str = "h1", model: str = "A100", **changes: Any) -> Card:
    values = {"memory_bytes": 80 * GIB, "refusal": None, "claimed": False}
    return Card(uuid=uuid, host_id=host, index=index, model=model, **values | changes)


def house(size: int, word: Callable[[int, int], str], *, first: int = 0, host: str = "h1", **changes: Any) -> House:
    """Cards g<first> …; word(a, b): how the cards at places a < b of this host are linked."""
    cards = tuple(card(f"g{first + i}", i, host=host, **changes) for i in range(size))
    links = {frozenset((f"g{first + a}", f"g{first + b}")): nearness(word(a, b))
             for a, b in combinations(range(size), 2)}
    return House(cards, links)


def pairs_word(a: int, b: int) -> str:
    """NVLink between 0 and 1, 2 and 3, …; two sockets of four cards."""
    if a // 2 == b // 2:
        return "NV4"
    return "NODE" if a // 4 == b // 4 else "SYS"


def pairs(size: int = 8) -> House:
    return house(size, pairs_word)


def dgx() -> House:
    return house(8, lambda a, b: "NV18")


def two_sockets() -> House:
    """As rtx6000ada-x4: no NVLink, 0–1 and 2–3 on one socket each."""
    return house(4, lambda a, b: "NODE" if a // 2 == b // 2 else "SYS")


def dgx1() -> House:
    """V100 hybrid cube mesh: two quads, joined; every card has two links of two and two of one."""
    two = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
    one = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}
    return house(8, lambda a, b: "NV2" if (a, b) in two else "NV1" if (a, b) in one else "SYS")


def any_of(count: int, model: str | None = None) -> CardRequest:
    return CardRequest(count, model=model)


def chosen(request: CardRequest, on: House) -> list[str]:
    found = place(request, on.cards, on.links)
    assert isinstance(found, Placement), found
    return list(found.uuids)


def refused(request: CardRequest, on: House) -> NoPlacement:
    found = place(request, on.cards, on.links)
    assert isinstance(found, NoPlacement), found
    return found


def codes(found: NoPlacement) -> dict[str | None, str]:
    return {each.uuid: each.reason.code for each in found.why}


def offers(found: NoPlacement) -> list[tuple[OfferKind, tuple[str, ...]]]:
    return [(offer.kind, offer.placement.uuids) for offer in found.next_best]


def broken_pairs(on: House, found: Collection[str]) -> int:
    """Pairs that were free before and of which one card was taken."""
    free = {each.uuid for each in on.cards if why_not(each) is None}
    return sum(len(two & set(found)) == 1 for two, rank in on.links.items() if rank > connected.PIX and two <= free)
