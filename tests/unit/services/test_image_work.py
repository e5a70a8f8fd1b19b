"""What people ask of images: prepare, pull, delete, save as image; and that it can be ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from types import NoneType

import pytest
from sqlalchemy import select

from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.reasons import Reason
from webapp.domain.workspace import Phase
from webapp.errors import (
    Conflict,
    Forbidden,
    ImageBusy,
    ImageInUse,
    InvalidInput,
    NoHost,
    NotFound,
    NotFromRegistry,
    NotPrepared,
)
from webapp.services import images, operations, workspaces
from webapp.services.orders import LaunchRequest
from webapp.store.reads import launch as launching
from webapp.store.tables import HostImage, Image, Operation

BASE = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
DOCKERFILE = "FROM debian:12.11\nRUN apt-get update\n"


@pytest.fixture
def prepare(do, carol):
    def run(actor=carol, **given):
        return do(images.prepare, actor, **{"title": "Mine", "base": None, "dockerfile": None, "cuda_version": None,
                                            "with_jupyter": True, **given})
    return run


@pytest.fixture
def ran(launch, alice, seen):
    """A workspace of alice's that runs."""
    workspace = launch(alice)
    seen(workspace, Phase.RUNNING)
    return workspace


@pytest.fixture
def save(do, alice, ran):
    def run(actor=alice, **given):
        return do(images.save, actor, ran.id, **{"title": "With flash-attn", "team_id": None, **given})
    return run


@pytest.fixture
def saved(save, do, store, now):
    """An image that was saved and can be launched."""
    def run(**given) -> Image:
        operation = save(**given)
        do(operations.take, operation.id)
        with store.write() as session:
            session.get_one(Image, operation.image_id).reference = f"berth-lab1/saved:{operation.image_id}"
            assert operations.finish(session, operation.id, now=now)
        with store.read() as session:
            return session.get_one(Image, operation.image_id)
    return run


@pytest.fixture
def offered(store):
    def read(actor: Actor) -> set[str]:
        with store.read() as session:
            return {image.id for image in launching.options(session, str(actor.member_id)).images}
    return read


def fields(caught) -> set[str]:
    return {problem.field for problem in caught.value.problems}


class TestPrepare:
    def test_base_that_is_new_gets_an_entry_and_work(self, prepare, row, cast):
        operation = prepare(base=BASE, cuda_version="12.8")
        image = row(Image, operation.image_id)
        assert (image.title, image.base, image.reference) == ("Mine", BASE, None)
        assert (operation.kind, operation.host_id) == (OperationKind.IMAGE_PREPARE, cast.host_id)
        assert operation.arguments == {"with_jupyter": True, "cuda_version": "12.8"}

    def test_entry_of_the_base_is_taken(self, prepare, cast):
        assert prepare(base="example/full:1").image_id == cast.image_id

    def test_text_is_kept_with_its_entry(self, prepare, row):
        assert row(Image, prepare(dockerfile=DOCKERFILE).image_id).dockerfile == DOCKERFILE

    def test_asked_twice_it_is_done_once(self, prepare):
        assert prepare(base=BASE).id == prepare(base=BASE).id

    def test_deleted_entry_of_the_base_comes_back(self, prepare, store, cast, row, now):
        with store.write() as session:
            images.mark_deleted(session.get_one(Image, cast.image_id), now)
        operation = prepare(base="example/full:1", title="Again")
        image = row(Image, operation.image_id)
        assert (image.id, image.deleted_at, image.reference, image.title) == (cast.image_id, None, None, "Again")

    @pytest.mark.parametrize("given, expected", [
        ({}, {"base"}),
        ({"base": BASE, "dockerfile": DOCKERFILE}, {"base"}),
        ({"base": "x:latest", "title": "", "cuda_version": "new"}, {"base", "title", "cuda_version"}),
        ({"dockerfile": "FROM debian:12\nCOPY . /x\nVOLUME /y"}, {"dockerfile"}),
        ({"dockerfile": "   \n"}, {"base"}),
    ])
    def test_what_is_wrong_is_told_with_its_field(self, prepare, given, expected):
        with pytest.raises(InvalidInput) as caught:
            prepare(**given)
        assert fields(caught) == expected

    def test_it_is_for_administrators(self, prepare, alice, do, cast):
        with pytest.raises(Forbidden):
            prepare(alice, base=BASE)
        with pytest.raises(Forbidden):
            do(images.prepare_again, alice, cast.image_id)

    def test_again_builds_what_the_entry_says(self, do, carol, cast):
        operation = do(images.prepare_again, carol, cast.slim_image_id)
        assert operation.arguments == {"with_jupyter": False, "cuda_version": None}

    def test_ready_image_has_nothing_to_prepare(self, do, carol):
        ready = do(images.add, carol, title="Ready", reference="ghcr.io/x/y:1", base=None, cuda_version=None,
                   has_jupyter=True)
        with pytest.raises(NotPrepared):
            do(images.prepare_again, carol, ready.id)


class TestPull:
    def test_base_or_reference_is_pulled_on_a_host(self, do, carol, cast):
        operation = do(images.pull, carol, cast.image_id)
        assert (operation.kind, operation.image_id, operation.host_id) == (
            OperationKind.IMAGE_PULL, cast.image_id, cast.host_id)

    def test_asked_twice_it_is_done_once_also_while_it_runs(self, do, carol, cast):
        first = do(images.pull, carol, cast.image_id)
        do(operations.take, first.id)
        assert do(images.pull, carol, cast.image_id).id == first.id

    def test_two_administrators_at_once_ask_for_one(self, store, carol, cast, now):
        def ask(_: int) -> str:
            with store.write() as session:
                return images.pull(session, carol, cast.image_id, now=now).id

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(ask, range(8)))) == 1

    def test_after_a_cancel_it_is_asked_for_anew(self, do, carol, cast):
        first = do(images.pull, carol, cast.image_id)
        do(operations.take, first.id)
        do(operations.cancel, carol, first.id)
        assert do(images.pull, carol, cast.image_id).id != first.id

    def test_what_was_made_here_cannot_be_pulled(self, do, carol, prepare, saved):
        for image_id in (prepare(dockerfile=DOCKERFILE).image_id, saved().id):
            with pytest.raises(NotFromRegistry):
                do(images.pull, carol, image_id)

    def test_while_it_is_prepared_it_is_not_pulled(self, do, carol, cast):
        do(images.prepare_again, carol, cast.image_id)
        with pytest.raises(ImageBusy):
            do(images.pull, carol, cast.image_id)

    def test_unknown_host_is_said(self, do, carol, cast):
        with pytest.raises(NoHost):
            do(images.pull, carol, cast.image_id, host_id="no")

    def test_it_is_for_administrators(self, do, alice, cast):
        with pytest.raises(Forbidden):
            do(images.pull, alice, cast.image_id)


class TestDelete:
    def test_image_in_use_names_whose(self, do, carol, launch, alice, bob, cast):
        launch(alice), launch(alice, "run-2"), launch(bob)
        with pytest.raises(ImageInUse) as caught:
            do(images.delete, carol, cast.image_id)
        assert (caught.value.facts["count"], caught.value.facts["owners"]) == (3, "Alice, Bob")

    def test_removed_workspaces_do_not_use_it(self, do, carol, launch, alice, cast):
        do(workspaces.remove, alice, launch(alice).id)
        assert do(images.delete, carol, cast.image_id).kind == OperationKind.IMAGE_DELETE

    def test_from_then_on_nobody_launches_it(self, do, carol, cast, launch, alice, offered):
        do(images.delete, carol, cast.image_id)
        assert cast.image_id not in offered(alice)
        with pytest.raises(InvalidInput) as caught:
            launch(alice)
        assert fields(caught) == {"image"}

    def test_deleted_one_is_in_no_list_and_frees_its_reference(self, do, carol, store, cast, now, offered, alice):
        with store.write() as session:
            images.mark_deleted(session.get_one(Image, cast.image_id), now)
        assert cast.image_id not in offered(alice)
        with pytest.raises(NotFound):
            do(images.withdraw, carol, cast.image_id)
        again = do(images.add, carol, title="Again", reference="berth/workspace:full-1", base="example/full:1",
                   cuda_version=None, has_jupyter=True)
        assert (again.id, again.deleted_at) == (cast.image_id, None)

    def test_seed_that_was_deleted_does_not_come_back(self, do, store, now):
        first = do(images.seed)[0]
        with store.write() as session:
            images.mark_deleted(session.get_one(Image, first.id), now)
        assert do(images.seed) == []

    def test_while_something_is_done_with_it_it_stays(self, do, carol, cast):
        do(images.pull, carol, cast.image_id)
        with pytest.raises(ImageBusy):
            do(images.delete, carol, cast.image_id)

    def test_saved_one_is_deleted_by_its_owner_or_an_administrator(self, do, saved, alice, bob, carol, dave, cast):
        own, teams = saved(), saved(team_id=cast.team_id, title="Ours")
        with pytest.raises(NotFound):
            do(images.delete, dave, own.id)
        with pytest.raises(NotFound):
            do(images.delete, bob, teams.id)
        assert do(images.delete, alice, own.id).host_id == cast.host_id
        assert do(images.delete, carol, teams.id)

    def test_launch_at_the_same_moment_wins_or_loses_whole(self, store, do, carol, alice, cast, house, now):
        """Never a workspace of an image that is being deleted."""
        request = LaunchRequest(name="run-1", image_id=cast.image_id)
        together = Barrier(2)

        def delete():
            with store.write() as session:
                together.wait(30)
                return images.delete(session, carol, cast.image_id, now=now)

        def launch():
            together.wait(30)
            with store.write() as session:
                return workspaces.launch(session, alice, request, house=house, now=now)

        with ThreadPoolExecutor(2) as pool:
            outcomes = [each.exception() for each in [pool.submit(delete), pool.submit(launch)]]
        assert [type(outcome) for outcome in outcomes] in ([NoneType, InvalidInput], [ImageInUse, NoneType])

    def test_entries_of_the_house_are_for_administrators(self, do, alice, cast):
        with pytest.raises(Forbidden):
            do(images.delete, alice, cast.image_id)


class TestSave:
    def test_entry_is_there_and_not_launchable_until_it_is_made(self, save, row, alice, offered, cast):
        operation = save()
        image = row(Image, operation.image_id)
        assert (image.owner_id, image.team_id, image.host_id, image.reference, image.has_jupyter) == (
            alice.member_id, None, cast.host_id, None, True)
        assert operation.workspace_id == image.saved_from
        assert image.id not in offered(alice)

    def test_launch_of_one_that_is_being_saved_says_so(self, save, launch, alice):
        with pytest.raises(InvalidInput, match="still being saved"):
            launch(alice, "run-2", image_id=save().image_id)

    def test_own_one_is_offered_to_its_owner_alone(self, saved, offered, alice, bob, carol, launch):
        image = saved()
        assert [image.id in offered(each) for each in (alice, bob, carol)] == [True, False, False]
        assert launch(alice, "run-2", image_id=image.id).image_reference == image.reference
        with pytest.raises(InvalidInput, match="no such image"):
            launch(bob, image_id=image.id)

    def test_one_for_a_team_is_offered_to_the_team(self, saved, offered, alice, bob, dave, launch, cast):
        image = saved(team_id=cast.team_id)
        assert [image.id in offered(each) for each in (alice, bob, dave)] == [True, True, False]
        assert launch(bob, image_id=image.id).image_id == image.id

    def test_it_is_launched_on_the_host_that_has_it(self, saved, launch, alice, store, cast, second_host):
        image = saved()
        with store.write() as session:
            session.get_one(Image, image.id).host_id = second_host
        assert launch(alice, "run-2", image_id=image.id).host_id == second_host
        assert launch(alice, "run-3").host_id == cast.host_id

    def test_only_its_owner_saves(self, save, bob, carol):
        with pytest.raises(Forbidden):
            save(carol)
        with pytest.raises(NotFound):
            save(bob)
        with pytest.raises(Forbidden):
            save(Actor.house())

    def test_team_must_be_ones_own(self, do, carol, launch, dave, seen, cast):
        workspace = launch(dave)
        seen(workspace, Phase.RUNNING)
        with pytest.raises(InvalidInput) as caught:
            do(images.save, dave, workspace.id, title="", team_id=cast.team_id)
        assert fields(caught) == {"team", "title"}

    @pytest.mark.parametrize("phase", [Phase.PULLING, Phase.STARTING, Phase.MOVING, Phase.UNKNOWN, Phase.STOPPING])
    def test_what_is_on_its_way_cannot_be_saved(self, save, seen, ran, phase):
        seen(ran, phase)
        with pytest.raises(Conflict):
            save()

    def test_pressed_twice_it_is_saved_once(self, save):
        assert save().id == save().id
        assert save(title="Another").id != save().id

    def test_without_an_image_the_entry_goes(self, save, do, store, alice, now):
        cancelled, failed, late = save(title="One"), save(title="Two"), save(title="Three")
        assert do(operations.cancel, alice, cancelled.id)
        do(operations.take, failed.id)
        do(operations.finish, failed.id, reason=Reason("disk_full", {"host": "gpu1", "detail": "no space"}))
        do(operations.expire, now=now + timedelta(hours=2))
        with store.read() as session:
            assert session.scalars(select(Image.id).where(Image.saved_from.is_not(None))).all() == []
            kept = session.scalars(select(Operation)).all()
            assert {each.id for each in kept} == {cancelled.id, failed.id, late.id}
            assert {each.image_id for each in kept} == {None}

    def test_saved_images_stay_when_another_save_fails(self, saved, save, do, row, alice):
        image = saved()
        do(operations.cancel, alice, save(title="Another").id)
        assert row(Image, image.id).reference


class TestCancel:
    @pytest.fixture
    def pull(self, do, carol, cast):
        return do(images.pull, carol, cast.image_id)

    def test_what_waits_ends_at_once(self, do, carol, pull, row):
        assert do(operations.cancel, carol, pull.id)
        assert row(Operation, pull.id).state == OperationState.CANCELLED
        assert not do(operations.take, pull.id)

    def test_what_runs_is_told(self, do, carol, pull, row, now):
        do(operations.take, pull.id)
        assert do(operations.cancel, carol, pull.id)
        assert do(operations.cancel, carol, pull.id, now=now + timedelta(seconds=9))
        assert (row(Operation, pull.id).state, row(Operation, pull.id).cancel_asked_at) == (OperationState.RUNNING, now)

    def test_what_has_ended_is_not_cancelled(self, do, carol, pull):
        do(operations.take, pull.id)
        do(operations.finish, pull.id)
        assert not do(operations.cancel, carol, pull.id)

    def test_cancelled_one_ends_when_the_agent_starts_anew(self, do, store, carol, pull, row):
        do(operations.take, pull.id)
        do(operations.cancel, carol, pull.id)
        with store.write() as session:
            assert operations.requeue_running(session) == 0
        assert row(Operation, pull.id).state == OperationState.CANCELLED

    def test_keys_are_written_in_any_case(self, do, alice, ran):
        asked = do(operations.request, alice, OperationKind.WORKSPACE_KEYS, workspace_id=ran.id, arguments={})
        assert not do(operations.cancel, alice, asked.id)

    def test_strangers_cancel_nothing(self, do, bob, pull, save):
        for operation_id in (pull.id, save().id, "no"):
            with pytest.raises(NotFound):
                do(operations.cancel, bob, operation_id)


def test_what_a_host_has_goes_with_an_unsaved_entry(save, do, store, alice, cast, now):
    operation = save()
    with store.write() as session:
        session.add(HostImage(host_id=cast.host_id, image_id=operation.image_id, engine_id="sha256:0", size_bytes=1,
                              seen_at=now))
    assert do(operations.cancel, alice, operation.id)
