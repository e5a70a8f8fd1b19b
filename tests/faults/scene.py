"""A house whose agent can be told when to die or to stand still, and the flows that are broken so."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import agents, standin
from faults.agents import Process
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.own_engine import own_engine
from faults.ports import foreign_listener
from faults.workspace import Workspace
from webapp.domain.workspace import Phase
from webapp.simulation import presets
from webapp.store.tables import Image

OFTEN_SECONDS = 0.5     # between two looks at cards, and between two signs of life


@dataclass
class Scene:
    house: House
    alice: Person
    image: Image
    orders: Path
    wishes: Mapping[str, Any] = field(default_factory=dict)     # of each launch: fields of LaunchRequest
    listeners: list[socket.socket] = field(default_factory=list)
    launched: int = 0

    @property
    def agent(self) -> Process:
        assert self.house.agent is not None
        return self.house.agent

    def order(self, **order: Any) -> None:
        """From the next call on. A new order each time: equal ones would not be noticed."""
        self.launched += 1
        (self.orders / "calls").write_text("")
        written = self.orders / "order.new"
        written.write_text(json.dumps({**order, "order": self.launched}))
        written.rename(self.orders / "order")

    def calls(self) -> tuple[str, ...]:
        return tuple((self.orders / "calls").read_text().split())

    def set_clock(self, *, ahead_seconds: float) -> None:
        """The agent's, at once."""
        written = self.orders / "clock.new"
        written.write_text(str(ahead_seconds))
        written.rename(self.orders / "clock")

    def start_agent(self) -> None:
        often = str(OFTEN_SECONDS)
        self.house.start_agent(entry=agents.CRASHING, orders=str(self.orders), look_seconds=often, alive_seconds=often)

    def prepare(self) -> None:
        """A living agent that has no orders."""
        if self.house.agent is None or not self.house.agent.is_alive:
            self.start_agent()
        self.order()

    def launch(self, **wishes: Any) -> Workspace:
        self.launched += 1
        return self.house.launch(self.alice, self.image, f"w{self.launched}", **{**self.wishes, **wishes})

    def leave(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()


@dataclass(frozen=True)
class Flow:
    prepare: Callable[[Scene], Workspace | None]        # up to the wish; no crash yet
    wish: Callable[[Scene, Workspace | None], Workspace]
    ends_in: Phase
    keeps_layer: bool = False


@contextmanager
def scene_with_cards(make_house: MakeHouse, name: str, orders: Path, **wishes: Any) -> Iterator[Scene]:
    """Four simulated cards, on an engine of its own, whose toolkit is the stand-in."""
    with own_engine(name, cards=presets.preset("four")) as (engine, ground):
        house = make_house(name, ground=ground, toolkit=engine.toolkit)
        scene = Scene(house, house.add_person("alice"), house.add_image(standin.WITH_PYTHON), orders, wishes)
        scene.start_agent()
        house.wait_for_cards()
        yield scene
        house.close()       # before its engine goes


def running(scene: Scene) -> Workspace:
    workspace = scene.launch()
    workspace.until(Phase.RUNNING)
    workspace.run("sh", "-c", "echo kept > /opt/layer; echo kept > ~/file")
    return workspace


def stopped(scene: Scene) -> Workspace:
    workspace = running(scene)
    workspace.stop().until(Phase.STOPPED)
    return workspace


def stopped_and_its_port_taken(scene: Scene) -> Workspace:
    workspace = stopped(scene)
    scene.listeners.append(foreign_listener(workspace.ports()["ssh"]))
    return workspace


def flows(before_move: Callable[[Scene], Workspace]) -> dict[str, Flow]:
    """All that a person may ask for. `before_move`: a stopped workspace that must be made anew when it starts."""
    return {
        "launch": Flow(lambda scene: None, lambda scene, _: scene.launch(), Phase.RUNNING),
        "stop": Flow(running, lambda _, workspace: workspace.stop(), Phase.STOPPED, keeps_layer=True),
        "start": Flow(stopped, lambda _, workspace: workspace.start(), Phase.RUNNING, keeps_layer=True),
        "move": Flow(before_move, lambda _, workspace: workspace.start(), Phase.RUNNING, keeps_layer=True),
        "remove": Flow(running, lambda _, workspace: workspace.remove(), Phase.REMOVED),
    }
