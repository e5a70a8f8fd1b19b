"""The agent's looks at the cards of its host: what is written down, what is offered, and what is never forgotten."""

from __future__ import annotations

import os
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from agent.room import Room
from agent.stage import Stage, sentence
from webapp.agent.cards import Cards
from webapp.agent.inventory import Watch
from webapp.domain.container import FolderMount
from webapp.engines.fake import FakeEngine
from webapp.errors import EngineUnreachable, NoCapacity
from webapp.gpus.local import LocalRunner
from webapp.gpus.query import HELP
from webapp.simulation import install, presets
from webapp.store.tables import Workspace

MISMATCH = "driver_library_version_mismatch"


class TestWhatIsThere:
    @pytest.mark.parametrize("room", ["four", "eighteen", "mixed"], indirect=True)
    def test_every_card_is_written_down_in_the_order_of_its_number_and_offered(self, room: Room) -> None:
        assert [row.uuid for row in room.rows()] == room.uuids
        assert [row.index for row in room.rows()] == list(range(len(room.uuids)))
        assert room.free() == set(room.uuids)
        assert all(row.simulated and row.memory_bytes for row in room.rows())
        assert (room.trouble(), room.host().driver_version, room.host().cuda_version) == (None, "580.105.08", "13.0")

    def test_links_are_kept_for_placement(self, room: Room) -> None:
        one, two, three, _ = room.uuids
        links = room.host().gpu_links or {}
        assert links[" ".join(sorted((one, two)))] > links[" ".join(sorted((two, three)))]

    @pytest.mark.parametrize("room", ["mig"], indirect=True)
    def test_slices_are_offered_and_their_card_is_not(self, room: Room) -> None:
        parent, *slices, whole = room.rows()
        assert room.free() == {row.uuid for row in [*slices, whole]}
        assert parent.refusal and parent.refusal["code"] == "gpu_mig_parent"
        assert [row.model.partition(" MIG ")[2] for row in slices] == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
        assert {row.parent_uuid for row in slices} == {parent.uuid}

    @pytest.mark.parametrize("room", ["unified"], indirect=True)
    def test_card_without_memory_of_its_own_is_offered(self, room: Room) -> None:
        (row,) = room.rows()
        assert (row.shares_host_memory, row.memory_bytes, room.free()) == (True, None, {row.uuid})

    @pytest.mark.parametrize("room", ["jetson"], indirect=True)
    def test_card_of_a_jetson_is_shown_and_says_why_it_cannot_be_had(self, room: Room) -> None:
        (row,) = room.rows()
        assert (row.model, room.refusals(), room.free()) == ("Orin (nvgpu)", ["gpu_odd_uuid"], set())

    def test_host_without_a_driver_says_so(self, stage: Stage, tmp_path: Path) -> None:
        room = Room(stage, tmp_path)
        room.enter(Cards(run=LocalRunner(environment={"PATH": str(tmp_path / "nowhere")})))
        room.watch.look()
        assert (room.rows(), sentence(room.host().gpu_trouble)) == (
            [], "gpu1 has no nvidia-smi: there is no NVIDIA driver, or not all of it.")
        assert stage.context.cards.was_read.is_set()

    def test_it_reads_through_the_program_of_a_simulated_host(self, stage: Stage, tmp_path: Path) -> None:
        room = Room(stage, tmp_path)
        program = install.install_host(tmp_path / "bin", room.path)
        room.enter(Cards(run=LocalRunner(environment={"PATH": f"{program.parent}:/usr/bin:/bin"}), simulated=True))
        room.watch.look()
        assert room.free() == set(room.uuids)


class TestFaults:
    @pytest.mark.parametrize("fault, condition, code", [
        ("lost", "lost", "gpu_lost"), ("gone", "lost", "gpu_vanished"),
        ("reset-required", "faulty", "gpu_reset_required"), ("err", "faulty", "gpu_reset_required"),
    ])
    def test_one_card_is_not_offered_and_the_others_are(
        self, room: Room, fault: str, condition: str, code: str,
    ) -> None:
        room.fault(fault, card=1)
        ill = room.row(room.uuids[1])
        assert (ill.condition, ill.refusal and ill.refusal["code"]) == (condition, code)
        assert room.free() == {uuid for uuid in room.uuids if uuid != ill.uuid}
        assert sentence(ill.refusal)

        room.fault(None, card=1)
        assert (room.conditions(), room.refusals()) == (["ok"] * 4, [None] * 4)

    def test_card_of_an_old_driver_that_gave_up_there_is_lost_and_what_was_not_seen_is_not_offered(
        self, room: Room,
    ) -> None:
        room.fault("lost-stops", card=1)
        assert room.row(room.uuids[1]).condition == "lost"
        assert room.free() == set()
        assert len(room.rows()) == 4

    @pytest.mark.parametrize("fault, code", [
        ("no-driver", "driver_not_loaded"), ("no-library", "nvml_library_not_found"), ("mismatch", MISMATCH),
        ("nvml-unknown", "nvml_unknown_error"), ("permissions", "insufficient_permissions"),
        ("garbage", "smi_unreadable"),
    ])
    def test_driver_that_says_nothing_keeps_all_rows_and_no_card_is_offered(
        self, room: Room, fault: str, code: str,
    ) -> None:
        before = {row.uuid: (row.index, row.model, row.memory_bytes, row.seen_at) for row in room.rows()}
        room.fault(fault)
        assert {row.uuid: (row.index, row.model, row.memory_bytes, row.seen_at) for row in room.rows()} == before
        assert (room.trouble(), room.free(), set(room.refusals())) == (code, set(), {code})
        assert room.conditions() == ["faulty"] * 4, "unknown is not lost"
        assert (room.host().driver_version, room.host().cuda_version) == ("580.105.08", "13.0")

        room.fault(None)
        assert (room.trouble(), room.free(), room.conditions()) == (None, set(room.uuids), ["ok"] * 4)

    def test_driver_without_any_card_loses_the_known_ones_and_deletes_none(self, room: Room) -> None:
        room.fault("no-devices")
        assert (room.trouble(), room.conditions(), room.free()) == ("no_devices", ["lost"] * 4, set())

    def test_hanging_driver_is_asked_once_a_look_and_makes_what_is_known_old(self, room: Room) -> None:
        seen_at = [row.seen_at for row in room.rows()]
        room.hangs = True
        room.asked.clear()
        room.watch.look()
        assert (room.trouble(), room.free(), len(room.asked)) == ("smi_hangs", set(), 1)
        assert [row.seen_at for row in room.rows()] == seen_at
        assert sentence(room.host().gpu_trouble) == "nvidia-smi on gpu1 does not answer within 20 seconds."
        room.hangs = False
        room.watch.look()
        assert room.free() == set(room.uuids)

    @pytest.mark.parametrize("room", ["mig"], indirect=True)
    @pytest.mark.parametrize("fault", ["mismatch", "no-devices"])
    def test_slices_go_and_come_with_their_card(self, room: Room, fault: str) -> None:
        before = [(row.uuid, row.model, row.parent_uuid, row.memory_bytes) for row in room.rows()]
        room.fault(fault)
        assert [(row.uuid, row.model, row.parent_uuid, row.memory_bytes) for row in room.rows()] == before
        assert room.free() == set() and "ok" not in room.conditions()
        room.fault(None)
        assert len(room.free()) == 5


class TestSomebodyElse:
    def test_card_of_a_foreign_container_is_busy_until_that_ends(self, stage: Stage, room: Room) -> None:
        stage.engine.run_foreign("llm-server", room.uuids[2])
        room.watch.look()
        assert room.free() == set(room.uuids) - {room.uuids[2]}
        assert sentence(room.row(room.uuids[2]).refusal) == (
            "GPU 2 (NVIDIA A100-SXM4-80GB) is in use by llm-server, which is none of Berth's workspaces.")
        assert room.row(room.uuids[2]).condition == "ok"
        stage.engine.end_foreign("llm-server")
        room.watch.look()
        assert room.free() == set(room.uuids)

    def test_container_with_all_cards_leaves_none_and_the_refusal_names_it(self, stage: Stage, room: Room) -> None:
        stage.engine.run_foreign("by-hand", "all")
        room.watch.look()
        with pytest.raises(NoCapacity) as refused:
            stage.launch(gpus="1")
        why = [(one["code"], one["facts"]["who"]) for one in refused.value.facts["why"]]
        assert why == [("gpu_busy", "by-hand")] * 4

    def test_workspace_of_another_berth_on_the_engine_is_foreign(self, stage: Stage, room: Room) -> None:
        workspace = stage.running(gpus="1")
        other = FakeEngine(instance="other1", host="gpu1", machine=stage.machine)
        assert [(user.name, user.gpus) for user in other.gpu_users()] == [
            (stage.name(workspace), tuple(stage.row(workspace).gpu_uuids))]
        assert stage.engine.gpu_users() == []

    def test_process_on_a_free_card_makes_it_busy(self, stage: Stage, room: Room) -> None:
        with room.changed() as simulation:
            presets.put_process(simulation.cards[0], "/usr/bin/python3 train.py --key=x", memory_mib=9000, pid=4711)
        refusal = room.row(room.uuids[0]).refusal or {}
        assert (refusal["code"], refusal["facts"]["who"]) == ("gpu_busy", "python3 (process 4711)")

    def test_process_on_a_held_card_is_its_holders(self, stage: Stage, room: Room) -> None:
        stage.running(gpu_uuids=(room.uuids[0],))
        with room.changed() as simulation:
            presets.put_process(simulation.cards[0], "python3", memory_mib=9000, pid=os.getpid())   # not that one
        assert room.refusals() == [None] * 4

    def test_workspace_that_comes_or_goes_during_a_look_is_nobody_else(self, stage: Stage, room: Room) -> None:
        room.meanwhile = lambda: stage.running(gpu_uuids=(room.uuids[0],))
        room.watch.look()
        assert room.refusals() == [None] * 4

        def go() -> None:
            with stage.store.read() as session:
                stage.stop(session.scalars(select(Workspace)).one())
            stage.live(10)

        room.meanwhile = go
        with room.changed() as simulation:
            presets.put_process(simulation.cards[0], "python3", memory_mib=9000)    # it was still there a moment ago
        assert (room.refusals(), room.free()) == ([None] * 4, set(room.uuids))

    def test_container_of_a_workspace_that_gave_its_cards_back_keeps_them_busy(self, stage: Stage, room: Room) -> None:
        workspace = stage.running(gpu_uuids=(room.uuids[0],))
        stage.stop(workspace)
        stage.live(10)
        stage.engine.start(stage.name(workspace))       # by an agent that was held up
        room.watch.look()
        refusal = room.row(room.uuids[0]).refusal or {}
        assert (refusal["code"], refusal["facts"]["who"]) == ("gpu_busy", stage.name(workspace))

    def test_silent_engine_frees_no_card(self, stage: Stage, room: Room) -> None:
        stage.engine.run_foreign("llm-server", room.uuids[2])
        room.watch.look()
        stage.engine.down = True
        room.watch.look()
        assert room.row(room.uuids[2]).refusal is not None

    def test_of_mounted_cards_the_engine_is_not_asked(self, stage: Stage, room: Room) -> None:
        room.enter(Cards((FolderMount("/srv/x", "/x"),), simulated=True, run=room.run))
        stage.engine.run_foreign("llm-server", "all")
        stage.forget_calls()
        room.watch.look()
        assert (room.free(), stage.engine.calls) == (set(room.uuids), [])


class TestTheWatch:
    def test_fields_are_asked_once_for_each_version_of_the_driver(self, room: Room) -> None:
        room.watch.look()
        room.asked.clear()
        room.watch.look()
        assert HELP not in room.asked
        with room.changed() as simulation:
            simulation.host.driver = "590.10.01"
        assert room.asked.count(HELP) == 1
        room.asked.clear()
        room.watch.look()
        assert HELP not in room.asked

    def test_only_changes_are_logged(self, room: Room, log: list[MutableMapping[str, Any]]) -> None:
        def said() -> list[tuple[Any, ...]]:
            lines = [(one["event"], one.get("was"), one.get("now"), one["log_level"]) for one in log
                     if one["event"].startswith("gpu")]
            log.clear()
            return lines

        assert said() == [("gpu.changed", None, "ok", "info")] * 4
        room.watch.look()
        assert said() == []
        room.fault("lost", card=3)
        assert said() == [("gpus.trouble", None, None, "warning"), ("gpu.changed", "ok", "lost", "error")]
        room.watch.look()
        assert said() == []
        room.fault(None, card=3)
        assert said() == [("gpus.trouble_over", None, None, "info"), ("gpu.changed", "lost", "ok", "info")]
        room.fault("gone", card=3)
        assert said() == [("gpu.changed", "ok", "lost", "error")]

    def test_agent_that_was_replaced_writes_nothing(self, stage: Stage, room: Room) -> None:
        stage.take_over()
        room.fault("no-devices")
        assert room.conditions() == ["ok"] * 4

    def test_it_goes_on_whatever_goes_wrong_and_looks_at_once_when_poked(
        self, stage: Stage, room: Room, log: list[MutableMapping[str, Any]],
    ) -> None:
        stop, cards, looks = threading.Event(), stage.context.cards, list[int]()

        def run(argv: Any) -> Any:
            looks.append(len(looks))
            if len(looks) == 3:
                stop.set()
            cards.look_again.set()
            raise OSError("no more processes")

        object.__setattr__(cards, "run", run)
        Watch(stage.context).run(stop)
        failed = [one for one in log if one["event"] == "gpus.look_failed"]
        assert (len(looks), len(failed)) == (3, 3)
        log.clear()     # the stage takes what nobody expected for an error

    def test_cards_that_are_given_back_are_looked_at_at_once(self, stage: Stage, room: Room) -> None:
        workspace = stage.running(gpus="1")
        stage.context.cards.look_again.clear()
        stage.stop(workspace)
        stage.live(10)
        assert stage.context.cards.look_again.is_set()

    def test_so_they_are_when_the_engine_is_back(self, stage: Stage, room: Room) -> None:
        stage.settle()
        stage.context.cards.look_again.clear()
        stage.engine.fail_next("list", EngineUnreachable(host="gpu1", detail="Connection refused"))
        stage.loop.one_pass()
        assert not stage.context.cards.look_again.is_set()
        stage.loop.one_pass()
        assert stage.context.cards.look_again.is_set()
