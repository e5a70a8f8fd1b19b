import pytest

from webapp.domain.actor import Actor
from webapp.errors import Forbidden, InvalidInput, NotFound
from webapp.services import images
from webapp.store.tables import Image

BASE = images.SEEDS[0][1]


def test_seeds_are_added_once_and_are_not_prepared(do):
    assert [image.reference for image in do(images.seed)] == [None, None, None]
    assert do(images.seed) == []


def test_withdrawn_seed_does_not_come_back(do, carol, row):
    first = do(images.seed)[0]
    do(images.withdraw, carol, first.id)
    assert do(images.seed) == []
    assert row(Image, first.id).withdrawn_at


def test_prepared_seed_becomes_launchable(do, row):
    first = do(images.seed)[0]
    prepared = do(images.register_prepared, Actor.house(), base=BASE, title="ignored", reference="berth/workspace:x-1",
                  cuda_version="12.8", has_jupyter=True)
    assert prepared.id == first.id
    assert row(Image, first.id).reference == "berth/workspace:x-1"
    assert row(Image, first.id).title == first.title


def test_base_that_is_new_gets_an_entry(do, cast, row):
    image = do(images.register_prepared, Actor.house(), base="berth-base:1", title="Debian",
               reference="berth/workspace:d-1", cuda_version=None, has_jupyter=True)
    assert row(Image, image.id).position > row(Image, cast.slim_image_id).position


def test_preparing_anew_replaces_the_reference(do, row):
    first, second = (
        do(images.register_prepared, Actor.house(), base="b:1", title="B", reference=f"berth/workspace:b-{n}",
           cuda_version=None, has_jupyter=True) for n in (1, 2))
    assert first.id == second.id and row(Image, first.id).reference == "berth/workspace:b-2"


def test_reference_of_another_entry_is_refused(do, carol, cast):
    do(images.seed)
    with pytest.raises(InvalidInput) as caught:
        do(images.register_prepared, carol, base=BASE, title="X", reference="berth/workspace:full-1", cuda_version=None,
           has_jupyter=True)
    assert [problem.field for problem in caught.value.problems] == ["reference"]


def test_everything_wrong_with_an_entry_is_told_at_once(do, carol):
    with pytest.raises(InvalidInput) as caught:
        do(images.add, carol, title="", reference="x:latest", base="UPPER:1", cuda_version="twelve", has_jupyter=True)
    assert {problem.field for problem in caught.value.problems} == {"base", "cuda_version", "reference", "title"}


def test_entry_needs_an_image(do, carol):
    with pytest.raises(InvalidInput) as caught:
        do(images.add, carol, title="Empty", reference="", base=None, cuda_version="", has_jupyter=True)
    assert [problem.field for problem in caught.value.problems] == ["reference"]


def test_two_spellings_of_one_image_are_one(do, carol):
    with pytest.raises(InvalidInput):
        do(images.add, carol, title="Again", reference="docker.io/berth/workspace:full-1", base=None, cuda_version=None,
           has_jupyter=True)


def test_member_changes_nothing_in_the_catalogue(do, alice, cast):
    with pytest.raises(Forbidden):
        do(images.withdraw, alice, cast.image_id)
    with pytest.raises(Forbidden):
        do(images.add, alice, title="A", reference="a:1", base=None, cuda_version=None, has_jupyter=True)


def test_withdrawn_image_can_be_offered_again(do, carol, cast, row):
    do(images.withdraw, carol, cast.image_id)
    do(images.offer_again, carol, cast.image_id)
    assert row(Image, cast.image_id).withdrawn_at is None


def test_unknown_image_is_not_found(do, carol):
    with pytest.raises(NotFound):
        do(images.withdraw, carol, "no")
