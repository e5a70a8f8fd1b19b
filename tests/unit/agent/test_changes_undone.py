"""A change that cannot be made: not begun where that can be known, else taken back, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from agent.changed import INSTALLED, SILENCE, assert_moved, the_container, used
from agent.rack import Rack, card
from agent.stage import HOST, IMAGE, Stage, check_at_rest
from webapp.domain.container import File, Room
from webapp.domain.moving import MOST_LAYERS
from webapp.domain.sizes import GIB, MIB
from webapp.domain.workspace import Health, Phase, Service
from webapp.errors import DiskFull, EngineRejected, GpusRefused
from webapp.store.tables import Workspace


@pytest.fixture(autouse=True)
def rack(stage: Stage) -> Rack:
    """Four cards in two pairs."""
    return stage.add_cards(4)


class TestNotBegun:
    """What the agent would refuse anyway is refused while the old container still runs."""

    def test_card_that_fell_off_since_is_waited_for_first(self, stage: Stage, rack: Rack) -> None:
        workspace = used(stage, gpus="1")
        stage.change(workspace, gpu_uuids=(card(2),))
        rack.gone = {card(2)}
        stage.look_at_cards()
        stage.live(60)
        assert (the_container(stage).is_up, stage.deeds()) == (True, [])
        assert "is no longer listed by the driver" in str(stage.said(workspace))
        rack.gone = set()
        stage.look_at_cards()
        stage.live(60)
        assert_moved(stage, workspace, stage.ports(workspace))

    def test_card_that_stays_away_undoes_the_change(self, stage: Stage, rack: Rack) -> None:
        workspace = used(stage, gpus="1")
        stage.change(workspace, gpu_uuids=(card(2),))
        rack.gone = {card(2)}
        stage.look_at_cards()
        stage.live(900)
        row = stage.row(workspace)
        assert (row.phase, row.gpu_uuids, stage.cards(workspace)) == (Phase.RUNNING, [card(0)], [card(0)])
        assert "is no longer listed by the driver" in str(stage.noted(workspace))
        assert stage.deeds() == []
        check_at_rest(stage)


class TestGoingBack:
    """What cannot be done is not begun where that can be known; and where it was begun, what ran goes on."""

    def assert_as_it_was(self, stage: Stage, workspace: Workspace, was: Workspace) -> None:
        row, container = stage.row(workspace), the_container(stage)
        assert (row.phase, row.reason, row.health) == (Phase.RUNNING, None, Health.OK)
        assert (row.shm_bytes, row.gpu_uuids, row.memory_bytes) == (was.shm_bytes, was.gpu_uuids, was.memory_bytes)
        assert stage.engine.read_file(container.name, INSTALLED.path) == INSTALLED.content
        assert container.name == stage.name(workspace)
        check_at_rest(stage)
        stage.forget_calls()
        stage.live(200)
        assert stage.deeds() == [], "it was tried again"

    def test_no_room_ends_nothing(self, stage: Stage) -> None:
        workspace = used(stage, gpus="1")
        was = stage.row(workspace)
        stage.machine.room = Room(200 * MIB, GIB)
        stage.change(workspace, gpu_uuids=(card(2),), memory="4GiB")
        stage.settle()
        assert stage.deeds() == []
        assert "200 MiB are free" in str(stage.noted(workspace))
        self.assert_as_it_was(stage, workspace, was)

    def test_too_many_layers_end_nothing(self, stage: Stage) -> None:
        workspace = used(stage)
        was = stage.row(workspace)
        stage.machine.images[IMAGE].layers = MOST_LAYERS + 1
        stage.change(workspace, shm="4GiB")
        stage.settle()
        assert stage.deeds() == []
        assert "layers" in str(stage.noted(workspace))
        self.assert_as_it_was(stage, workspace, was)

    def test_room_that_is_not_known_stops_nobody(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.machine.room = None
        stage.change(workspace, shm="4GiB")
        assert_moved(stage, workspace, stage.ports(workspace))

    @pytest.mark.parametrize("error", [
        DiskFull(host=HOST, detail="no space left on device"), EngineRejected(host=HOST, detail="max depth exceeded"),
        SILENCE])
    def test_commit_that_fails_for_good(self, stage: Stage, error: Exception) -> None:
        workspace = used(stage, gpus="1")
        was = stage.row(workspace)
        for _ in range(8):
            stage.engine.fail_next("commit", error)
        stage.change(workspace, gpu_uuids=(card(2),))
        stage.live(60)
        assert stage.noted(workspace)
        stage.engine._failures.clear()
        self.assert_as_it_was(stage, workspace, was)

    def test_disk_that_has_room_again_in_time(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.engine.fail_next("commit", DiskFull(host=HOST, detail="no space left on device"))
        stage.change(workspace, shm="4GiB")
        stage.live(10)
        assert_moved(stage, workspace, stage.ports(workspace))

    def test_new_container_that_does_not_start(self, stage: Stage) -> None:
        """It never ran, so the old one has everything."""
        workspace = used(stage, gpus="1")
        was = stage.row(workspace)
        refusal = GpusRefused(host=HOST, detail="nvidia-container-cli: timed out")
        for _ in range(12):
            stage.engine.fail_next("start", refusal)
        stage.change(workspace, gpu_uuids=(card(2),))
        stage.live(900)
        assert "nvidia-container-cli" in str(stage.noted(workspace))
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.RUNNING, [card(0)])
        assert stage.row(workspace).gpu_uuids == was.gpu_uuids
        self.assert_as_it_was(stage, workspace, was)

    def test_new_container_that_ran_is_not_thrown_away(self, stage: Stage) -> None:
        """Programs may have written in it: it fails, and Start tries it again."""
        workspace = used(stage)
        stage.silent = {Service.SSH}
        stage.change(workspace, shm="4GiB")
        stage.settle()
        stage.live(200)
        row = stage.row(workspace)
        assert (row.phase, row.reason and row.reason["code"]) == (Phase.FAILED, "not_ready")
        stage.silent = set()
        stage.start(workspace)
        assert_moved_after_failure(stage, workspace)

    def test_started_with_the_change_it_fails_and_loses_nothing(self, stage: Stage) -> None:
        workspace = used(stage, gpus="1")
        ports = stage.ports(workspace)
        stage.stop(workspace)
        stage.settle()
        stage.machine.room = Room(GIB // 8, GIB)
        stage.change(workspace, start=True, gpu_uuids=(card(2),))
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.reason and row.reason["code"]) == (Phase.FAILED, "no_room_to_move")
        assert stage.engine.read_file(stage.name(workspace), INSTALLED.path) == INSTALLED.content
        check_at_rest(stage)
        stage.machine.room = Room(GIB, GIB)
        stage.start(workspace)
        assert_moved(stage, workspace, ports)

    def test_stop_in_the_middle_keeps_the_change_for_the_next_start(self, stage: Stage) -> None:
        workspace = used(stage, gpus="1")
        stop = stage.engine.stop

        def stop_meanwhile(*arguments: Any) -> None:
            stop(*arguments)
            if stage.row(workspace).desired == "running":
                stage.stop(workspace)

        stage.engine.stop = stop_meanwhile      # type: ignore[method-assign]
        stage.change(workspace, gpu_uuids=(card(2),))
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.STOPPED, [])
        check_at_rest(stage)
        stage.start(workspace)
        assert_moved(stage, workspace, stage.ports(workspace))


def assert_moved_after_failure(stage: Stage, workspace: Workspace) -> None:
    stage.settle()
    assert stage.row(workspace).phase == Phase.RUNNING
    assert stage.engine.read_file(stage.name(workspace, 2), INSTALLED.path) == INSTALLED.content
    check_at_rest(stage)


class TestUnansweredCommit:
    def test_image_that_is_there_is_gone_on_with(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.engine.fail_next("commit", SILENCE, after=True)
        stage.change(workspace, shm="4GiB")
        assert_moved(stage, workspace, stage.ports(workspace))

    def test_one_that_comes_later_is_not_made_twice(self, stage: Stage) -> None:
        workspace, commit = used(stage), stage.engine.commit
        stage.engine.fail_next("commit", SILENCE)
        stage.change(workspace, shm="4GiB")
        stage.settle()
        assert stage.said(workspace) == "gpu1 did not finish keeping what is in it in time."
        commit(stage.name(workspace), f"berth-test1/w-{workspace.id}:r2", private=True)
        stage.forget_calls()
        stage.live(6)
        assert not [deed for deed in stage.deeds() if deed.startswith("commit")]
        assert_moved(stage, workspace, stage.ports(workspace))

    def test_one_from_before_its_last_run_is_not_taken(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.engine.commit(stage.name(workspace), f"berth-test1/w-{workspace.id}:r2", private=True)
        later = File("/opt/berth/py/later", 0o644, 10000, 10000, b"since")
        stage.engine.put(stage.name(workspace), [later])
        stage.engine.fail_next("commit", SILENCE)
        stage.change(workspace, shm="4GiB")
        stage.live(6)
        assert stage.engine.read_file(stage.name(workspace, 2), later.path) == later.content


class TestRecordedImage:
    """If its container is removed by hand, the next one is made from what was kept last."""

    def test_is_that_of_the_container_which_runs(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.change(workspace, shm="4GiB")
        stage.settle()
        assert stage.row(workspace).private_image == f"berth-test1/w-{workspace.id}:r2"
        refusal = EngineRejected(host=HOST, detail="no")
        stage.engine.fail_next("start", refusal)
        stage.change(workspace, shm="1GiB")
        stage.settle()
        assert (stage.row(workspace).phase, stage.row(workspace).shm_bytes) == (Phase.RUNNING, 4 * GIB)
        assert stage.row(workspace).private_image == f"berth-test1/w-{workspace.id}:r2"
        stage.engine.remove_by_hand(stage.name(workspace, 2))
        stage.settle()
        stage.start(workspace)
        stage.settle()
        newest = the_container(stage).name
        assert stage.engine.read_file(newest, INSTALLED.path) == INSTALLED.content
