"""Claims on cards at a start, in a race, and when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent.rack import Rack, card
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from services.refusals import refused, why
from webapp.domain.gpu import Condition
from webapp.domain.workspace import Desired, Phase
from webapp.errors import NoCapacity
from webapp.services import gpus, observations, workspaces
from webapp.store.tables import Event, Gpu, GpuClaim, Intent, PortClaim, Workspace

OTHER = "NVIDIA H100 80GB HBM3"


class TestStartAgain:
    def test_same_cards_when_they_are_free(self, do, alice, rack, launch, held, stopped):
        workspace = stopped(gpu_uuids=(card(1), card(2)))
        launch(alice, "others", gpus="1")
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(1), card(2)]

    def test_others_of_the_model_when_one_is_taken(self, do, alice, rack, launch, held, row, see, stopped):
        rack.models = {card(1): OTHER}
        see(rack)
        workspace = stopped(gpus="1")
        assert workspace.gpu_uuids == [card(0)]
        launch(alice, "faster", gpu_uuids=(card(0),))
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(2)]
        assert row(Workspace, workspace.id).gpu_uuids == [card(2)]

    def test_another_model_when_none_was_asked_for(self, do, alice, rack, launch, held, see, stopped):
        rack.models = {card(0): OTHER}
        see(rack)
        workspace = stopped(gpu_uuids=(card(0),))
        launch(alice, "faster", gpu_uuids=(card(0),))
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(1)], "a pair was broken for it"

    def test_never_another_model_than_was_asked_for(self, do, alice, rack, launch, see, stopped):
        rack.models = {card(0): OTHER}
        see(rack)
        workspace = stopped(gpus="1", gpu_model=OTHER)
        launch(alice, "faster", gpu_uuids=(card(0),))
        with pytest.raises(NoCapacity) as caught:
            do(workspaces.start, alice, workspace.id)
        assert why(caught.value)[card(1)] == "gpu_other_model"

    def test_cards_that_are_not_well_are_left(self, do, alice, rack, held, see, stopped):
        workspace = stopped(gpus="2")
        rack.gone = {card(0)}
        see(rack)
        do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(2), card(3)]

    def test_never_on_another_host(self, do, alice, rack, launch, see, second_host, stopped):
        see(Rack(4, first=10), second_host)
        workspace = stopped(gpu_uuids=rack.uuids)
        launch(alice, "faster", gpu_uuids=(card(0),))
        with pytest.raises(NoCapacity) as caught:
            do(workspaces.start, alice, workspace.id)
        assert caught.value.facts["largest_free"] == 3

    def test_refusal_leaves_everything_as_it_was(self, do, alice, rack, launch, held, row, stopped):
        workspace = stopped(gpu_uuids=(card(0), card(1), card(2)))
        other = launch(alice, "faster", gpus="2")
        before, rung = row(Workspace, workspace.id), row(Intent, 1).seq
        with pytest.raises(NoCapacity):
            do(workspaces.start, alice, workspace.id)
        after = row(Workspace, workspace.id)
        assert (after.desired, after.generation) == (Desired.STOPPED, before.generation)
        assert (after.gpu_uuids, row(Intent, 1).seq) == (before.gpu_uuids, rung)
        assert (held(workspace), held(other)) == ([], [card(0), card(1)])

    def test_failed_one_that_still_holds_them_keeps_them(self, do, alice, rack, launch, held, seen):
        workspace = launch(alice, gpus="2")
        seen(workspace, Phase.FAILED)
        assert do(workspaces.start, alice, workspace.id).generation == 2
        assert held(workspace) == [card(0), card(1)]

    def test_start_while_it_is_still_stopping_keeps_them(self, do, alice, rack, launch, held, store, cast, now):
        workspace = launch(alice, gpus="1")
        do(workspaces.stop, alice, workspace.id)
        do(workspaces.start, alice, workspace.id)
        with store.write() as session:
            assert not observations.release_gpus(session, workspace.id, generation=2, epoch=cast.epoch, now=now)
        assert held(workspace) == [card(0)]

    def test_second_press_claims_nothing_more(self, do, alice, rack, held, stopped):
        workspace = stopped(gpus="1")
        for _ in range(2):
            do(workspaces.start, alice, workspace.id)
        assert held(workspace) == [card(0)]


class TestEnd:
    """With proof that the container is down, by the agent; never with the wish."""

    @pytest.mark.parametrize("wish", [workspaces.stop, workspaces.remove])
    def test_wish_gives_nothing_back(self, do, alice, rack, launch, held, wish):
        workspace = launch(alice, gpus="2")
        do(wish, alice, workspace.id)
        assert held(workspace) == [card(0), card(1)]
        assert why(refused(launch, alice, gpu_uuids=(card(0),))) == {card(0): "gpu_taken"}

    def test_seen_down_it_does(self, do, alice, rack, launch, held, down, store):
        workspace = launch(alice, gpus="2")
        do(workspaces.stop, alice, workspace.id)
        down(workspace)
        assert held(workspace) == []
        with store.read() as session:
            event = session.scalars(select(Event).where(Event.action == "workspace.release_gpus")).one()
        assert (event.object_id, event.details["gpus"]) == (workspace.id, [card(0), card(1)])

    def test_seen_gone_it_does(self, do, alice, rack, launch, held, gone):
        workspace = launch(alice, gpus="2")
        do(workspaces.remove, alice, workspace.id)
        gone(workspace)
        assert held(workspace) == []

    @pytest.mark.parametrize("end", [observations.release_gpus, observations.record_removed])
    @pytest.mark.parametrize("stale", [{"generation": 1}, {"epoch": 0}])
    def test_stale_word_gives_nothing_back(self, do, alice, rack, launch, held, store, cast, now, end, stale):
        workspace = launch(alice, gpus="1")
        do(workspaces.remove, alice, workspace.id)
        with store.write() as session:
            assert not end(session, workspace.id, now=now, **{"generation": 2, "epoch": cast.epoch, **stale})
        assert held(workspace) == [card(0)]

    def test_card_that_vanished_stays_claimed(self, alice, rack, launch, held, see, row, cast):
        """F17"""
        workspace = launch(alice, gpus="1")
        rack.gone = {card(0)}
        see(rack)
        assert held(workspace) == [card(0)]
        assert row(Gpu, (cast.host_id, card(0))).condition == Condition.LOST


class TestDatabase:
    def test_second_claim_is_refused_by_the_key_itself(self, store, alice, launch, rack, cast, now):
        workspace = launch(alice, gpus="1")
        other = launch(alice, "other")
        with pytest.raises(IntegrityError), store.write() as session:
            session.add(GpuClaim(gpu_uuid=card(0), slot=0, host_id=cast.host_id, workspace_id=other.id, claimed_at=now))
        with store.read() as session:
            assert session.scalars(select(GpuClaim.workspace_id)).all() == [workspace.id]


class TestLostRace:
    """As on PostgreSQL, where somebody may be faster between the look and the insert: the primary key decides."""

    @pytest.fixture
    def stale(self, monkeypatch):
        """stale(1) = so many looks see nobody's claims."""
        offered, left = gpus.offered, [0]

        def blind(session, **named):
            cards, links = offered(session, **named)
            if left[0] > 0:
                left[0] -= 1
                cards = [replace(one, claimed=False) for one in cards]
            return cards, links

        monkeypatch.setattr(gpus, "offered", blind)
        return lambda looks: left.__setitem__(0, looks)

    def test_takes_others(self, launch, alice, rack, held, stale):
        launch(alice, "faster", gpus="2")
        stale(1)
        workspace = launch(alice, gpus="2")
        assert held(workspace) == [card(2), card(3)] == workspace.gpu_uuids

    def test_takes_those_of_another_host_and_its_ports(
        self, launch, alice, rack, see, second_host, held, stale, store, cast,
    ):
        elsewhere = Rack(4, first=10)
        see(elsewhere, second_host)
        faster = launch(alice, "faster", gpus="4")      # on the host that the stale look chooses too
        stale(1)
        workspace = launch(alice, gpus="4")
        assert {faster.host_id, workspace.host_id} == {cast.host_id, second_host}
        assert {*held(faster), *held(workspace)} == {*rack.uuids, *elsewhere.uuids}
        with store.read() as session:
            ports = session.scalars(select(PortClaim.host_id).where(PortClaim.workspace_id == workspace.id)).all()
        assert ports == [workspace.host_id] * 2

    def test_what_was_lost_is_not_tried_again(self, launch, alice, rack, held, stale):
        launch(alice, "faster", gpus="1")
        stale(2)        # the second look, too, is older than the other's commit
        assert held(launch(alice, gpus="1")) == [card(1)]

    @pytest.mark.parametrize("typed", [{"gpus": "1"}, {"gpu_uuids": (card(2),)}])
    def test_without_others_it_is_told_so_and_leaves_nothing(self, launch, alice, rack, store, stale, typed):
        launch(alice, "faster", gpus="4")
        stale(1)
        assert why(refused(launch, alice, **typed))[card(2)] == "gpu_taken"
        with store.read() as session:
            assert session.scalar(select(func.count()).select_from(Workspace)) == 1

    def test_loser_of_every_try_is_told_so(self, launch, alice, rack, monkeypatch):
        monkeypatch.setattr(gpus, "_insert", lambda *_: False)
        assert refused(launch, alice, gpus="1").facts["wanted"] == 1

    def test_part_of_the_cards_is_given_back(self, launch, alice, rack, held, stale, store):
        """The first insert of several may have succeeded when the second is refused."""
        faster = launch(alice, "faster", gpu_uuids=(card(1),))
        stale(1)
        refused(launch, alice, gpu_uuids=(card(0), card(1)))
        with store.read() as session:
            assert session.scalars(select(GpuClaim.workspace_id)).all() == [faster.id]

    def test_start_takes_others_too(self, do, launch, alice, rack, held, stale, stopped):
        workspace = stopped(gpus="1")
        launch(alice, "faster", gpu_uuids=(card(0),))
        stale(1)
        do(workspaces.start, alice, workspace.id)
        assert len(held(workspace)) == 1 and held(workspace) != [card(0)]
