"""Changes that begin while another transaction has read and written and not committed yet; on PostgreSQL alone."""

import pytest
from agent.rack import card

from webapp.domain.sizes import GIB
from webapp.domain.workspace import Desired, Phase
from webapp.errors import InvalidInput, NoCapacity
from webapp.services import changes, observations, volumes, workspaces
from webapp.services.changes import ChangeRequest
from webapp.services.orders import LaunchRequest
from webapp.store.tables import GpuClaim, Workspace

pytestmark = pytest.mark.postgresql


class TestChanges:
    """Beside each other and beside everything else."""

    @pytest.fixture
    def changing(self, house, now):
        def wish(actor, workspace, *, start=False, **typed):
            return lambda s: changes.change(s, actor, workspace.id, ChangeRequest(**typed), house=house, start=start,
                                            now=now)
        return wish

    @pytest.fixture
    def runs(self, rack, launch, seen):
        def run(actor, **typed):
            workspace = launch(actor, **typed)
            seen(workspace, Phase.RUNNING)
            return workspace
        return run

    def test_card_goes_to_one_of_two_that_change(self, overtake, runs, changing, alice, bob, rows):
        one, other = runs(alice, gpus="1"), runs(bob, gpus="1")
        second = overtake(changing(alice, one, gpu_uuids=(card(3),)), changing(bob, other, gpu_uuids=(card(3),)))
        assert (second.waited, type(second.error)) == (True, NoCapacity)
        assert rows(GpuClaim) == 3

    def test_card_goes_to_who_changes_or_to_who_launches(self, overtake, runs, changing, cast, alice, bob, house, now):
        one = runs(alice)
        request = LaunchRequest("run-1", cast.image_id, gpu_uuids=(card(3),))
        launching = lambda s: workspaces.launch(s, bob, request, house=house, now=now)     # noqa: E731
        assert isinstance(overtake(changing(alice, one, gpu_uuids=(card(3),)), launching).error, NoCapacity)

    def test_two_changes_of_one_count_both(self, overtake, runs, changing, alice, carol, row):
        workspace = runs(alice, gpus="1")
        overtake(changing(alice, workspace, memory="4GiB"), changing(carol, workspace, gpus="2"))
        after = row(Workspace, workspace.id)
        assert (after.generation, after.memory_bytes, after.gpu_count) == (3, 4 * GIB, 2)
        assert after.before_change["memory_bytes"] == 8 * GIB

    def test_change_that_meets_a_stop_is_the_stopped_ones(self, overtake, runs, changing, alice, now, row):
        workspace = runs(alice, gpus="1")
        overtake(lambda s: workspaces.stop(s, alice, workspace.id, now=now),
                 changing(alice, workspace, gpu_uuids=(card(2),)))
        after = row(Workspace, workspace.id)
        assert (after.desired, after.generation, after.gpu_uuids) == (Desired.STOPPED, 2, [card(2)])

    def test_undoing_takes_back_no_newer_change(self, overtake, runs, changing, alice, cast, do, now, row, house):
        workspace = runs(alice, gpus="1")
        do(changes.change, alice, workspace.id, ChangeRequest(gpus="2"), house=house)
        second = overtake(changing(alice, workspace, gpus="3"), lambda s: observations.undo_change(
            s, workspace.id, generation=2, epoch=cast.epoch, now=now, changes={}, why="disk_full"))
        assert (second.waited, second.result, row(Workspace, workspace.id).gpu_count) == (True, False, 3)

    def test_volume_that_a_change_is_just_taking_out_is_not_removed(
        self, overtake, runs, changing, alice, carol, do, cast, now,
    ):
        volume = do(volumes.create_volume, carol, name="data", team_id=cast.team_id, host_folder=None, target=None,
                    read_only=False, roots=())
        workspace = runs(alice, mounts=((volume.id, True),))
        second = overtake(changing(alice, workspace, mounts=()),
                          lambda s: volumes.remove_volume(s, carol, volume.id, now=now))
        assert isinstance(second.error, InvalidInput)

    def test_volume_that_is_just_being_removed_is_not_mounted_by_a_change(
        self, overtake, runs, changing, alice, carol, do, cast, now,
    ):
        volume = do(volumes.create_volume, carol, name="data", team_id=cast.team_id, host_folder=None, target=None,
                    read_only=False, roots=())
        second = overtake(lambda s: volumes.remove_volume(s, carol, volume.id, now=now),
                          changing(alice, runs(alice), mounts=((volume.id, True),)))
        assert isinstance(second.error, InvalidInput) and "not yours" in str(second.error)
