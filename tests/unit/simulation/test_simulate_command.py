"""berth simulate: what somebody types in a demo; every answer says that it is simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from webapp.cli import root
from webapp.simulation import presets, state

Simulate = Callable[..., SimpleNamespace]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "simulation" / "state.json"


@pytest.fixture
def simulate(file: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """simulate("show") → its exit code, out and err."""
    def run(*arguments: str) -> SimpleNamespace:
        code = root.run(["simulate", *arguments, "--file", str(file)])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)
    return run


@pytest.fixture
def made(simulate: Simulate) -> Simulate:
    assert simulate("init").code == 0
    return simulate


@pytest.mark.parametrize("preset", sorted(presets.PRESETS))
def test_every_preset_can_be_made_and_shown(simulate: Simulate, preset: str) -> None:
    for done in (simulate("init", "--preset", preset), simulate("show")):
        assert done.code == 0 and "simulated" in done.out


def test_init_does_not_replace_what_is_there(made: Simulate) -> None:
    refused = made("init", "--preset", "mig")
    assert refused.code == 4 and "--replace" in refused.err
    assert made("init", "--preset", "mig", "--replace").code == 0


def test_load_is_seen_by_the_card(made: Simulate, file: Path) -> None:
    done = made("load", "1", "--util", "90", "--memory", "40GiB", "--process", "python train.py", "--pid", "77")
    assert done.out.startswith("simulated GPU-51e1a7ed-")
    card = state.read(file).cards[1]
    assert (card.utilization_percent, card.used_mib) == (90, 40960)
    assert card.processes == [state.Process(77, "python train.py", 40960)]
    made("load", "1", "--memory", "0")
    assert state.read(file).cards[1].used_mib == 0


@pytest.mark.parametrize("arguments, code", [
    (("load", "9", "--util", "5"), 3), (("load", "0", "--util", "101"), 2), (("load", "0", "--memory", "much"), 2),
    (("load", "0", "--memory", "81GiB"), 2), (("fault", "0", "mismatch"), 2), (("fault", "host", "lost"), 2),
    (("fault", "9", "lost"), 3), (("heal", "9"), 3)])
def test_what_cannot_be_is_refused_in_one_sentence(made: Simulate, file: Path, arguments: tuple[str, ...], code: int
                                                   ) -> None:
    before = file.read_bytes()
    done = made(*arguments)
    assert (done.code, done.out) == (code, "")
    assert file.read_bytes() == before


def test_faults_come_and_go(made: Simulate, file: Path) -> None:
    assert "simulated" in made("fault", "2", "lost").out
    assert "simulated" in made("fault", "host", "mismatch").out
    assert (state.read(file).cards[2].fault, state.read(file).host.fault) == ("lost", "mismatch")
    assert made("heal", "host").code == 0
    assert (state.read(file).cards[2].fault, state.read(file).host.fault) == ("lost", None)
    assert made("heal").code == 0
    assert state.read(file).cards[2].fault is None


def test_faults_are_listed(made: Simulate) -> None:
    assert not [kind for kind in state.CARD_FAULTS if kind not in made("fault", "0", "list").out]
    assert not [kind for kind in state.HOST_FAULTS if kind not in made("fault", "host", "list").out]


def test_show_as_json(made: Simulate) -> None:
    document = json.loads(made("show", "--json").out)
    assert document["simulated"] is True and len(document["cards"]) == 4


def test_no_simulation_is_said(simulate: Simulate) -> None:
    done = simulate("show")
    assert done.code == 3 and "berth simulate init" in done.err


def test_default_is_a_folder_of_its_own_in_the_state_folder(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BERTH_STATE_DIR", str(tmp_path / "state"))
    assert root.run(["simulate", "init"]) == 0
    assert (tmp_path / "state" / "simulation" / "state.json").exists()
    assert "simulated" in capsys.readouterr().out
