from dataclasses import replace

import pytest
from sqlalchemy import func, select

from webapp.domain.actor import Actor
from webapp.domain.sizes import GIB, MIB
from webapp.domain.workspace import Desired, Health, Phase, StepName
from webapp.errors import Forbidden, InvalidInput, NoHost
from webapp.services import images, keys, orders, teams, volumes, workspaces
from webapp.services.orders import LaunchRequest
from webapp.store.tables import Event, Host, PortClaim, Workspace, WorkspaceMount, WorkspaceSecret


@pytest.fixture
def volume(do, carol, cast):
    """A new volume of the team vision."""
    def create(name: str = "imagenet", **typed):
        return do(volumes.create_volume, carol, name=name, roots=(), **{
            "team_id": cast.team_id, "host_folder": None, "target": None, "read_only": False, **typed})
    return create


def problems(caught) -> dict[str, str]:
    return {problem.field: str(problem) for problem in caught.value.problems}


def test_launch_leaves_a_row_that_the_agent_can_take_up(launch, alice, cast):
    workspace = launch(alice, cpus="1.5", memory="4GiB")
    assert (workspace.desired, workspace.generation, workspace.observed_generation) == (Desired.RUNNING, 1, 0)
    assert (workspace.phase, workspace.health, workspace.revision) == (Phase.PULLING, Health.UNKNOWN, 0)
    assert (workspace.cpu_millis, workspace.memory_bytes, workspace.shm_bytes) == (1500, 4 * GIB, GIB)
    assert workspace.image_reference == "berth/workspace:full-1" and workspace.host_id == cast.host_id
    assert [step["name"] for step in workspace.progress["steps"]] == [
        step for step in StepName if step not in (StepName.GPUS, StepName.KEPT)]


def test_empty_limits_are_the_houses_defaults(launch, alice, house):
    workspace = launch(alice)
    assert (workspace.cpu_millis, workspace.memory_bytes) == (house.default_cpu_millis, house.default_memory_bytes)
    assert workspace.shm_bytes == house.default_memory_bytes // 4


def test_default_shm_is_whole_mebibytes_and_never_below_dockers(launch, alice):
    assert launch(alice, "a", memory="1022MiB").shm_bytes == 255 * MIB
    assert launch(alice, "b", memory="256MiB").shm_bytes == 64 * MIB


def test_everything_wrong_is_told_at_once(launch, alice):
    with pytest.raises(InvalidInput) as caught:
        launch(alice, "Bad Name", image_id="no", cpus="0", memory="0.5", shm="1GiB", mounts=(("no", False),))
    assert set(problems(caught)) == {"name", "image", "cpus", "memory", "mounts"}


@pytest.mark.parametrize("typed, field", [
    ({"cpus": "8.1"}, "cpus"), ({"memory": "33GiB"}, "memory"), ({"memory": "255MiB"}, "memory"),
    ({"memory": "1GiB", "shm": "2GiB"}, "shm"), ({"shm": "32MiB"}, "shm"), ({"shm": "0"}, "shm"),
])
def test_limits_outside_the_houses_are_refused(launch, alice, typed, field):
    with pytest.raises(InvalidInput) as caught:
        launch(alice, **typed)
    assert set(problems(caught)) == {field}


def test_refused_launch_leaves_nothing(launch, alice, store):
    with pytest.raises(InvalidInput):
        launch(alice, "Bad Name")
    with store.read() as session:
        for table in (Workspace, PortClaim, WorkspaceSecret):
            assert session.scalar(select(func.count()).select_from(table)) == 0


def test_live_name_is_refused_with_a_free_one(launch, alice):
    launch(alice, "run-1")
    with pytest.raises(InvalidInput) as caught:
        launch(alice, "run-1")
    assert "run-2" in problems(caught)["name"]


def test_two_people_may_use_one_name(launch, alice, bob):
    assert launch(alice).name == launch(bob).name


def test_name_is_free_again_once_removal_was_asked(launch, do, alice):
    do(workspaces.remove, alice, launch(alice).id)
    assert launch(alice)


def test_name_lost_in_a_race_is_told_like_any_other(launch, alice, monkeypatch):
    """As on PostgreSQL, where somebody may be faster between the look and the insert: the index decides."""
    launch(alice)
    monkeypatch.setattr(orders, "_check_name", lambda *_: None)
    with pytest.raises(InvalidInput) as caught:
        launch(alice)
    assert "run-2" in problems(caught)["name"]


def test_image_that_is_not_prepared_says_how(launch, do, alice):
    seed = do(images.seed)[0]
    with pytest.raises(InvalidInput) as caught:
        launch(alice, image_id=seed.id)
    assert f"berth image prepare {seed.base}" in problems(caught)["image"]


def test_withdrawn_image_is_refused_but_its_workspaces_start(launch, do, alice, carol, cast):
    workspace = launch(alice)
    do(images.withdraw, carol, cast.image_id)
    with pytest.raises(InvalidInput) as caught:
        launch(alice, "another")
    assert set(problems(caught)) == {"image"}
    do(workspaces.stop, alice, workspace.id)
    assert do(workspaces.start, alice, workspace.id).desired == Desired.RUNNING


def test_ssh_only_image_needs_a_key(launch, do, alice, cast, public_key, store):
    with pytest.raises(InvalidInput) as caught:
        launch(alice, image_id=cast.slim_image_id)
    assert set(problems(caught)) == {"ssh_keys"}
    do(keys.add_keys, alice, member_id=alice.member_id, text=public_key(), title="")
    workspace = launch(alice, image_id=cast.slim_image_id)
    with store.read() as session:
        assert session.scalars(select(PortClaim.service)).all() == ["ssh"]
    assert {step["state"] for step in workspace.progress["steps"] if step["name"] == "jupyter"} == {"skipped"}


def test_mounts_are_kept_as_asked(launch, alice, volume, row):
    one, two = volume("one"), volume("two", read_only=True)
    workspace = launch(alice, mounts=((one.id, False), (two.id, True)))
    assert not row(WorkspaceMount, (workspace.id, one.id)).read_only
    assert row(WorkspaceMount, (workspace.id, two.id)).read_only


def test_read_only_volume_is_not_mounted_for_writing(launch, alice, volume):
    with pytest.raises(InvalidInput) as caught:
        launch(alice, mounts=((volume(read_only=True).id, False),))
    assert "read-only" in problems(caught)["mounts"]


def test_volume_of_another_team_looks_like_none(launch, dave, alice, volume):
    messages = []
    for volume_id in (volume().id, "no"):
        with pytest.raises(InvalidInput) as caught:
            launch(dave, mounts=((volume_id, True),))
        messages.append(problems(caught))
    assert messages[0] == messages[1]


def test_volume_twice_is_refused(launch, alice, volume):
    one = volume()
    with pytest.raises(InvalidInput):
        launch(alice, mounts=((one.id, True), (one.id, False)))


def test_nested_places_of_two_teams_are_refused_together(launch, do, alice, carol, volume):
    speech = do(teams.create_team, carol, name="speech")
    do(teams.add_member, carol, team_id=speech.id, member_id=alice.member_id)
    outer, inner = volume("outer"), volume("inner", team_id=speech.id, target="/data/outer/inner")
    assert launch(alice, mounts=((inner.id, True),))
    with pytest.raises(InvalidInput) as caught:
        launch(alice, "both", mounts=((outer.id, True), (inner.id, True)))
    assert set(problems(caught)) == {"mounts"}


def test_command_line_is_nobody_who_launches(launch):
    with pytest.raises(Forbidden):
        launch(Actor.house())


def test_house_without_a_host_refuses(do, store, alice, cast, house):
    with store.write() as session:
        session.delete(session.get_one(Host, cast.host_id))
    with pytest.raises(NoHost):
        do(workspaces.launch, alice, LaunchRequest("run-1", cast.image_id), house=house)


def test_host_that_answers_is_preferred(store, do, launch, alice, cast, now):
    with store.write() as session:
        session.get_one(Host, cast.host_id).unreachable_since = now
        session.add(Host(id="h2", name="gpu2", engine_url="unix:///other", created_at=now))
    assert launch(alice).host_id == "h2"


def test_event_says_who_and_from_where(store, launch, alice):
    workspace = launch(replace(alice, address="192.0.2.7"))
    with store.read() as session:
        event = session.scalars(select(Event).where(Event.action == "workspace.launch")).one()
    assert (event.actor_id, event.address, event.object_id) == (alice.member_id, "192.0.2.7", workspace.id)


def test_secrets_are_in_no_event_and_not_on_the_workspace(store, launch, alice):
    workspace = launch(alice)
    with store.read() as session:
        token = session.get_one(WorkspaceSecret, workspace.id).jupyter_token
        seen = [event.details for event in session.scalars(select(Event))] + [vars(workspace)]
    assert token not in str(seen)
