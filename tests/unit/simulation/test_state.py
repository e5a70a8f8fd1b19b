"""The state file: whole at every moment, kept by a lock, told from another file."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest
from unit.simulation.conftest import SimulatedHost

from webapp.simulation import presets, state

EVERY_PRESET = sorted(presets.PRESETS)


@pytest.mark.parametrize("name", EVERY_PRESET)
def test_what_was_written_is_read_back(tmp_path: Path, name: str) -> None:
    simulation = presets.preset(name)
    presets.put_process(simulation.cards[0], "python train.py", memory_mib=512)
    state.create(tmp_path / "state.json", simulation)
    assert state.read(tmp_path / "state.json") == simulation


def test_uuids_are_the_same_for_the_same_seed_and_no_others() -> None:
    of = {(name, seed): tuple(card.uuid for card in presets.preset(name, seed).cards)
          for name in EVERY_PRESET for seed in ("a", "b")}
    assert of["four", "a"] == tuple(card.uuid for card in presets.preset("four", "a").cards)
    everyone = [uuid for uuids in of.values() for uuid in uuids]
    assert len(set(everyone)) == len(everyone)
    assert all(map(state.is_simulated, everyone))


def test_real_uuid_is_not_taken_for_a_simulated_one() -> None:
    assert not state.is_simulated("GPU-c13e9055-a392-1129-eab2-58cf1620b92d")


def test_changes_at_once_are_all_kept(host: SimulatedHost) -> None:
    def load() -> None:
        with host.changed() as simulation:
            presets.put_process(simulation.cards[0], "python", memory_mib=1)
    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({process.pid for process in host.cards[0].processes}) == 8


def test_change_that_fails_changes_nothing(host: SimulatedHost) -> None:
    before = host.path.read_bytes()
    with pytest.raises(state.NoSimulatedCard), host.changed() as simulation:
        simulation.host.fault = "hang"
        simulation.card("9")
    assert host.path.read_bytes() == before


def test_every_uid_may_read_it_and_only_its_owner_write(host: SimulatedHost) -> None:
    with host.changed():
        pass
    assert stat.S_IMODE(host.path.stat().st_mode) == 0o644
    assert stat.S_IMODE(host.path.parent.stat().st_mode) == 0o755
    assert sorted(path.name for path in host.path.parent.iterdir()) == [".state.json.lock", "state.json"]


def test_a_host_that_is_there_is_not_replaced_by_accident(host: SimulatedHost) -> None:
    with pytest.raises(state.SimulationTaken):
        state.create(host.path, presets.preset("mig"))
    state.create(host.path, presets.preset("mig"), replace=True)
    assert len(host.cards) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1}'])
def test_another_file_is_named_and_not_changed(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    with pytest.raises(state.SimulationUnreadable, match=str(path)), state.changed(path):
        pass
    assert path.read_text() == content


def test_no_file_is_said_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(state.NoSimulation), state.changed(tmp_path / "state.json"):
        pass
    assert not list(tmp_path.iterdir())


def test_cards_are_found_by_number_uuid_and_beginning(host: SimulatedHost) -> None:
    simulation = state.read(host.path)
    uuid = host.uuids[2]
    for name in ("2", uuid, uuid[:18], uuid.removeprefix("GPU-")[:14]):
        assert simulation.card(name).uuid == uuid
    for name in ("4", "GPU-", "GPU-51e1a7ed", "", "-1", "two"):
        with pytest.raises(state.NoSimulatedCard):
            simulation.card(name)


def test_load_moves_what_a_driver_would_report(host: SimulatedHost) -> None:
    card = host.cards[0]
    idle = (card.power_w, card.temperature_c, card.clock_mhz)
    presets.put_load(card, utilization_percent=90, memory_mib=40960)
    assert card.used_mib == 40960
    assert card.power_w is not None and 300 < card.power_w <= 400
    assert card.temperature_c is not None and 60 < card.temperature_c < 80
    assert card.clock_mhz == card.max_clock_mhz
    presets.put_idle(card)
    assert (card.power_w, card.temperature_c, card.clock_mhz) == idle


@pytest.mark.parametrize("host", ["jetson"], indirect=True)
def test_what_a_card_does_not_report_stays_unreported_under_load(host: SimulatedHost) -> None:
    card = host.cards[0]
    presets.put_load(card, utilization_percent=90, memory_mib=40960)
    assert (card.utilization_percent, card.used_mib, card.power_w) == (None, None, None)


def test_the_file_says_itself_that_it_is_simulated(host: SimulatedHost) -> None:
    assert json.loads(host.path.read_text())["simulated"] is True
