"""The engine goes away while workspaces hold cards: what they hold stays theirs until it shows that they are down.

Silence frees nothing, and no wish made meanwhile does. The engine is this file's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults import standin
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.invariants import cards_held, check_at_rest, until_at_rest
from faults.own_engine import OwnEngine, own_engine
from faults.test_restarts import needs_root
from faults.waiting import until
from faults.workspace import Workspace, now
from webapp.domain.workspace import Phase
from webapp.errors import NoCapacity
from webapp.simulation import presets
from webapp.simulation.state import changed
from webapp.store.tables import Image

pytestmark = [pytest.mark.docker, needs_root]


@dataclass(frozen=True)
class Scene:
    engine: OwnEngine
    house: House
    alice: Person
    image: Image

    def launch(self, name: str, **wishes: object) -> Workspace:
        workspace = self.house.launch(self.alice, self.image, name, **wishes)
        workspace.until(Phase.RUNNING)
        return workspace

    def restart_agent(self) -> None:
        """And wait until the new one has heard nothing."""
        self.house.stop_agent()
        agent = self.house.start_agent()
        until(lambda: "engine.failed" in agent.said(), what=self.house.how_it_is)


@pytest.fixture(scope="module")
def scene(make_house: MakeHouse) -> Iterator[Scene]:
    with own_engine("gpuaway", cards=presets.preset("four")) as (engine, ground):
        house = make_house("gpu-away", ground=ground, toolkit=engine.toolkit)
        house.start_agent()
        house.wait_for_cards()
        yield Scene(engine, house, house.add_person("alice"), house.add_image(standin.WITH_PYTHON))
        house.close()       # before its engine goes


def _kill(engine: OwnEngine) -> None:
    """Its containers go on, without it."""
    engine.kill()


def _terminate(engine: OwnEngine) -> None:
    """It takes its containers down first; nobody is told."""
    engine.terminate()


@pytest.mark.parametrize("end", [_kill, _terminate])
def test_cards_stay_with_their_holders_while_the_engine_is_away(
    scene: Scene, end: Callable[[OwnEngine], None]
) -> None:
    way = end.__name__.strip("_")
    kept, to_stop, to_remove = (scene.launch(f"{what}-{way}", gpus="1") for what in ("kept", "stop", "remove"))
    before, process = cards_held(scene.house), to_stop.container().attrs["State"]["Pid"]

    end(scene.engine)
    for workspace in (kept, to_stop, to_remove):
        workspace.until_row(lambda row: row.phase == Phase.UNKNOWN)
    to_stop.stop()
    to_remove.remove()
    for workspace in (to_stop, to_remove):      # taken up, and waiting
        workspace.until_row(lambda row: row.reason is not None and row.reason["code"] == "engine_unreachable")
    scene.restart_agent()
    assert Path(f"/proc/{process}").exists() == (end is _kill)     # nobody can tell without the engine
    assert cards_held(scene.house) == before
    for taken in (kept, to_stop, to_remove):
        with pytest.raises(NoCapacity):
            scene.house.launch(scene.alice, scene.image, "heir", gpu_uuids=tuple(taken.cards()))

    scene.engine.start_again()

    to_stop.until(Phase.STOPPED)
    to_remove.until(Phase.REMOVED)
    kept.until(Phase.RUNNING)
    until_at_rest(scene.house)
    assert kept.cards() == kept.cards_inside() == sorted(before[kept.id])
    assert cards_held(scene.house) == {kept.id: before[kept.id]}
    heir = scene.launch(f"heir-{way}", gpu_uuids=tuple(before[to_stop.id]))
    assert set(heir.cards_inside()) == before[to_stop.id]
    for workspace in (kept, to_stop, heir):
        workspace.remove()
    for workspace in (kept, to_stop, heir):
        workspace.until(Phase.REMOVED)
    check_at_rest(scene.house)


def test_after_a_reboot_workspaces_with_cards_wait_for_the_driver_and_others_do_not(scene: Scene) -> None:
    with_cards, without = scene.launch("with-cards", gpus="2"), scene.launch("without")
    held, moment = with_cards.cards(), now()
    scene.house.stop_agent()
    scene.engine.kill()
    with changed(scene.engine.toolkit.state_file) as simulation:
        simulation.host.fault = "no-driver"
    scene.engine.start()                        # a boot: nothing runs any more
    scene.house.start_agent()

    without.until_row(lambda row: row.phase == Phase.RUNNING and row.started_at is not None and row.started_at > moment)
    waiting = with_cards.until_row(lambda row: row.phase == Phase.STARTING and row.reason is not None)
    assert waiting.next_try_at is not None and with_cards.cards() == held
    assert scene.house.host().gpu_trouble["code"] == "driver_not_loaded"
    with changed(scene.engine.toolkit.state_file) as simulation:
        simulation.host.fault = None

    row = with_cards.until(Phase.RUNNING)
    assert row.reason is None and with_cards.cards() == with_cards.cards_inside() == held
    until_at_rest(scene.house)
    for workspace in (with_cards, without):
        workspace.remove()
    for workspace in (with_cards, without):
        workspace.until(Phase.REMOVED)
