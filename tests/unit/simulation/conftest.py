"""A simulated host, and its nvidia-smi run in this process: starting a program for each question would take seconds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from webapp.simulation import presets, state
from webapp.simulation.nvidia_smi.program import answer


@dataclass(frozen=True)
class Answer:
    output: bytes
    code: int

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@dataclass(frozen=True)
class SimulatedHost:
    path: Path

    def smi(self, *arguments: str) -> Answer:
        output, code, _ = answer(["--simulated-state", str(self.path), *arguments])
        return Answer(output, code)

    def query(self, fields: str) -> list[list[str]]:
        asked = self.smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        assert asked.code == 0, asked.text
        return list(csv.reader(io.StringIO(asked.text), skipinitialspace=True))

    @contextmanager
    def changed(self) -> Iterator[state.Simulation]:
        with state.changed(self.path) as simulation:
            yield simulation

    @property
    def cards(self) -> list[state.Card]:
        return state.read(self.path).cards

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in self.cards]


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path) -> SimulatedHost:
    """Of the preset four, or the one that a test names: @pytest.mark.parametrize("host", ["mig"], indirect=True)."""
    path = tmp_path / "simulation" / "state.json"
    state.create(path, presets.preset(getattr(request, "param", "four")))
    return SimulatedHost(path)
