"""Cards at a launch: which ones one gets, why not, and what one could have instead."""

from __future__ import annotations

import pytest
from agent.rack import MODEL, Rack, card
from sqlalchemy import func, select

from services.refusals import refused, why
from webapp.domain.gpu import Condition, Gpu, Inventory, MigMode, MigSlice
from webapp.domain.reasons import Reason
from webapp.domain.workspace import StepName
from webapp.errors import InvalidInput, NoCapacity
from webapp.services.inventory import Look
from webapp.store.tables import Event, GpuClaim, Host, Image, PortClaim, Workspace, WorkspaceSecret

OTHER = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def needs_cuda(store, cast):
    def run(version: str | None) -> None:
        with store.write() as session:
            session.get_one(Image, cast.image_id).cuda_version = version
    return run


def problems(caught) -> dict[str, str]:
    return {problem.field: str(problem) for problem in caught.value.problems}


class TestLaunch:
    @pytest.mark.parametrize("typed", [{}, {"gpus": "0"}, {"gpu_model": MODEL}])
    def test_without_cards_it_holds_none_and_needs_none_to_be_free(self, launch, alice, rack, held, typed):
        launch(alice, "all", gpus="4")
        workspace = launch(alice, "none", **typed)
        assert (workspace.gpu_count, workspace.gpu_uuids, held(workspace)) == (0, [], [])
        assert StepName.GPUS not in [step["name"] for step in workspace.progress["steps"]]

    def test_number_gives_so_many_best_connected_ones(self, launch, alice, rack, held):
        alone = launch(alice, "alone", gpus="1")
        pair = launch(alice, "pair", gpus="2")
        assert (held(alone), held(pair)) == ([card(0)], [card(2), card(3)])
        assert (pair.gpu_count, pair.gpu_uuids, pair.gpu_model) == (2, [card(2), card(3)], None)
        assert StepName.GPUS in [step["name"] for step in pair.progress["steps"]]

    def test_named_ones_are_the_very_ones(self, launch, alice, rack, held):
        workspace = launch(alice, gpu_uuids=(card(3), card(0)))
        assert held(workspace) == [card(0), card(3)]
        assert (workspace.gpu_count, workspace.gpu_uuids) == (2, [card(0), card(3)])

    def test_model_alone_will_do(self, launch, alice, rack, held, see):
        rack.models = {card(1): OTHER, card(2): OTHER}
        see(rack)
        workspace = launch(alice, gpus="2", gpu_model=OTHER)
        assert (held(workspace), workspace.gpu_model) == ([card(1), card(2)], OTHER)

    def test_claim_says_whose_since_when_and_where(self, launch, alice, rack, row, cast, now):
        workspace = launch(alice, gpus="1")
        claim = row(GpuClaim, (card(0), 0))
        assert (claim.workspace_id, claim.host_id, claim.claimed_at) == (workspace.id, cast.host_id, now)

    def test_event_names_the_cards(self, launch, alice, rack, store):
        launch(alice, gpus="1")
        with store.read() as session:
            event = session.scalars(select(Event).where(Event.action == "workspace.launch")).one()
        assert event.details["gpus"] == [card(0)]

    @pytest.mark.parametrize("typed", [{"gpus": "4"}, {"gpu_uuids": (card(1), card(0))}])
    def test_all_or_nothing(self, launch, alice, rack, store, typed):
        launch(alice, gpu_uuids=(card(1),))
        refused(launch, alice, **typed)
        with store.read() as session:
            counts = [session.scalar(select(func.count()).select_from(table))
                      for table in (Workspace, WorkspaceSecret, GpuClaim, PortClaim)]
        assert counts == [1, 1, 1, 2]

    def test_host_is_that_of_the_cards(self, launch, alice, rack, see, second_host, held, cast):
        see(Rack(2, first=10), second_host)
        assert launch(alice, "plain").host_id == cast.host_id
        named = launch(alice, "named", gpu_uuids=(card(10),))
        assert (named.host_id, held(named)) == (second_host, [card(10)])
        launch(alice, "four", gpus="4")
        last = launch(alice, "last", gpus="1")
        assert (last.host_id, held(last)) == (second_host, [card(11)])

    def test_cards_of_two_hosts_are_not_taken_together(self, launch, alice, rack, see, second_host):
        see(Rack(2, first=10), second_host)
        error = refused(launch, alice, gpus="5")
        assert (error.facts["wanted"], error.facts["largest_free"]) == (5, 4)
        assert set(why(error).values()) == {"gpu_too_few"}


class TestNotOffered:
    """Each is the only card of the host."""

    @pytest.mark.parametrize(("gpu", "code"), [
        (Gpu(card(0), 0, MODEL, condition=Condition.LOST, fault=Reason("gpu_lost", {"gpu": "GPU 0", "detail": "…"})),
         "gpu_lost"),
        (Gpu(card(0), 0, MODEL, condition=Condition.FAULTY), "gpu_faulty"),
        (Gpu(card(0), 0, MODEL, condition=Condition.QUARANTINED), "gpu_quarantined"),
        (Gpu(card(0), 0, MODEL, mig_mode=MigMode.ENABLED), "gpu_mig_parent"),
        (Gpu(None, 0, MODEL, "0000:01:00.0"), "gpu_no_uuid"),
        (Gpu("0000-aaaa-orin", 0, "Orin"), "gpu_odd_uuid"),
    ])
    def test_says_why(self, launch, alice, see, gpu, code):
        see(Look(Inventory((gpu,)), {}, simulated=False))
        error = refused(launch, alice, gpus="1")
        assert why(error) == {gpu.uuid: code}
        assert (error.facts["largest_free"], error.facts["next_best"]) == (0, [])

    def test_busy_with_somebody_elses_work(self, launch, alice, see):
        rack = Rack(1)
        rack.busy = {card(0): Reason("gpu_busy", {"gpu": "GPU 0", "who": "python3 (process 4711)"})}
        see(rack)
        (found,) = refused(launch, alice, gpus="1").facts["why"]
        assert (found["code"], found["facts"]["who"]) == ("gpu_busy", "python3 (process 4711)")

    def test_vanished(self, launch, alice, see):
        rack = Rack(1)
        see(rack)
        rack.gone = {card(0)}
        see(rack)
        assert why(refused(launch, alice, gpu_uuids=(card(0),))) == {card(0): "gpu_vanished"}

    def test_taken(self, launch, alice, see):
        see(Rack(1))
        launch(alice, gpus="1")
        assert why(refused(launch, alice, gpus="1")) == {card(0): "gpu_taken"}

    def test_other_model(self, launch, alice, see):
        rack = Rack(2)
        rack.models = {card(0): OTHER}
        see(rack)
        launch(alice, gpu_uuids=(card(0),))
        found = why(refused(launch, alice, gpus="1", gpu_model=OTHER))
        assert found == {card(0): "gpu_taken", card(1): "gpu_other_model"}

    def test_host_that_is_silent(self, launch, alice, see, store, cast, now):
        see(Rack(1))
        with store.write() as session:
            session.get_one(Host, cast.host_id).unreachable_since = now
        assert why(refused(launch, alice, gpus="1")) == {card(0): "gpu_host_silent"}

    def test_mig_slices_are_offered_one_by_one(self, launch, alice, see, held):
        slices = tuple(f"MIG-{number:08d}-aaaa-bbbb-cccc-000000000001" for number in (1, 2))
        parts = tuple(MigSlice(number, uuid, "3g.40gb") for number, uuid in enumerate(slices))
        see(Look(Inventory((Gpu(card(0), 0, MODEL, mig_mode=MigMode.ENABLED, mig_slices=parts),)), {}, simulated=False))
        assert held(launch(alice, gpu_uuids=(slices[1],))) == [slices[1]]
        assert why(refused(launch, alice, gpus="2")) == {
            card(0): "gpu_mig_parent", slices[0]: "gpu_too_few", slices[1]: "gpu_taken"}

    def test_host_without_cards_has_none_to_give(self, launch, alice):
        error = refused(launch, alice, gpus="1")
        assert error.facts == {"wanted": 1, "largest_free": 0, "why": [], "next_best": []}


class TestNextBest:
    def offers(self, error: NoCapacity) -> list[tuple[str, list[str]]]:
        return [(offer["kind"], offer["uuids"]) for offer in error.facts["next_best"]]

    def test_others_like_the_named_ones_then_fewer_of_them(self, launch, alice, rack):
        launch(alice, gpu_uuids=(card(0),))
        error = refused(launch, alice, gpu_uuids=(card(0), card(1)))
        assert self.offers(error) == [("other_cards", [card(2), card(3)]), ("fewer", [card(1)])]

    def test_fewer(self, launch, alice, rack):
        launch(alice, gpus="2")
        error = refused(launch, alice, gpus="3")
        assert self.offers(error) == [("fewer", [card(2), card(3)])]
        assert error.facts["largest_free"] == 2

    def test_another_model(self, launch, alice, rack, see):
        rack.models = {card(0): OTHER, card(1): OTHER}
        see(rack)
        launch(alice, gpu_uuids=(card(0), card(1)))
        error = refused(launch, alice, gpus="2", gpu_model=OTHER)
        assert self.offers(error) == [("other_model", [card(2), card(3)])]

    def test_it_can_be_launched_as_it_is(self, launch, alice, rack, held, cast):
        launch(alice, gpu_uuids=(card(0),))
        offer = refused(launch, alice, gpu_uuids=(card(0),)).facts["next_best"][0]
        assert offer["host_id"] == cast.host_id
        assert held(launch(alice, "again", gpu_uuids=tuple(offer["uuids"]))) == offer["uuids"]


class TestProblems:
    @pytest.mark.parametrize(("typed", "field"), [
        ({"gpus": "two"}, "gpus"),
        ({"gpus": "-1"}, "gpus"),
        ({"gpus": "65"}, "gpus"),
        ({"gpus": "1.0"}, "gpus"),
        ({"gpus": "٢"}, "gpus"),
        ({"gpus": "9" * 5000}, "gpus"),
        ({"gpu_uuids": (card(0), card(0))}, "gpus"),
        ({"gpus": "3", "gpu_uuids": (card(0), card(1))}, "gpus"),
        ({"gpus": "0", "gpu_uuids": (card(0),)}, "gpus"),
        ({"gpu_uuids": (card(0), "GPU-nobody")}, "gpus"),
        ({"gpu_uuids": ("",)}, "gpus"),
        ({"gpus": "1", "gpu_model": "NVIDIA Imaginary"}, "gpu_model"),
    ])
    def test_names_its_field(self, launch, alice, rack, typed, field):
        with pytest.raises(InvalidInput) as caught:
            launch(alice, **typed)
        assert set(problems(caught)) == {field}
        assert len(problems(caught)[field]) < 300

    def test_cards_of_two_hosts(self, launch, alice, rack, see, second_host):
        see(Rack(1, first=10), second_host)
        with pytest.raises(InvalidInput) as caught:
            launch(alice, gpu_uuids=(card(0), card(10)))
        assert "different hosts" in problems(caught)["gpus"]

    def test_largest_number_is_no_problem_but_none_has_so_many(self, launch, alice, rack):
        assert refused(launch, alice, gpus="64").facts["wanted"] == 64

    def test_number_that_agrees_with_the_names_is_none(self, launch, alice, rack, held):
        assert len(held(launch(alice, gpus="2", gpu_uuids=(card(0), card(1))))) == 2

    def test_told_with_the_others(self, launch, alice, rack):
        with pytest.raises(InvalidInput) as caught:
            launch(alice, "Bad Name", gpus="many", memory="0.5")
        assert set(problems(caught)) == {"name", "memory", "gpus"}


class TestDriver:
    """An image's CUDA against a host's driver, before anything starts."""

    @pytest.mark.parametrize(("cuda", "driver"), [
        ("11.8", "450.80.02"), ("11.8", "520.61.05"), ("12.8", "570.86.15"), (None, "450.80.02"), ("12.8", None),
        ("13.0", "580.65.06"), ("14.0", "580.65.06"),
    ])
    def test_that_runs_or_is_not_known_not_to(self, launch, alice, rack, see, held, needs_cuda, cuda, driver):
        rack.driver_version = driver
        see(rack)
        needs_cuda(cuda)
        assert len(held(launch(alice, gpus="1"))) == 1

    @pytest.mark.parametrize(("cuda", "driver"), [("13.0", "570.86.15"), ("12.1", "520.61.05"), ("11.8", "440.33.01")])
    @pytest.mark.parametrize("typed", [{"gpus": "1"}, {"gpu_uuids": (card(0),)}])
    def test_that_is_too_old_is_refused_naming_both(self, launch, alice, rack, see, needs_cuda, cuda, driver, typed):
        rack.driver_version = driver
        see(rack)
        needs_cuda(cuda)
        with pytest.raises(InvalidInput) as caught:
            launch(alice, **typed)
        assert set(problems(caught)) == {"image"}
        assert cuda in problems(caught)["image"] and driver in problems(caught)["image"]

    def test_host_with_a_newer_one_is_taken_instead(self, launch, alice, rack, see, second_host, held, needs_cuda):
        rack.driver_version = "570.86.15"
        see(rack)
        see(Rack(1, first=10), second_host)
        needs_cuda("13.0")
        workspace = launch(alice, gpus="1")
        assert (workspace.host_id, held(workspace)) == (second_host, [card(10)])
        assert set(why(refused(launch, alice, gpus="1")).values()) == {"cuda_too_old", "gpu_taken"}

    def test_without_cards_nothing_is_asked_of_it(self, launch, alice, rack, see, needs_cuda):
        rack.driver_version = "440.33.01"
        see(rack)
        needs_cuda("13.0")
        assert launch(alice)
