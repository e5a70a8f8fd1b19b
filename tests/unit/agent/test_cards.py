"""Where the agent reads cards: this machine's nvidia-smi, or the stand-in over a simulated host."""

from __future__ import annotations

from pathlib import Path

import pytest

from webapp.agent import cards
from webapp.gpus.query import LIST
from webapp.settings import Settings, load_settings
from webapp.simulation import install, presets, state


def settings(folder: Path, simulated_gpus: str) -> Settings:
    return load_settings({"BERTH_STATE_DIR": str(folder), "BERTH_SIMULATED_GPUS": simulated_gpus})


@pytest.fixture
def host(tmp_path: Path) -> state.Simulation:
    simulation = presets.preset("four")
    state.create(install.state_file_in(tmp_path), simulation)
    return simulation


@pytest.mark.parametrize("simulated_gpus", ["mounted", "requested"])
def test_simulated_cards_are_read_in_place_of_real_ones(
    tmp_path: Path, host: state.Simulation, simulated_gpus: str,
) -> None:
    made = cards.of_this_machine(settings(tmp_path, simulated_gpus))

    answer = made.run(LIST)

    assert made.simulated
    assert [card.uuid for card in host.cards if card.uuid in answer.stdout] == [card.uuid for card in host.cards]


def test_simulated_cards_are_mounted_or_requested(tmp_path: Path, host: state.Simulation) -> None:
    uuids = [card.uuid for card in host.cards[:2]]
    requested = cards.of_this_machine(settings(tmp_path, "requested")).access(uuids)
    mounted = cards.of_this_machine(settings(tmp_path, "mounted")).access(uuids)

    assert set(requested.uuids) == set(mounted.uuids) == set(uuids)
    assert requested.mounts == ()
    assert [mount.target for mount in mounted.mounts] == ["/usr/lib/simulated-gpus", "/usr/bin/nvidia-smi"]
    assert all(mount.read_only for mount in mounted.mounts)


def test_what_containers_see_of_a_demo_is_the_simulated_host_alone(tmp_path: Path, host: state.Simulation) -> None:
    folder = Path(cards.of_this_machine(settings(tmp_path, "mounted")).access(["GPU-1"]).mounts[0].source)

    assert {path.name for path in folder.iterdir()} == {"state.json", ".state.json.lock", "nvidia-smi"}


def test_without_a_simulated_host_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(state.NoSimulation, match=f"{tmp_path}.*berth simulate init"):
        cards.of_this_machine(settings(tmp_path, "mounted"))


def test_real_cards_are_the_rule(tmp_path: Path, host: state.Simulation) -> None:
    made = cards.of_this_machine(settings(tmp_path, ""))

    assert not made.simulated and made.access(["GPU-1"]).mounts == ()
