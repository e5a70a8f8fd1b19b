import pytest

from webapp.domain.workspace import Desired
from webapp.errors import Forbidden, InvalidInput, NotFound
from webapp.services import teams, volumes, workspaces
from webapp.store.tables import Workspace


@pytest.fixture
def volume(do, carol, cast):
    return do(volumes.create_volume, carol, name="imagenet", team_id=cast.team_id, host_folder=None, target=None,
              read_only=False, roots=())


def test_gids_are_given_in_order(do, carol):
    first, second = (do(teams.create_team, carol, name=name) for name in ("speech", "robots"))
    assert second.gid == first.gid + 1


@pytest.mark.parametrize("name", ["vision", "alice", "docker", "X"])
def test_name_taken_or_unusable_is_refused(do, carol, name):
    with pytest.raises(InvalidInput) as caught:
        do(teams.create_team, carol, name=name)
    assert [problem.field for problem in caught.value.problems] == ["name"]


def test_member_makes_no_team(do, alice):
    with pytest.raises(Forbidden):
        do(teams.create_team, alice, name="speech")


def test_adding_twice_changes_nothing(do, carol, cast, alice):
    do(teams.add_member, carol, team_id=cast.team_id, member_id=alice.member_id)


def test_unknown_person_or_team_is_not_found(do, carol, cast, alice):
    for ids in ({"team_id": "no", "member_id": alice.member_id}, {"team_id": cast.team_id, "member_id": "no"}):
        with pytest.raises(NotFound):
            do(teams.add_member, carol, **ids)


def test_leaving_a_team_stops_what_has_its_data(do, carol, cast, alice, launch, volume, row):
    mounting, other = launch(alice, "a", mounts=((volume.id, False),)), launch(alice, "b")
    stopped = do(teams.remove_member, carol, team_id=cast.team_id, member_id=alice.member_id)
    assert [workspace.id for workspace in stopped] == [mounting.id]
    assert row(Workspace, mounting.id).desired == Desired.STOPPED
    assert row(Workspace, other.id).desired == Desired.RUNNING


def test_workspace_with_data_of_a_former_team_does_not_start(do, carol, cast, alice, launch, volume):
    workspace = launch(alice, mounts=((volume.id, False),))
    do(teams.remove_member, carol, team_id=cast.team_id, member_id=alice.member_id)
    with pytest.raises(InvalidInput) as caught:
        do(workspaces.start, alice, workspace.id)
    assert "imagenet" in str(caught.value)
