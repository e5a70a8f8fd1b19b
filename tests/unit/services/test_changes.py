"""What people may change of a workspace that is there, what it comes to, and what the row says then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent.rack import Rack, card
from sqlalchemy import func, select

from webapp.domain.sizes import GIB
from webapp.domain.workspace import Desired, Phase
from webapp.errors import Conflict, Forbidden, InvalidInput, NoCapacity, NotFound
from webapp.services import changes, gpus, observations, people, teams, volumes, workspaces
from webapp.services.changes import ChangeRequest, Consequence
from webapp.store.tables import Event, Gpu, GpuClaim, Image, Intent, Workspace

OTHER = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def consequence(store, house):
    def ask(actor, workspace, **typed):
        with store.read() as session:
            return changes.consequence(session, actor, workspace.id, ChangeRequest(**typed), house=house)
    return ask


def fields(error: InvalidInput) -> list[str]:
    return [problem.field for problem in error.problems]


class TestLimits:
    def test_cpu_and_memory_change_live(self, runs, alice, change, consequence, row):
        workspace = runs()
        assert consequence(alice, workspace, cpus="4", memory="16GiB") is Consequence.LIVE
        change(alice, workspace, cpus="4", memory="16GiB")
        after = row(Workspace, workspace.id)
        assert (after.cpu_millis, after.memory_bytes, after.shm_bytes) == (4000, 16 * GIB, 2 * GIB)
        assert (after.desired, after.generation, after.phase) == (Desired.RUNNING, 2, Phase.RUNNING)

    def test_shared_memory_moves(self, runs, alice, consequence):
        assert consequence(alice, runs(), shm="1GiB") is Consequence.MOVE

    @pytest.mark.parametrize("typed", [{}, {"cpus": "2"}, {"memory": "8GiB", "shm": "2GiB"}, {"gpus": "0"},
                                       {"mounts": ()}])
    def test_what_it_has_already_is_no_change(self, runs, alice, change, consequence, row, typed):
        workspace = runs()
        rung = row(Intent, 1).seq if row else None
        assert consequence(alice, workspace, **typed) is Consequence.NOTHING
        change(alice, workspace, **typed)
        after = row(Workspace, workspace.id)
        assert (after.generation, after.before_change, row(Intent, 1).seq) == (1, None, rung)

    @pytest.mark.parametrize(("typed", "field"), [
        ({"cpus": "9"}, "cpus"), ({"memory": "64GiB"}, "memory"), ({"memory": "much"}, "memory"),
        ({"shm": "9GiB"}, "shm"), ({"memory": "1GiB"}, "shm"), ({"gpus": "some"}, "gpus"),
        ({"gpu_uuids": ("GPU-none",)}, "gpus"), ({"mounts": (("nobody's", True),)}, "mounts")])
    def test_bad_ones_name_their_field_and_change_nothing(self, runs, alice, change, row, typed, field):
        workspace = runs()
        with pytest.raises(InvalidInput) as caught:
            change(alice, workspace, **typed)
        assert fields(caught.value) == [field]
        assert row(Workspace, workspace.id).generation == 1

    def test_all_problems_are_told_at_once(self, runs, alice, change):
        with pytest.raises(InvalidInput) as caught:
            change(alice, runs(), cpus="0", memory="1", gpus="-1")
        assert fields(caught.value) == ["cpus", "memory", "gpus"]

    def test_limit_of_the_house_that_was_lowered_since_is_told(self, runs, alice, do, house):
        workspace = runs(cpus="8")
        with pytest.raises(InvalidInput) as caught:
            do(changes.change, alice, workspace.id, ChangeRequest(shm="1GiB"),
               house=replace(house, max_cpu_millis=4000))
        assert fields(caught.value) == ["cpus"]

    def test_history_says_what_it_was(self, runs, alice, change, store):
        workspace = runs()
        change(alice, workspace, memory="4GiB")
        with store.read() as session:
            event = session.scalars(select(Event).where(Event.action == "workspace.change")).one()
        assert (event.details["before"]["memory_bytes"], event.details["after"]["memory_bytes"]) == (8 * GIB, 4 * GIB)


class TestMounts:
    def test_are_replaced_as_a_whole(self, runs, alice, change, consequence, mounts, volume):
        data, more = volume("data"), volume("more")
        workspace = runs(mounts=((data.id, True),))
        assert consequence(alice, workspace, mounts=((data.id, True), (more.id, False))) is Consequence.MOVE
        change(alice, workspace, mounts=((data.id, False), (more.id, False)))
        assert mounts(workspace) == {data.id: False, more.id: False}
        change(alice, workspace, mounts=())
        assert mounts(workspace) == {}

    def test_volume_of_a_team_that_was_left_is_named(self, launch, do, carol, alice, cast, change, volume, mounts):
        workspace = launch(alice, mounts=((volume("data").id, True),))
        do(teams.remove_member, carol, team_id=cast.team_id, member_id=alice.member_id)
        for typed in ({"memory": "4GiB"}, {"mounts": tuple(mounts(workspace).items())}):
            with pytest.raises(InvalidInput, match="data"):
                change(alice, workspace, **typed)
        change(alice, workspace, mounts=())
        assert mounts(workspace) == {}

    def test_strangers_volume_is_not(self, runs, dave, launch, change, volume, seen):
        workspace = launch(dave)
        with pytest.raises(InvalidInput) as caught:
            change(dave, workspace, mounts=((volume("secret").id, True),))
        assert "secret" not in str(caught.value)

    def test_volume_cannot_go_while_a_container_may_have_it(self, runs, alice, carol, do, change, volume, seen):
        data = volume("data")
        workspace = runs(mounts=((data.id, True),))
        change(alice, workspace, mounts=())
        with pytest.raises(InvalidInput, match="run-1"):
            do(volumes.remove_volume, carol, data.id)
        seen(workspace, Phase.RUNNING, before_change=None)
        do(volumes.remove_volume, carol, data.id)

    def test_who_leaves_the_team_meanwhile_has_it_stopped(self, runs, alice, carol, cast, do, change, volume):
        workspace = runs(mounts=((volume("data").id, True),))
        change(alice, workspace, mounts=())
        stopped = do(teams.remove_member, carol, team_id=cast.team_id, member_id=alice.member_id)
        assert [one.id for one in stopped] == [workspace.id]


class TestCardsOfOneThatRuns:
    @pytest.mark.parametrize(("before", "typed", "named", "claimed"), [
        pytest.param({"gpus": "2"}, {"gpus": "3"}, [0, 1, 2], [0, 1, 2], id="more, with those that it has"),
        pytest.param({"gpus": "2"}, {"gpus": "1"}, [0], [0, 1], id="fewer"),
        pytest.param({"gpus": "2"}, {"gpus": "0"}, [], [0, 1], id="none"),
        pytest.param({}, {"gpus": "2"}, [0, 1], [0, 1], id="some"),
        pytest.param({"gpus": "2"}, {"gpu_uuids": (card(1), card(2))}, [1, 2], [0, 1, 2], id="one swapped"),
        pytest.param({"gpus": "2"}, {"gpu_uuids": (card(1),)}, [1], [0, 1], id="this one of both"),
        pytest.param({"gpus": "1"}, {"gpu_uuids": (card(3),)}, [3], [0, 3], id="another"),
    ])
    def test_it_holds_old_and_new_ones(
        self, rack, runs, alice, change, consequence, held, row, before, typed, named, claimed,
    ):
        workspace = runs(**before)
        assert consequence(alice, workspace, **typed) is Consequence.MOVE
        change(alice, workspace, **typed)
        after = row(Workspace, workspace.id)
        assert sorted(after.gpu_uuids) == [card(number) for number in named]
        assert held(workspace) == [card(number) for number in claimed]
        assert (after.gpu_count, after.generation) == (len(named), 2)

    @pytest.mark.parametrize("typed", [{"gpus": "2"}, {"gpu_uuids": (card(1), card(0))}, {"gpus": "2", "gpu_model": ""},
                                       {"gpus": ""}])
    def test_same_ones_are_no_change(self, rack, runs, alice, change, row, typed):
        workspace = runs(gpus="2")
        change(alice, workspace, **typed)
        assert row(Workspace, workspace.id).generation == 1

    def test_ill_one_is_exchanged_for_any(self, rack, runs, alice, change, see, row, held):
        workspace = runs(gpus="1")
        rack.gone = {card(0)}
        see(rack)
        change(alice, workspace, gpus="1")
        assert (row(Workspace, workspace.id).gpu_uuids, held(workspace)) == ([card(1)], [card(0), card(1)])

    def test_another_model(self, rack, runs, alice, change, see, held):
        rack.models = {card(3): OTHER}
        see(rack)
        workspace = runs(gpus="1")
        change(alice, workspace, gpu_model=OTHER)
        assert held(workspace) == [card(0), card(3)]

    def test_taken_ones_are_refused_and_nothing_changes(self, rack, runs, launch, alice, bob, change, row, held):
        workspace, before = runs(gpus="2"), None
        launch(bob, gpu_uuids=(card(2),))
        before = row(Workspace, workspace.id)
        for typed in ({"gpus": "4"}, {"gpu_uuids": (card(1), card(2))}):
            with pytest.raises(NoCapacity):
                change(alice, workspace, memory="4GiB", **typed)
        after = row(Workspace, workspace.id)
        assert held(workspace) == [card(0), card(1)] == after.gpu_uuids
        assert (after.generation, after.memory_bytes, after.before_change) == (1, before.memory_bytes, None)

    def test_those_of_another_host_are_refused(self, rack, runs, alice, change, see, second_host):
        see(Rack(2, first=10), second_host)
        with pytest.raises(InvalidInput) as caught:
            change(alice, runs(), gpu_uuids=(card(10),))
        assert fields(caught.value) == ["gpus"]

    def test_driver_too_old_for_the_image_is_told(self, rack, runs, alice, change, see, store, cast):
        rack.driver_version = "470.82"
        see(rack)
        workspace = runs()
        with store.write() as session:
            session.get_one(Image, cast.image_id).cuda_version = "12.8"
        with pytest.raises(InvalidInput) as caught:
            change(alice, workspace, gpus="1")
        assert fields(caught.value) == ["gpus"]

    def test_back_again_before_it_moved(self, rack, runs, alice, change, held, row):
        workspace = runs(gpus="1")
        change(alice, workspace, gpu_uuids=(card(2),))
        change(alice, workspace, gpu_uuids=(card(0),))
        assert held(workspace) == [card(0), card(2)]
        assert row(Workspace, workspace.id).gpu_uuids == [card(0)]

    def test_moved_it_gives_back_the_rest(self, rack, runs, alice, change, held, store, cast, now):
        workspace = runs(gpus="2")
        change(alice, workspace, gpu_uuids=(card(2),))
        with store.write() as session:
            assert observations.release_gpus(
                session, workspace.id, generation=2, epoch=cast.epoch, keep=[card(2)], now=now)
        assert held(workspace) == [card(2)]

    def test_stopped_meanwhile_it_gives_back_all(self, rack, runs, do, alice, change, held, down):
        workspace = runs(gpus="1")
        change(alice, workspace, gpus="2")
        do(workspaces.stop, alice, workspace.id)
        down(workspace)
        assert held(workspace) == []
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(0), card(1)]


class TestOneThatIsStopped:
    def test_only_its_spec_changes(self, rack, stopped, alice, change, held, row):
        workspace = stopped(gpus="1")
        rung = row(Intent, 1).seq
        change(alice, workspace, gpus="3", memory="4GiB")
        after = row(Workspace, workspace.id)
        assert (after.gpu_count, after.gpu_uuids, after.memory_bytes) == (3, [], 4 * GIB)
        assert (after.desired, after.generation, row(Intent, 1).seq) == (Desired.STOPPED, 2, rung)
        assert held(workspace) == []

    @pytest.mark.parametrize(("typed", "claimed"), [
        ({"gpus": "3"}, 3), ({"gpus": "1"}, 1), ({"gpus": "0"}, 0), ({"gpu_uuids": (card(3),)}, [card(3)])])
    def test_at_its_next_start_it_has_them(self, rack, stopped, do, alice, change, held, row, typed, claimed):
        workspace = stopped(gpus="2")
        change(alice, workspace, **typed)
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == claimed or len(held(workspace)) == claimed
        assert held(workspace) == sorted(row(Workspace, workspace.id).gpu_uuids)

    def test_cards_need_not_be_free_yet(self, rack, stopped, launch, alice, bob, change, do, held):
        workspace = stopped(gpus="1")
        launch(bob, gpu_uuids=(card(3),))
        change(alice, workspace, gpu_uuids=(card(3),))
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(2)], "others like them, as at every start"

    def test_failed_one_is_not_started_by_it(self, runs, alice, change, seen, row):
        workspace = runs()
        seen(workspace, Phase.FAILED)
        change(alice, workspace, memory="4GiB")
        after = row(Workspace, workspace.id)
        assert (after.generation, after.memory_bytes) == (1, 4 * GIB)

    def test_change_and_start_in_one(self, rack, stopped, alice, change, held, row):
        workspace = stopped(gpus="2")
        change(alice, workspace, start=True, gpu_uuids=(card(3),))
        after = row(Workspace, workspace.id)
        assert (after.desired, after.generation, held(workspace)) == (Desired.RUNNING, 3, [card(3)])

    def test_start_on_cards_that_are_taken_changes_nothing(self, rack, stopped, launch, alice, bob, change, row):
        workspace = stopped(gpus="1")
        launch(bob, gpu_uuids=(card(3),))
        with pytest.raises(NoCapacity):
            change(alice, workspace, start=True, gpu_uuids=(card(3),))
        after = row(Workspace, workspace.id)
        assert (after.desired, after.generation, after.gpu_uuids) == (Desired.STOPPED, 2, [card(0)])

    def test_start_alone_is_a_start(self, rack, stopped, alice, change, held, row):
        workspace = stopped(gpus="1")
        change(alice, workspace, start=True)
        assert (row(Workspace, workspace.id).desired, held(workspace)) == (Desired.RUNNING, [card(0)])

    def test_one_that_is_still_stopping_keeps_its_claims(self, rack, runs, do, alice, change, held, down, row):
        workspace = runs(gpus="2")
        do(workspaces.stop, alice, workspace.id)
        change(alice, workspace, gpu_uuids=(card(2), card(3)))
        assert held(workspace) == [card(0), card(1)]
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(0), card(1), card(2), card(3)]
        assert row(Workspace, workspace.id).gpu_uuids == [card(2), card(3)]


class TestWho:
    def test_owner_and_admin(self, runs, carol, change, row):
        workspace = runs()
        change(carol, workspace, memory="4GiB")
        assert row(Workspace, workspace.id).memory_bytes == 4 * GIB

    def test_nobody_else(self, runs, bob, change, consequence):
        workspace = runs()
        for ask in (change, consequence):
            with pytest.raises(NotFound):
                ask(bob, workspace, memory="4GiB")

    def test_not_of_somebody_deactivated(self, runs, do, carol, alice, change):
        workspace = runs()
        do(people.deactivate_member, carol, alice.member_id)
        with pytest.raises(Forbidden):
            change(carol, workspace, memory="4GiB")

    def test_not_once_it_is_removed(self, runs, do, alice, change, consequence):
        workspace = runs()
        do(workspaces.remove, alice, workspace.id)
        for ask in (change, consequence):
            with pytest.raises(Conflict):
                ask(alice, workspace, memory="4GiB")


def test_claim_that_somebody_was_faster_with_leaves_nothing(rack, runs, launch, alice, bob, change, store, monkeypatch):
    """As on PostgreSQL, where somebody may be faster between the look and the insert."""
    workspace, offered = runs(gpus="1"), gpus.offered
    launch(bob, gpu_uuids=(card(1), card(2), card(3)))

    def blind(session, **named):
        cards, links = offered(session, **named)
        return [replace(one, claimed=False) for one in cards], links

    monkeypatch.setattr(gpus, "offered", blind)
    with pytest.raises(NoCapacity):
        change(alice, workspace, gpus="2")
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(GpuClaim)) == 4
        assert session.scalar(select(func.count()).select_from(Gpu)) == 4
