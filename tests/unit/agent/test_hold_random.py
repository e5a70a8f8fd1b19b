"""Random houses, restored as they were at a random moment: on hold nothing is touched, and whatever is decided, rows
and engine agree in the end and nobody has a card twice.
"""

from __future__ import annotations

import random

import pytest
from sqlalchemy import select

from agent.stage import Stage, check, check_at_rest, trespassing
from agent.yesterday import HOUSE, Yesterday, findings
from webapp.domain.hold import Decision, FindingKind, choices
from webapp.domain.hold_errors import HoldClash
from webapp.domain.workspace import Desired, Phase
from webapp.errors import AppError
from webapp.services import hold
from webapp.services.hold_release import release
from webapp.store.tables import HoldFinding, Workspace

CARDS = 4


class House:
    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.dice, self.number = stage, random.Random(seed), 0
        stage.add_cards(CARDS)

    def go_on(self, steps: int) -> None:
        """What people and their shells do; refusals are part of it."""
        for _ in range(steps):
            deed = self.dice.choice([self.launch, self.launch, self.wish, self.wish, self.change, self.by_hand])
            try:
                deed()
            except AppError:
                continue
            if self.dice.random() < 0.8:
                self.stage.settle()

    def launch(self) -> None:
        self.number += 1
        self.stage.launch(name=f"run-{self.number}", gpus=self.dice.choice(["0", "1", "2"]))

    def wish(self) -> None:
        if workspace := self._one():
            self.dice.choice([self.stage.stop, self.stage.start, self.stage.remove])(workspace)

    def change(self) -> None:
        if workspace := self._one():
            self.stage.change(workspace, **self.dice.choice([
                {"memory": "4GiB"}, {"shm": "1GiB"}, {"gpus": "1"}, {"gpus": "0"}, {"cpus": "1"}]))

    def by_hand(self) -> None:
        names = sorted(self.stage.machine.containers)
        if not names:
            return
        name = self.dice.choice(names)
        if self.dice.random() < 0.4:
            self.stage.engine.remove_by_hand(name)
        elif self.stage.machine.containers[name].is_up:
            self.stage.engine.end(name, 0, by_hand=True)

    def decide(self) -> None:
        """At random about each; where two would have the same, what is there is taken over, which never clashes."""
        for found in findings(self.stage).values():
            self.stage.do(hold.decide, HOUSE, found.workspace_id,
                          self.dice.choice(choices(found.kind, found.facts)))

    def end(self) -> None:
        try:
            self.stage.do(release, HOUSE)
        except HoldClash:
            for found in findings(self.stage).values():
                is_there = Decision.ADOPT in choices(found.kind, found.facts)
                self.stage.do(hold.decide, HOUSE, found.workspace_id,
                              Decision.ADOPT if is_there else Decision.FORGET)
            self.stage.do(release, HOUSE)

    def _one(self) -> Workspace | None:
        with self.stage.store.read() as session:
            rows = list(session.scalars(select(Workspace).where(Workspace.desired != Desired.REMOVED)
                                        .order_by(Workspace.created_at)))
        return self.dice.choice(rows) if rows else None


def live_through(stage: Stage, seed: int) -> None:
    house = House(stage, seed)
    house.go_on(6)
    yesterday = Yesterday(stage)
    house.go_on(8)
    stage.live(30)
    yesterday.restore()
    for _ in range(2):
        stage.live(20)
        stage.take_over()
    house.decide()
    assert stage.deeds() == [], "something was touched on hold"
    house.end()
    check(stage)
    assert not trespassing(stage) - set(left_alone(stage)), "a card is in use and claimed by nobody"
    stage.live(120)
    assert all(container in stage.machine.containers for container in left_alone(stage)), "it was to be left alone"
    for container in left_alone(stage):         # the rest of the house is as it should be without them
        clear_away(stage, container)
    stage.settle()
    check_at_rest(stage)


def clear_away(stage: Stage, container: str) -> None:
    """By hand, with its volume and images."""
    machine, workspace = stage.machine, container.rpartition("-")[0]
    if machine.containers[container].is_up:
        stage.engine.end(container, 0)
    stage.engine.remove_by_hand(container)
    private = "/".join(workspace.rsplit("-w-", 1)).replace("/", "/w-")
    for image in [name for name in machine.images if name.startswith(f"{private}:")]:
        del machine.images[image]
    machine.volumes.pop(workspace, None)


def left_alone(stage: Stage) -> list[str]:
    with stage.store.read() as session:
        rows = list(session.scalars(select(HoldFinding)))
        assert all(row.decision == Decision.FORGET for row in rows)
        gone = set(session.scalars(select(Workspace.id).where(Workspace.phase == Phase.REMOVED)))
    assert all(row.kind == FindingKind.UNKNOWN_CONTAINER or row.workspace_id in gone for row in rows)
    return [row.facts["is"]["container_name"] for row in rows]


@pytest.mark.parametrize("seed", range(6))
def test_random_house(stage: Stage, seed: int) -> None:
    live_through(stage, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_houses(stage: Stage, seed: int) -> None:
    live_through(stage, seed)
