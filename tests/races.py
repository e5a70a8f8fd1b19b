"""Processes that want the same cards at the same moment, on the real services and a real database."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datakey import SEAL
from sqlalchemy import select

from webapp.domain.actor import Actor
from webapp.domain.gpu import Gpu, Inventory
from webapp.domain.house import HouseRules
from webapp.errors import AppError
from webapp.services import inventory, observations, workspaces
from webapp.services.orders import LaunchRequest
from webapp.services.secrets import Secrets
from webapp.store.session import Store
from webapp.store.tables import GpuClaim

LONGEST_WAIT = 60.0     # seconds for the others of a round; only a dead-lock takes as long
Wish = Mapping[str, Any]        # fields of LaunchRequest


@dataclass(frozen=True)
class Ground:
    """A database with somebody who launches on a host whose cards `with_cards` has put there."""

    url: str
    owner: Actor
    host_id: str
    image_id: str
    house: HouseRules
    epoch: int
    now: datetime

    def with_cards(self, number: int) -> tuple[str, ...]:
        cards = tuple(f"GPU-0000000{one}-aaaa-bbbb-cccc-000000000001" for one in range(number))
        seen = Inventory(tuple(Gpu(uuid, index, "NVIDIA A100") for index, uuid in enumerate(cards)))
        store = Store(self.url, seal=SEAL)
        with store.write() as session:
            look = inventory.Look(seen, {}, simulated=True)
            assert inventory.record(session, self.host_id, look, epoch=self.epoch, now=self.now)
        store.close()       # no open connection may cross a fork
        return cards


@dataclass(frozen=True)
class Round:
    """What came of one round: who got which cards, what the others were told, and what the database said then."""

    won: Mapping[int, tuple[str, ...]]          # racer → cards
    lost: Mapping[int, str]                     # racer → code of the error, or what it was when it was none of ours
    claims: Mapping[str, tuple[str, ...]]       # workspace id → cards, when all had their answer


def race(ground: Ground, wishes: Sequence[Wish], rounds: int) -> list[Round]:
    """One process for each wish. In each round all launch at once; then the winners' workspaces are gone."""
    context = multiprocessing.get_context("fork")
    together, results = context.Barrier(len(wishes)), context.Queue()
    racers = [
        context.Process(target=_take_part, args=(ground, number, wish, rounds, together, results), daemon=True)
        for number, wish in enumerate(wishes)
    ]
    for racer in racers:
        racer.start()
    told = [results.get(timeout=2 * LONGEST_WAIT) for _ in range(rounds * len(wishes))]
    for racer in racers:
        racer.join(LONGEST_WAIT)
    return [_put_together([one for one in told if one[0] == number]) for number in range(rounds)]


def _take_part(ground: Ground, racer: int, wish: Wish, rounds: int, together: Any, results: Any) -> None:
    store = Store(ground.url, seal=SEAL)
    for number in range(rounds):
        together.wait(LONGEST_WAIT)
        workspace_id, outcome = _launch(store, ground, f"race-{number}-{racer}", wish)
        together.wait(LONGEST_WAIT)
        claims = _claims(store) if racer == 0 else {}
        together.wait(LONGEST_WAIT)
        if workspace_id is not None:
            _end(store, ground, workspace_id)
        results.put((number, racer, outcome, claims))
    store.close()


def _launch(store: Store, ground: Ground, name: str, wish: Wish) -> tuple[str | None, tuple[str, ...] | str]:
    request = LaunchRequest(name, ground.image_id, **wish)
    try:
        with store.write() as session:
            workspace = workspaces.launch(
                session, ground.owner, request, house=ground.house, now=ground.now, new_secrets=_cheap_secrets)
        return workspace.id, tuple(workspace.gpu_uuids)
    except AppError as error:
        return None, error.code
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def _cheap_secrets() -> Secrets:
    """It is the claims that are raced."""
    return Secrets("token", "private", "public")


def _claims(store: Store) -> dict[str, tuple[str, ...]]:
    with store.read() as session:
        held = session.execute(select(GpuClaim.workspace_id, GpuClaim.gpu_uuid)).all()
    return {workspace: tuple(sorted(uuid for owner, uuid in held if owner == workspace)) for workspace, _ in held}


def _end(store: Store, ground: Ground, workspace_id: str) -> None:
    with store.write() as session:
        generation = workspaces.remove(session, ground.owner, workspace_id, now=ground.now).generation
        assert observations.record_removed(
            session, workspace_id, generation=generation, epoch=ground.epoch, now=ground.now)


def _put_together(told: Sequence[tuple[int, int, Any, dict[str, tuple[str, ...]]]]) -> Round:
    won = {racer: outcome for _, racer, outcome, _ in told if isinstance(outcome, tuple)}
    lost = {racer: outcome for _, racer, outcome, _ in told if isinstance(outcome, str)}
    return Round(won, lost, next(claims for _, racer, _, claims in told if racer == 0))


def check(rounds: Sequence[Round]) -> None:
    """No card has two holders, nobody has a part of what was asked for, and nobody was told anything but "taken"."""
    for round_ in rounds:
        cards = [uuid for held in round_.won.values() for uuid in held]
        assert len(cards) == len(set(cards)), round_
        assert sorted(round_.claims.values()) == sorted(tuple(sorted(held)) for held in round_.won.values()), round_
        assert set(round_.lost.values()) <= {"no_capacity"}, round_
