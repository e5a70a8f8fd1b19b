"""A simulated host beside the stage: the agent's watch reads its nvidia-smi, run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

from sqlalchemy import select

from agent.stage import Stage
from webapp.agent.cards import Cards
from webapp.agent.inventory import Watch
from webapp.agent.reconciler import HostLoop
from webapp.domain.placement import why_not
from webapp.gpus.output import NoAnswer, Output
from webapp.gpus.query import LIST
from webapp.services import gpus
from webapp.simulation import presets, state
from webapp.simulation.nvidia_smi.program import answer
from webapp.store.tables import Gpu, Host


class Room:
    """`asked`: command lines, in order. `hangs`: nothing is answered before the deadline. `meanwhile`: done before the
    first answer of a look."""

    def __init__(self, stage: Stage, folder: Path, preset: str = "four") -> None:
        self.stage, self.path = stage, folder / "simulation" / "state.json"
        self.asked: list[Sequence[str]] = []
        self.hangs = False
        self.meanwhile: Callable[[], object] = lambda: None
        state.create(self.path, presets.preset(preset))
        self.enter()

    def enter(self, cards: Cards | None = None) -> None:
        """The stage's agent looks at these cards from here on; to be called again after a take-over."""
        stage = self.stage
        stage.context = replace(stage.context, cards=cards or Cards(run=self.run, simulated=True))
        stage.loop = HostLoop(stage.context, Event(), stage.hands)
        self.watch = Watch(stage.context)

    def run(self, argv: Sequence[str]) -> Output:
        self.asked.append(argv)
        if tuple(argv) == LIST:
            self.meanwhile()
        if self.hangs:
            return Output(None, "", "", NoAnswer.LATE, 20.0)
        printed, code, _ = answer(["--simulated-state", str(self.path), *argv[1:]])
        return Output(code, printed.decode(errors="replace"))

    @contextmanager
    def changed(self) -> Iterator[state.Simulation]:
        """The host is in this state from the end of the block on, and the agent looks at it."""
        with state.changed(self.path) as simulation:
            yield simulation
        self.watch.look()

    def fault(self, fault: str | None, card: int | None = None) -> None:
        with self.changed() as simulation:
            target = simulation.host if card is None else simulation.cards[card]
            target.fault = fault

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in state.read(self.path).cards]

    # -- what was written down

    def rows(self) -> list[Gpu]:
        with self.stage.store.read() as session:
            return list(session.scalars(select(Gpu).order_by(
                Gpu.index, Gpu.parent_uuid.is_not(None), Gpu.model, Gpu.key)))

    def row(self, uuid: str) -> Gpu:
        return next(row for row in self.rows() if row.uuid == uuid)

    def conditions(self) -> list[str]:
        return [row.condition for row in self.rows()]

    def refusals(self) -> list[str | None]:
        """Code of the reason why each card is not to be had, whoever holds it; in the order of `rows`."""
        return [row.refusal and row.refusal["code"] for row in self.rows()]

    def free(self) -> set[str | None]:
        """What a launch would be offered."""
        with self.stage.store.read() as session:
            cards, _ = gpus.offered(session, cuda_version=None)
        return {card.uuid for card in cards if why_not(card) is None}

    def trouble(self) -> str | None:
        host = self.host()
        return host.gpu_trouble and host.gpu_trouble["code"]

    def host(self) -> Host:
        with self.stage.store.read() as session:
            return session.get_one(Host, self.stage.cast.host_id)
