"""F20, F21: four processes want the same cards at the same moment. One winner, nobody with a part, no dead-lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest
import races
from databases import Databases
from datakey import SEAL
from races import Ground, Wish

from webapp.domain.actor import Actor
from webapp.domain.house import HouseRules
from webapp.domain.ports import PortRange
from webapp.domain.sizes import GIB
from webapp.services import hosts, images, observations, people
from webapp.store.migrate import upgrade
from webapp.store.session import Store
from webapp.store.tables import Role

NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)


@pytest.fixture
def ground(databases: Databases) -> Iterator[Ground]:
    store, house = Store(databases.make("races"), seal=SEAL), Actor.house()
    upgrade(store)
    with store.write() as session:
        owner = people.create_member(session, house, username="alice", display_name="Alice",
                                     password="correct horse battery", role=Role.MEMBER, now=NOW)
        host = hosts.ensure_local(session, name="gpu1", engine_url="unix:///run/docker.sock", now=NOW)
        image = images.register_prepared(
            session, house, base="example/full:1", title="Full", reference="berth/workspace:full-1",
            cuda_version=None, has_jupyter=True, now=NOW)
        epoch = observations.next_epoch(session, now=NOW)
        rules = HouseRules(ports=PortRange(20000, 20999), default_cpu_millis=2000, max_cpu_millis=8000,
                           default_memory_bytes=8 * GIB, max_memory_bytes=32 * GIB)
    store.close()
    yield Ground(databases.url("races"), Actor(owner.id, is_admin=False), host.id, image.id, rules, epoch, NOW)
    databases.drop("races")


def test_last_card_has_one_winner_in_a_thousand_rounds(ground: Ground) -> None:
    ground.with_cards(1)
    rounds = races.race(ground, [{"gpus": "1"}] * 4, 1000)
    races.check(rounds)
    assert {(len(one.won), len(one.lost)) for one in rounds} == {(1, 3)}
    assert len({racer for one in rounds for racer in one.won}) > 1, "always the same winner: no race"


def any_of(*counts: int) -> list[Wish]:
    return [{"gpus": str(count)} for count in counts]


def named(cards: Sequence[str], *sets: str) -> list[Wish]:
    """"20" = the third card and the first, in this order."""
    return [{"gpu_uuids": tuple(cards[int(one)] for one in numbers)} for numbers in sets]


@pytest.mark.parametrize("wanted", [(2, 2, 2, 2), (3, 2, 1, 2)])
def test_numbers_of_cards_that_cross_are_given_whole(ground: Ground, wanted: tuple[int, ...]) -> None:
    ground.with_cards(3)
    rounds = races.race(ground, any_of(*wanted), 100)
    races.check(rounds)
    assert all(one.won for one in rounds)


@pytest.mark.parametrize("sets", [("01", "12", "20", "02"), ("0123", "3210", "12", "21"), ("01", "10", "23", "32")])
def test_named_cards_that_cross_are_given_whole(ground: Ground, sets: tuple[str, ...]) -> None:
    cards = ground.with_cards(4)
    rounds = races.race(ground, named(cards, *sets), 100)
    races.check(rounds)
    assert all(one.won for one in rounds)
