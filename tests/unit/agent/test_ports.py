"""Ports that something else took: a new port, the same workspace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.stage import INSTANCE, Stage, check, check_at_rest
from webapp.domain.container import File
from webapp.domain.plan import private_image
from webapp.domain.ports import PortRange
from webapp.domain.workspace import Phase, Service
from webapp.errors import EngineRejected, EngineUnreachable, PortTaken
from webapp.store.tables import Workspace

INSTALLED = File("/opt/berth/py/installed", 0o644, 10000, 10000, b"with pip, for an hour")
SILENCE = EngineUnreachable(host="gpu1", detail="timed out")
HOST_KEY = "/etc/berth/ssh_host_ed25519_key"


def moved(stage: Stage) -> Workspace:
    """A workspace with something installed, stopped, and its SSH port taken meanwhile."""
    workspace = stage.running()
    stage.engine.put(stage.name(workspace), [INSTALLED])
    stage.stop(workspace)
    stage.settle()
    stage.engine.taken_ports.add(stage.ports(workspace)["ssh"])
    return workspace


def image_of(workspace: Workspace, revision: int) -> str:
    return private_image(INSTANCE, workspace.id, revision)


class TestFirstStart:
    def test_another_port_and_nothing_left_behind(self, stage: Stage) -> None:
        """F23"""
        stage.engine.taken_ports.add(20000)
        workspace = stage.launch()
        stage.settle()

        assert stage.row(workspace).phase == Phase.RUNNING
        assert stage.ports(workspace) == {"ssh": 20002, "jupyter": 20001}
        assert [container.name for container in stage.containers()] == [stage.name(workspace)]
        assert stage.noted(workspace) == (
            "Port 20000 was taken by another program on gpu1; ssh now listens on port 20002.")
        check_at_rest(stage)

    def test_many_taken_in_a_row(self, stage: Stage) -> None:
        stage.engine.taken_ports.update(range(20000, 20006))
        workspace = stage.launch()
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING
        check_at_rest(stage)

    def test_engine_that_does_not_say_which_port_costs_both(self, stage: Stage) -> None:
        stage.engine.fail_next("start", PortTaken(host="gpu1", port="20001, 20000", detail="port is already allocated"))
        workspace = stage.launch()
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING
        assert not {20000, 20001} & set(stage.ports(workspace).values())

    @pytest.mark.parametrize("port", [None, "?", 31337])
    def test_port_that_is_not_the_workspaces_is_tried_again_then_failed(
        self, stage: Stage, port: object,
    ) -> None:
        for _ in range(4):
            stage.engine.fail_next("start", PortTaken(host="gpu1", port=port, detail="port is already allocated"))
        workspace = stage.launch()
        stage.live(40)
        assert (stage.row(workspace).phase, stage.containers()) == (Phase.FAILED, [])
        assert "port is already allocated" in str(stage.said(workspace))

    def test_range_without_a_free_port_fails_clean_and_keeps_the_claims(self, stage: Stage) -> None:
        """F24: on a range of two, with both claimed and one of them taken."""
        stage.house = replace(stage.house, ports=PortRange(20000, 20001))
        stage.take_over()
        stage.engine.taken_ports.add(20000)
        workspace = stage.launch()
        stage.live(40)

        assert (stage.row(workspace).phase, stage.containers()) == (Phase.FAILED, [])
        assert stage.said(workspace) == "All ports of the range on gpu1 are taken."
        assert stage.ports(workspace) == {"ssh": 20000, "jupyter": 20001}
        check_at_rest(stage)

        stage.engine.taken_ports.clear()
        stage.start(workspace)
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING

    def test_range_full_of_strangers_fails_with_that_reason(self, stage: Stage) -> None:
        stage.engine.taken_ports.update(range(20000, 21000))
        workspace = stage.launch()
        stage.settle()
        assert stage.said(workspace) == "All ports of the range on gpu1 are taken."

    def test_removal_while_the_port_was_found_taken_leaves_no_claim(self, stage: Stage) -> None:
        stage.engine.taken_ports.add(20000)
        workspace = stage.launch()
        start = stage.engine.start

        def removed_meanwhile(name: str) -> None:
            stage.remove(workspace)
            start(name)

        stage.engine.start = removed_meanwhile  # type: ignore[method-assign]
        stage.settle()
        assert stage.ports(workspace) == {}
        check_at_rest(stage)


class TestMove:
    def test_layer_key_and_token_are_kept_on_the_new_port(self, stage: Stage) -> None:
        workspace = moved(stage)
        before = stage.engine.files(stage.name(workspace))
        stage.start(workspace)
        stage.settle()

        after = stage.engine.files(stage.name(workspace, 2))
        assert stage.row(workspace).phase == Phase.RUNNING
        assert stage.engine.read_file(stage.name(workspace, 2), INSTALLED.path) == INSTALLED.content
        assert after[HOST_KEY] == before[HOST_KEY]
        assert after["/etc/berth/token"] == before["/etc/berth/token"]
        assert stage.ports(workspace)["ssh"] == 20002
        assert "ssh now listens on port 20002" in str(stage.noted(workspace))

    def test_old_container_goes_once_the_new_one_is_ready(self, stage: Stage) -> None:
        workspace = moved(stage)
        beside: list[int] = []

        def become_ready() -> None:
            beside.append(len(stage.containers()))
            stage.silent = set()

        stage.silent, stage.on_sleep = {Service.SSH}, become_ready
        stage.start(workspace)
        stage.settle()
        assert beside == [2]
        assert [container.name for container in stage.containers()] == [stage.name(workspace, 2)]
        row = stage.row(workspace)
        assert (row.revision, row.private_image) == (2, image_of(workspace, 2))
        check_at_rest(stage)

    def test_new_one_that_is_never_ready_leaves_the_old_one_whole(self, stage: Stage) -> None:
        workspace = moved(stage)
        stage.start(workspace)
        stage.engine.fail_next("create", EngineRejected(host="gpu1", detail="no"))
        stage.settle()
        assert stage.row(workspace).phase == Phase.FAILED
        assert stage.engine.read_file(stage.name(workspace), INSTALLED.path) == INSTALLED.content

        stage.start(workspace)
        stage.settle()
        assert stage.engine.read_file(stage.name(workspace, 2), INSTALLED.path) == INSTALLED.content
        check_at_rest(stage)

    def test_images_of_earlier_moves_are_swept(self, stage: Stage) -> None:
        workspace = moved(stage)
        for _ in range(3):
            stage.start(workspace)
            stage.settle()
            stage.stop(workspace)
            stage.settle()
            stage.engine.taken_ports.add(stage.ports(workspace)["ssh"])
        private = [reference for reference in stage.machine.images if "w-" in reference]
        assert private == [image_of(workspace, 4)]
        check_at_rest(stage)

    def test_removal_after_moves_leaves_nothing_of_it(self, stage: Stage) -> None:
        workspace = moved(stage)
        stage.start(workspace)
        stage.settle()
        stage.remove(workspace)
        stage.settle()
        check_at_rest(stage)

    def test_removal_in_the_middle_of_a_second_move_leaves_nothing_of_it(self, stage: Stage) -> None:
        """r2 ran but was never recorded running when its port was taken too: there is an image r3 already."""
        workspace = moved(stage)
        stage.silent = {Service.SSH}

        def crash_once() -> None:
            stage.on_sleep = lambda: None
            stage.engine.end(stage.name(workspace, 2), 1)
            stage.engine.taken_ports.add(stage.ports(workspace)["ssh"])

        stage.on_sleep = crash_once
        stage.start(workspace)
        stage.settle()
        stage.engine.fail_next("create", SILENCE)
        stage.live(2)
        assert image_of(workspace, 3) in stage.machine.images

        stage.remove(workspace)
        stage.settle()
        check_at_rest(stage)

    def test_commit_that_was_broken_off_is_done_again(self, stage: Stage) -> None:
        """The layer may have changed since: an image from then would lose an hour of work."""
        workspace = moved(stage)
        stage.start(workspace)
        stage.engine.fail_next("create", SILENCE)
        stage.settle()
        assert image_of(workspace, 2) in stage.machine.images
        later = replace(INSTALLED, path="/opt/berth/py/later")
        stage.engine.put(stage.name(workspace), [later])
        stage.forget_calls()
        stage.live(6)
        assert stage.engine.read_file(stage.name(workspace, 2), later.path) == later.content
        assert stage.deeds()[0] == f"remove_image {image_of(workspace, 2)}", "the old one would stay without a name"

    def test_container_removed_by_hand_comes_back_from_its_last_private_image(self, stage: Stage) -> None:
        workspace = moved(stage)
        stage.start(workspace)
        stage.settle()
        stage.engine.remove_by_hand(stage.name(workspace, 2))
        stage.settle()
        stage.start(workspace)
        stage.settle()
        assert stage.engine.read_file(stage.name(workspace, 3), INSTALLED.path) == INSTALLED.content
        assert stage.row(workspace).private_image == image_of(workspace, 2)
        check_at_rest(stage)

    def test_private_image_pruned_by_hand_as_well_means_a_fresh_start(self, stage: Stage) -> None:
        workspace = moved(stage)
        stage.start(workspace)
        stage.settle()
        stage.engine.remove_by_hand(stage.name(workspace, 2))
        del stage.machine.images[image_of(workspace, 2)]
        stage.settle()
        stage.start(workspace)
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.private_image) == (Phase.RUNNING, None)
        assert not [call for call in stage.engine.calls if call[0] == "ensure_image" and "w-" in call[1]]

    def test_old_container_that_cannot_be_removed_does_not_hurt_the_new_one(self, stage: Stage) -> None:
        workspace = moved(stage)
        for _ in range(3):
            stage.engine.fail_next("remove", EngineRejected(host="gpu1", detail="device or resource busy"))
        stage.start(workspace)
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.reason) == (Phase.RUNNING, None)
        check(stage)
        stage.live(30)
        assert stage.row(workspace).phase == Phase.RUNNING
        check_at_rest(stage)

    def test_silence_at_the_removal_of_the_old_one_is_no_trouble_of_the_new_one(self, stage: Stage) -> None:
        workspace = moved(stage)
        stage.engine.fail_next("remove", SILENCE)
        stage.start(workspace)
        stage.settle()
        assert (stage.row(workspace).phase, stage.row(workspace).reason) == (Phase.RUNNING, None)
        stage.live(6)
        check_at_rest(stage)

    def test_stop_during_a_move_wins(self, stage: Stage) -> None:
        workspace = moved(stage)
        commit = stage.engine.commit

        def stop_meanwhile(name: str, reference: str, **named: bool) -> object:
            stage.stop(workspace)
            return commit(name, reference, **named)

        stage.engine.commit = stop_meanwhile  # type: ignore[method-assign, assignment]
        stage.start(workspace)
        stage.settle()
        assert stage.row(workspace).phase == Phase.STOPPED
        check_at_rest(stage)
