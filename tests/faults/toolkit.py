"""The simulated host below an engine of a test's own, and what the engine's toolkit stand-in handed out of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from webapp.simulation import install, state, toolkit

# A modern engine (scripts/modern_engine.py) has a root file system with a Python of its own.
PYTHON = "/usr/bin/python3" if "BERTH_TEST_DOCKERD" in os.environ else sys.executable


@dataclass(frozen=True)
class Toolkit:
    scratch: Path       # of the engine

    @property
    def state_file(self) -> Path:
        return self.scratch / install.STATE_FOLDER / install.STATE_NAME

    @property
    def log(self) -> Path:
        return self.scratch / "handed-out.log"

    def set_up(self, simulation: state.Simulation) -> None:
        """Before its engine starts: Docker looks for the hook once."""
        state.create(self.state_file, simulation)
        self._install(self.state_file)

    def set_up_cdi(self, simulation: state.Simulation) -> None:
        """Of an engine whose /etc/cdi is `scratch`/cdi, at any time. Its PATH has no hook, so it has no other way."""
        state.create(self.state_file, simulation, replace=True)
        self.show_by_cdi()

    def show_by_cdi(self) -> None:
        hook = install.install_toolkit(self.scratch / "hook", self.state_file, self.log, python=PYTHON)
        install.install_cdi(self.scratch / "cdi", self.state_file, hook)

    def forget_cdi(self) -> None:
        (self.scratch / "cdi" / install.CDI_NAME).unlink()

    def _install(self, state_file: Path) -> None:
        install.install_toolkit(self.scratch / "bin", state_file, self.log, python=PYTHON)

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in state.read(self.state_file).cards]

    def given(self, container_id: str) -> list[str]:
        """What a container got at each of its starts, oldest first: NVIDIA_VISIBLE_DEVICES as the hook read it."""
        return [line["visible"] for line in toolkit.handed_out(self.log)
                if line["container"] == container_id and line["error"] is None]

    def errors(self) -> list[str]:
        """What it said instead, oldest first."""
        return [line["error"] for line in toolkit.handed_out(self.log) if line["error"] is not None]

    def fail_next(self, times: int) -> None:
        toolkit.fail_next(self.log, times)

    def hand_out_instead(self, *uuids: str) -> None:
        """At the next start."""
        toolkit.hand_out_instead(self.log, ",".join(uuids))

    @contextmanager
    def without(self, uuid: str) -> Iterator[None]:
        """It does not know that card for a while, although the driver lists it: saved under a name that is no more."""
        short = self.scratch / "short" / install.STATE_NAME
        simulation = state.read(self.state_file)
        simulation.cards = [card for card in simulation.cards if card.uuid != uuid]
        state.create(short, simulation, replace=True)
        self._install(short)
        try:
            yield
        finally:
            self._install(self.state_file)

    @contextmanager
    def fault(self, uuid: str, name: str) -> Iterator[None]:
        """A card suffers from one of state.CARD_FAULTS."""
        self._set_fault(uuid, name)
        try:
            yield
        finally:
            self._set_fault(uuid, None)

    def _set_fault(self, uuid: str, name: str | None) -> None:
        with state.changed(self.state_file) as simulation:
            simulation.card(uuid).fault = name
