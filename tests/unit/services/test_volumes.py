from pathlib import Path

import pytest

from webapp.errors import Forbidden, InvalidInput, NotFound
from webapp.services import teams, volumes, workspaces
from webapp.store.tables import Volume

ROOTS = (Path("/srv/data"),)


@pytest.fixture
def create(do, carol, cast):
    def run(name: str, actor=carol, **typed):
        return do(volumes.create_volume, actor, name=name, roots=ROOTS, **{
            "team_id": cast.team_id, "host_folder": None, "target": None, "read_only": False, **typed})
    return run


def fields(caught) -> list[str]:
    return sorted({problem.field for problem in caught.value.problems})


def test_volume_appears_under_data_by_default(create):
    assert create("imagenet").target == "/data/imagenet"


def test_everything_wrong_is_told_at_once(create):
    with pytest.raises(InvalidInput) as caught:
        create("Bad Name", team_id="no", host_folder="/etc", target="/usr/lib")
    assert fields(caught) == ["host_folder", "name", "target", "team_id"]


def test_bad_name_is_one_problem(create):
    with pytest.raises(InvalidInput) as caught:
        create("../x")
    assert fields(caught) == ["name"]


@pytest.mark.parametrize("folder", ["/srv/data", "/srv/data/a/../../etc", "/home/x", "/srv/data/a/b", "/srv/data/a"])
def test_folder_outside_the_roots_or_nested_is_refused(create, folder):
    create("a", host_folder="/srv/data/a")
    with pytest.raises(InvalidInput) as caught:
        create("b", host_folder=folder)
    assert fields(caught) == ["host_folder"]


def test_folder_around_another_volume_is_refused(create):
    create("a", host_folder="/srv/data/a/b")
    with pytest.raises(InvalidInput):
        create("b", host_folder="/srv/data/a")


def test_place_inside_anothers_of_the_same_team_is_refused(create):
    create("a")
    with pytest.raises(InvalidInput) as caught:
        create("b", target="/data/a/b")
    assert fields(caught) == ["target"]


def test_name_is_unique(create):
    create("a")
    with pytest.raises(InvalidInput):
        create("a", target="/data/other")


def test_member_creates_no_volume(create, alice):
    with pytest.raises(Forbidden):
        create("a", actor=alice)


def test_volume_is_kept_while_a_workspace_mounts_it(create, do, carol, alice, launch, gone, store):
    volume = create("a")
    workspace = launch(alice, mounts=((volume.id, False),))
    do(workspaces.remove, alice, workspace.id)
    with pytest.raises(InvalidInput) as caught:
        do(volumes.remove_volume, carol, volume.id)
    assert "run-1" in str(caught.value)
    gone(workspace)
    do(volumes.remove_volume, carol, volume.id)
    with store.read() as session:
        assert session.get(Volume, volume.id) is None


def test_unknown_volume_is_not_found(do, carol):
    with pytest.raises(NotFound):
        do(volumes.remove_volume, carol, "no")


def test_only_volumes_of_own_teams_are_available(create, do, carol, store, alice, dave):
    mine = create("mine")
    create("other", team_id=do(teams.create_team, carol, name="speech").id)
    with store.read() as session:
        assert [volume.id for volume in volumes.available_to(session, alice.member_id)] == [mine.id]
        assert volumes.available_to(session, dave.member_id) == []
