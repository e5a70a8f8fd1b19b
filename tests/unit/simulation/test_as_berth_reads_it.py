"""What Berth's own reading makes of simulated hosts, healthy and not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from unit.simulation.conftest import SimulatedHost

from webapp.domain.gpu import Condition, Inventory
from webapp.gpus.output import Output
from webapp.gpus.query import inventory
from webapp.simulation import presets


def read(host: SimulatedHost) -> Inventory:
    def run(argv: Sequence[str]) -> Output:
        asked = host.smi(*argv[1:])
        return Output(asked.code, asked.output.decode(errors="replace"))
    return inventory(run)


@pytest.mark.parametrize("host", sorted(presets.PRESETS), indirect=True)
def test_every_card_is_found_with_what_it_has(host: SimulatedHost) -> None:
    seen = read(host)
    assert seen.trouble is None
    assert [(gpu.index, gpu.name) for gpu in seen.gpus] == [(i, card.name) for i, card in enumerate(host.cards)]
    assert [gpu.memory_total_bytes for gpu in seen.gpus] == [
        card.memory_mib and card.memory_mib * 2**20 for card in host.cards]
    assert [gpu.condition for gpu in seen.gpus] == [Condition.OK] * len(host.cards)


def test_links_of_the_pairs_are_found(host: SimulatedHost) -> None:
    topology = read(host).topology
    one, two, three, _ = host.uuids
    near, far = topology.between(one, two), topology.between(two, three)
    assert near is not None and far is not None
    assert near.nvlinks == 12 and near.closeness > far.closeness


@pytest.mark.parametrize("host", ["mig"], indirect=True)
def test_slices_can_be_claimed_instead_of_their_card(host: SimulatedHost) -> None:
    first, second = read(host).gpus
    assert first.claimable == tuple(part.uuid for part in host.cards[0].slices)
    assert second.claimable == (host.uuids[1],)


@pytest.mark.parametrize("fault, condition", [("lost", Condition.LOST), ("reset-required", Condition.FAULTY),
                                              ("err", Condition.FAULTY)])
def test_broken_card_is_told_and_the_others_stay(host: SimulatedHost, fault: str, condition: Condition) -> None:
    with host.changed() as simulation:
        simulation.cards[1].fault = fault
    seen = {gpu.index: gpu for gpu in read(host).gpus}
    assert seen[1].condition is condition
    assert [seen[index].uuid for index in (0, 2, 3)] == [host.uuids[index] for index in (0, 2, 3)]
    assert {seen[index].condition for index in (0, 2, 3)} == {Condition.OK}


@pytest.mark.parametrize("fault", ["no-driver", "no-library", "mismatch", "no-devices", "nvml-unknown", "permissions",
                                   "garbage"])
def test_broken_host_is_told(host: SimulatedHost, fault: str) -> None:
    with host.changed() as simulation:
        simulation.host.fault = fault
    assert read(host).trouble is not None
