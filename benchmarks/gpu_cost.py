#!/usr/bin/env python3
"""What cards cost: a launch with two of eighteen against one without, and a look at all of them against bare commands.

    python benchmarks/gpu_cost.py [--rounds N]

No engine and no GPU: the services on a database file of its own, and the simulated nvidia-smi.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import median

from report import Figure, Goal, finish, ratio

from webapp.domain.actor import Actor
from webapp.domain.house import HouseRules
from webapp.domain.ports import PortRange
from webapp.domain.sizes import GIB
from webapp.gpus.local import LocalRunner
from webapp.gpus.output import Output
from webapp.gpus.query import ask_fields, inventory
from webapp.services import hosts, images, people, secrets, workspaces
from webapp.services import inventory as inventories
from webapp.services.observations import next_epoch
from webapp.services.orders import LaunchRequest
from webapp.simulation import presets, state
from webapp.simulation.install import install_host
from webapp.store.migrate import upgrade
from webapp.store.sealing import Seal
from webapp.store.session import Store
from webapp.store.tables import Role

GOALS = {"launch_ratio": Goal(at_most=2.0), "look_ratio": Goal(at_most=1.25)}
HOUSE = HouseRules(PortRange(20000, 29999), 1000, 64_000, GIB, 256 * GIB)
SECRETS = secrets.new_secrets()     # making keys is the same for both sides, and most of what a launch takes


class House:
    """A database with one host of eighteen simulated cards, a member and an image."""

    def __init__(self, store: Store, seen: inventories.Look) -> None:
        self.store = store
        self._numbers = count(1)
        upgrade(store)
        with store.write() as session:
            root, now = Actor.house(), _now()
            member = people.create_member(session, root, username="alice", display_name="Alice", role=Role.MEMBER,
                                          password="correct horse battery", now=now)
            host = hosts.ensure_local(session, name="gpu1", engine_url="unix:///run/none.sock", now=now)
            self._image = images.register_prepared(
                session, root, base="example/full:1", title="Full", reference="berth/workspace:full-1",
                cuda_version="12.8", has_jupyter=True, now=now).id
            inventories.record(session, host.id, seen, epoch=next_epoch(session, now=now), now=now)
            self._actor = Actor(member.id, is_admin=False)

    def launch(self, gpus: str) -> float:
        """Seconds of the transaction; it is rolled back, so that each one finds the same house."""
        request = LaunchRequest(name=f"run-{next(self._numbers)}", image_id=self._image, gpus=gpus)
        began = time.perf_counter()
        try:
            with self.store.write() as session:
                workspaces.launch(session, self._actor, request, house=HOUSE, now=_now(), new_secrets=lambda: SECRETS)
                session.flush()
                raise _Enough
        except _Enough:
            return time.perf_counter() - began


class _Enough(Exception):
    """Ends a transaction without a commit: waiting for the disk would drown what is compared."""


def main() -> int:
    rounds = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        looks, bare, seen = _looks(Path(folder), max(3, rounds // 10))
        store = Store(f"sqlite:///{folder}/berth.db", seal=Seal(lambda: ("0" * 64,)))
        house = House(store, seen)
        with_cards, without = _by_turns(rounds, lambda: house.launch("2"), lambda: house.launch(""))
        store.close()
    figures: dict[str, Figure] = {
        "launch_ratio": ratio(with_cards, without), "launch_cards_seconds": median(with_cards),
        "launch_without_seconds": median(without), "look_ratio": ratio(looks, bare), "look_seconds": median(looks),
    }
    return finish("gpu_cost", figures, GOALS)


def _looks(folder: Path, rounds: int) -> tuple[list[float], list[float], inventories.Look]:
    """Seconds of a whole look at eighteen cards, and of nothing but its commands."""
    path = folder / "simulation" / "state.json"
    state.create(path, presets.preset("eighteen"))
    program = install_host(folder / "bin", path)
    runner = LocalRunner(environment={"PATH": str(program.parent)})
    fields = ask_fields(runner)
    commands: list[Sequence[str]] = []

    def noting(argv: Sequence[str]) -> Output:
        commands.append(argv)
        return runner(argv)

    found = inventory(noting, known_fields=fields)
    if len(found.gpus) != 18 or found.trouble:
        raise RuntimeError(f"a look at eighteen simulated cards found {len(found.gpus)}: {found.trouble}")

    def bare() -> None:
        for argv in commands:
            subprocess.run([str(program), *argv[1:]], capture_output=True, check=True)

    ours, theirs = _by_turns(rounds, lambda: _timed(lambda: inventory(runner, known_fields=fields)),
                             lambda: _timed(bare))
    return ours, theirs, inventories.Look(found, {}, simulated=True)


def _by_turns(rounds: int, one: Callable[[], float], other: Callable[[], float]) -> tuple[list[float], list[float]]:
    one(), other()      # what is made at the first time counts for neither
    pairs = [(one(), other()) if number % 2 else (other(), one())[::-1] for number in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _now() -> datetime:
    return datetime.now(UTC)


def _arguments() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="launches of either side; a tenth as many looks")
    return int(parser.parse_args().rounds)


if __name__ == "__main__":
    sys.exit(main())
