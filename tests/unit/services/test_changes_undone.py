"""What a workspace was is kept until a change is carried out; the agent takes it back when it cannot be."""

from __future__ import annotations

import pytest
from agent.rack import card

from webapp.domain.sizes import GIB
from webapp.domain.workspace import Phase
from webapp.services import observations, workspaces
from webapp.store.tables import Workspace


class TestGoingBack:
    """What it was is kept until the change is carried out; the agent takes it back when it cannot be."""

    @pytest.fixture
    def undo(self, store, cast, now):
        def run(workspace, **guard):
            with store.write() as session:
                generation = session.get_one(Workspace, workspace.id).generation
                return observations.undo_change(
                    session, workspace.id, now=now, changes={"reason": None}, why="no_room_to_move",
                    **{"generation": generation, "epoch": cast.epoch, **guard})
        return run

    def test_everything_is_as_it_was(self, rack, runs, alice, change, undo, held, row, mounts, volume):
        data, more = volume("data"), volume("more")
        workspace = runs(gpus="2", mounts=((data.id, True),))
        was = row(Workspace, workspace.id)
        change(alice, workspace, cpus="4", memory="16GiB", shm="4GiB", gpu_uuids=(card(1), card(2), card(3)),
               mounts=((more.id, False),))
        assert undo(workspace)
        after = row(Workspace, workspace.id)
        for column in ("cpu_millis", "memory_bytes", "shm_bytes", "gpu_count", "gpu_model", "gpu_uuids"):
            assert getattr(after, column) == getattr(was, column), column
        assert mounts(workspace) == {data.id: True}
        assert held(workspace) == [card(0), card(1)]
        assert (after.before_change, after.generation) == (None, 2)

    def test_second_change_goes_back_to_the_first_ones_before(self, runs, alice, change, undo, row):
        workspace = runs()
        change(alice, workspace, memory="16GiB")
        change(alice, workspace, memory="4GiB")
        assert undo(workspace)
        assert row(Workspace, workspace.id).memory_bytes == 8 * GIB

    @pytest.mark.parametrize("guard", [{"generation": 1}, {"epoch": 0}])
    def test_stale_word_takes_nothing_back(self, rack, runs, alice, change, undo, held, row, guard):
        workspace = runs(gpus="1")
        change(alice, workspace, gpu_uuids=(card(2),))
        assert not undo(workspace, **guard)
        assert held(workspace) == [card(0), card(2)]
        assert row(Workspace, workspace.id).gpu_uuids == [card(2)]

    @pytest.mark.parametrize("wish", [workspaces.stop, workspaces.remove])
    def test_no_way_back_once_somebody_ends_it(self, runs, do, alice, change, row, wish):
        workspace = runs()
        change(alice, workspace, memory="4GiB")
        assert row(Workspace, workspace.id).before_change["ran"]
        do(wish, alice, workspace.id)
        assert not (row(Workspace, workspace.id).before_change or {}).get("ran")

    def test_one_that_has_not_run_yet_has_nothing_to_go_back_to(self, launch, alice, change, row):
        workspace = launch(alice)
        change(alice, workspace, memory="4GiB")
        assert not row(Workspace, workspace.id).before_change["ran"]

    def test_nor_when_it_is_started_again_after_a_failure(self, runs, alice, change, seen, row, do):
        workspace = runs()
        change(alice, workspace, memory="4GiB")
        seen(workspace, Phase.FAILED)
        do(workspaces.start, alice, workspace.id)
        assert not row(Workspace, workspace.id).before_change["ran"]
