"""Cards that somebody holds: one that falls off is flagged and kept; a driver that comes late is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from agent.room import Room
from agent.stage import Stage
from webapp.agent.health import EVERY_SECONDS
from webapp.domain.workspace import Health, Phase
from webapp.errors import NoCapacity
from webapp.store.reads.agent import all_claims

MISMATCH = "driver_library_version_mismatch"


class TestHeldCards:
    """F17: what falls off while somebody holds it is flagged, kept and not given to anybody else."""

    def test_claim_is_kept_the_workspace_says_so_and_is_well_again_when_the_card_is_back(
        self, stage: Stage, room: Room,
    ) -> None:
        workspace = stage.running(gpus="1")
        (card,) = stage.row(workspace).gpu_uuids
        room.fault("lost", card=room.uuids.index(card))
        look_after(stage)
        assert health(stage, workspace) == (Health.DEGRADED, "gpu_lost")
        assert str(stage.said(workspace)).startswith("GPU 0 (NVIDIA A100-SXM4-80GB) cannot be reached any more.")
        assert held(room) == {card: workspace.id} and card not in room.free()
        assert stage.containers()[0].is_up, "nothing is taken from it"

        room.fault(None, card=room.uuids.index(card))
        look_after(stage)
        assert health(stage, workspace) == (Health.OK, None)
        assert held(room) == {card: workspace.id}

    def test_lost_card_that_was_given_back_is_still_not_offered(self, stage: Stage, room: Room) -> None:
        workspace = stage.running(gpus="1")
        (card,) = stage.row(workspace).gpu_uuids
        room.fault("gone", card=room.uuids.index(card))
        stage.stop(workspace)
        stage.live(10)
        assert (stage.row(workspace).phase, held(room)) == (Phase.STOPPED, {})
        assert card not in room.free()
        with pytest.raises(NoCapacity):
            stage.launch(name="other", gpu_uuids=(card,))

    def test_fault_of_a_card_and_a_silent_service_do_not_take_turns(self, stage: Stage, room: Room) -> None:
        workspace = stage.running(gpus="1")
        stage.silent = set(stage.ports(workspace))      # type: ignore[arg-type]
        room.fault("lost", card=room.uuids.index(stage.row(workspace).gpu_uuids[0]))
        look_after(stage)
        look_after(stage)
        assert health(stage, workspace) == (Health.DEGRADED, "gpu_lost")
        before = stage.row(workspace).reason
        look_after(stage)
        assert stage.row(workspace).reason == before

        room.fault(None, card=0)
        look_after(stage)
        assert health(stage, workspace) == (Health.DEGRADED, "service_down")
        stage.silent = set()
        look_after(stage)
        assert health(stage, workspace) == (Health.OK, None)

    @pytest.mark.parametrize("fault", ["mismatch", "garbage"])
    def test_driver_that_says_nothing_of_the_card_flags_nobody(self, stage: Stage, room: Room, fault: str) -> None:
        workspace = stage.running(gpus="1")
        room.fault(fault)
        look_after(stage)
        assert health(stage, workspace) == (Health.OK, None)

    def test_driver_upgraded_under_load_gives_nothing_new_and_takes_nothing(self, stage: Stage, room: Room) -> None:
        workspace = stage.running(gpus="1")
        room.fault("mismatch")
        with pytest.raises(NoCapacity) as refused:
            stage.launch(name="other", gpus="1")
        assert {why["code"] for why in refused.value.facts["why"]} == {MISMATCH}
        assert stage.row(workspace).phase == Phase.RUNNING and len(held(room)) == 1

    @pytest.mark.parametrize("room", ["mig"], indirect=True)
    def test_slice_that_was_done_away_with_is_forgotten_unless_somebody_holds_it(
        self, stage: Stage, room: Room,
    ) -> None:
        mine, gone, *_ = [row.uuid for row in room.rows() if row.parent_uuid]
        workspace = stage.running(gpu_uuids=(mine,))
        with room.changed() as simulation:
            card = simulation.cards[0]
            card.slices = [part for part in card.slices if part.uuid not in (mine, gone)]
        assert gone not in {row.uuid for row in room.rows()}
        assert room.row(str(mine)).condition == "lost"
        look_after(stage)
        assert health(stage, workspace) == (Health.DEGRADED, "gpu_vanished")

        stage.stop(workspace)
        stage.live(10)
        room.watch.look()
        assert mine not in {row.uuid for row in room.rows()}


class TestLateDriver:
    """F12: engine and agent are back after a restart of the machine, and the driver is not yet."""

    def test_workspace_with_cards_waits_for_the_toolkit_and_gets_the_same_ones(self, stage: Stage, room: Room) -> None:
        with_cards, without = stage.running(gpus="2"), stage.running(name="cpu")
        cards = stage.row(with_cards).gpu_uuids
        restart_machine(stage, room)
        room.watch.look()
        stage.context.cards.look_again.clear()
        stage.engine.rack.gone = set(cards)
        stage.live(20)
        assert stage.row(without).phase == Phase.RUNNING
        assert stage.row(with_cards).phase != Phase.RUNNING and set(held(room)) == set(cards)
        assert "unknown device" in str(stage.said(with_cards))
        assert stage.context.cards.look_again.is_set()

        stage.engine.rack.gone = set()
        stage.live(60)
        assert (stage.row(with_cards).phase, stage.row(with_cards).gpu_uuids) == (Phase.RUNNING, cards)

    def test_it_waits_with_a_reason_while_the_driver_is_not_loaded(self, stage: Stage, room: Room) -> None:
        with_cards, without = stage.running(gpus="2"), stage.running(name="cpu")
        cards = stage.row(with_cards).gpu_uuids
        restart_machine(stage, room)
        room.fault("no-driver")     # and the first look
        stage.live(20)
        assert stage.row(without).phase == Phase.RUNNING
        assert stage.row(with_cards).phase != Phase.RUNNING and set(held(room)) == set(cards)
        assert stage.said(with_cards) == "gpu1 has no NVIDIA driver running."
        assert stage.context.cards.look_again.is_set()

        room.fault(None)
        stage.live(60)
        assert (stage.row(with_cards).phase, stage.row(with_cards).gpu_uuids) == (Phase.RUNNING, cards)

    def test_nothing_starts_before_the_first_look(
        self, stage: Stage, room: Room, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("webapp.agent.cards.FIRST_LOOK_SECONDS", 0.0)
        workspace = stage.running(gpus="1")
        restart_machine(stage, room)
        stage.live(5)
        assert stage.said(workspace) and stage.row(workspace).phase != Phase.RUNNING
        room.watch.look()
        stage.live(60)
        assert stage.row(workspace).phase == Phase.RUNNING


def look_after(stage: Stage) -> None:
    stage.clock.sleep(EVERY_SECONDS + 1)
    stage.loop.one_pass()


def health(stage: Stage, workspace: Any) -> tuple[str, str | None]:
    row = stage.row(workspace)
    assert row.phase == Phase.RUNNING
    return Health(row.health), row.reason and row.reason["code"]


def held(room: Room) -> dict[str, str]:

    with room.stage.store.read() as session:
        return {uuid: workspace for workspace, uuid in all_claims(session, room.stage.cast.host_id)}


def restart_machine(stage: Stage, room: Room) -> None:
    """Power off and on: the containers are down, and the agent is a new one that has not looked yet."""
    stage.engine.restart_engine()
    stage.take_over()
    room.enter()
