"""place() under any house and any request: what must hold whatever there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from cards import LOST, House, any_of, broken_pairs, card, chosen, house, nearness
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.domain.placement import (
    Card,
    CardRequest,
    NoPlacement,
    Placement,
    place,
    why_not,
)

WORDS = ["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV4", "NV18", "?"]


@st.composite
def houses(draw: st.DrawFn, most: int = 14) -> House:
    """Up to two hosts, two models, any links; some cards lost, claimed or without UUID."""
    cards = []
    for i in range(draw(st.integers(0, most))):
        refusal = LOST if draw(st.integers(0, 5)) == 0 else None
        cards.append(card(
            None if draw(st.integers(0, 9)) == 0 else f"g{i}", i, host=draw(st.sampled_from(["h1", "h1", "h2"])),
            model=draw(st.sampled_from(["A100", "A100", "3090"])), refusal=refusal,
            claimed=draw(st.integers(0, 3)) == 0,
        ))
    seed = draw(st.randoms(use_true_random=False))
    links = {frozenset((a.uuid, b.uuid)): nearness(seed.choice(WORDS))
             for a, b in combinations(cards, 2) if a.uuid and b.uuid and a.host_id == b.host_id}
    return House(tuple(cards), links)


@st.composite
def requests(draw: st.DrawFn) -> CardRequest:
    model = draw(st.sampled_from([None, None, "A100", "3090", "H200"]))
    if draw(st.booleans()):
        return CardRequest(draw(st.integers(0, 9)), model=model)
    named = draw(st.lists(st.sampled_from([f"g{i}" for i in range(14)]), max_size=3, unique=True))
    return CardRequest(len(named), tuple(named), model)


def all_placements(found: Placement | NoPlacement) -> list[Placement]:
    return [found] if isinstance(found, Placement) else [offer.placement for offer in found.next_best]


@settings(max_examples=50, deadline=None)
@given(requests(), houses())
def test_only_free_cards_of_one_host_and_none_twice(request: CardRequest, on: House) -> None:
    """Holds for what is offered instead as well."""
    for placement in all_placements(place(request, on.cards, on.links)):
        assert len(set(placement.uuids)) == len(placement.cards)
        assert all(each in on.cards and why_not(each) is None for each in placement.cards)
        assert {each.host_id for each in placement.cards} <= {placement.host_id}
        assert [each.index for each in placement.cards] == sorted(each.index or 0 for each in placement.cards)


@settings(max_examples=50, deadline=None)
@given(requests(), houses())
def test_all_that_was_asked_for_or_nothing(request: CardRequest, on: House) -> None:
    found = place(request, on.cards, on.links)
    if isinstance(found, Placement):
        assert len(found.cards) == request.count
        assert not request.uuids or set(found.uuids) == set(request.uuids)
        assert request.model is None or set(found.models) <= {request.model}
        return
    free = [each.host_id for each in on.cards if why_not(each, request.model) is None]
    assert found.largest_free == max((free.count(host) for host in free), default=0)
    assert request.uuids or found.largest_free < request.count
    assert found.why or not on.cards
    assert all(0 < len(offer.placement.cards) <= request.count for offer in found.next_best)


@settings(max_examples=40, deadline=None)
@given(requests(), houses(), st.randoms(use_true_random=False))
def test_same_input_in_any_order_same_answer(request: CardRequest, on: House, random: Any) -> None:
    shuffled = list(on.cards)
    random.shuffle(shuffled)
    assert place(request, shuffled, on.links) == place(request, on.cards, on.links)


@settings(max_examples=30, deadline=None)
@given(st.lists(requests(), min_size=2, max_size=4), houses())
def test_claims_add_up_and_removing_them_restores(wishes: Sequence[CardRequest], on: House) -> None:
    first, later, held = place(wishes[0], on.cards, on.links), on, list[str]()
    for wish in wishes:
        found = place(wish, later.cards, later.links)
        if isinstance(found, Placement):
            assert not set(held) & set(found.uuids)
            held += found.uuids
            later = later.claimed(*found.uuids)
    restored = [replace(each, claimed=False) if each.uuid in held else each for each in later.cards]
    assert tuple(restored) == on.cards
    assert place(wishes[0], restored, on.links) == first


@settings(max_examples=20, deadline=None)
@given(houses(most=18))
def test_one_model_wherever_a_host_has_enough_of_it(on: House) -> None:
    free = [(each.host_id, each.model) for each in on.cards if why_not(each) is None]
    for count in range(1, max((free.count(kind) for kind in free), default=0) + 1):
        found = place(any_of(count), on.cards, on.links)
        assert isinstance(found, Placement) and len(found.models) == 1


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 17), max_size=14), st.integers(1, 12), st.permutations(range(18)))
def test_pair_is_broken_only_when_every_choice_breaks_one(taken: set[int], count: int, sockets: list[int]) -> None:
    """An even number never breaks one, and an odd number only when no card without its mate is free."""
    def word(a: int, b: int) -> str:
        return "NV4" if a // 2 == b // 2 else "NODE" if sockets[a // 2] % 2 == sockets[b // 2] % 2 else "SYS"

    on, count = house(18, word).claimed(*(f"g{i}" for i in taken)), min(count, 18 - len(taken))
    halves = sum(i not in taken and i ^ 1 in taken for i in range(18))
    assert broken_pairs(on, chosen(any_of(count), on)) == (1 if count % 2 and not halves else 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), st.integers(1, 4), st.randoms(use_true_random=False))
def test_weakest_link_without_nvlink_is_the_best_there_is(size: int, count: int, random: Any) -> None:
    on, count = house(size, lambda a, b: random.choice(["?", "SYS", "NODE", "PHB", "PXB", "PIX"])), min(count, size)
    found = place(any_of(count), on.cards, on.links)
    assert isinstance(found, Placement)

    def weakest(cards: Sequence[Card]) -> int:
        return min((on.links[frozenset((str(a.uuid), str(b.uuid)))] for a, b in combinations(cards, 2)), default=0)

    assert weakest(found.cards) == max(weakest(some) for some in combinations(on.cards, count))
