"""Start, stop, remove, open: who may, and what each adds to the generation."""

import pytest
from sqlalchemy import select

from webapp.domain.actor import Actor
from webapp.domain.workspace import Desired, Phase
from webapp.errors import Conflict, Forbidden, NotFound
from webapp.services import workspaces
from webapp.store.tables import Event, Workspace


@pytest.fixture
def workspace(launch, alice):
    return launch(alice)


def intent(workspace) -> tuple[str, int]:
    return workspace.desired, workspace.generation


def test_each_intent_is_one_more_generation(do, alice, workspace):
    assert intent(do(workspaces.stop, alice, workspace.id)) == (Desired.STOPPED, 2)
    assert intent(do(workspaces.start, alice, workspace.id)) == (Desired.RUNNING, 3)
    assert intent(do(workspaces.remove, alice, workspace.id)) == (Desired.REMOVED, 4)


def test_asked_twice_is_answered_the_same(do, alice, workspace):
    for service, expected in ((workspaces.start, 1), (workspaces.stop, 2), (workspaces.stop, 2),
                              (workspaces.remove, 3), (workspaces.remove, 3)):
        assert do(service, alice, workspace.id).generation == expected


def test_last_accepted_intent_wins(do, alice, workspace, row):
    for service in (workspaces.stop, workspaces.start, workspaces.stop):
        do(service, alice, workspace.id)
    assert intent(row(Workspace, workspace.id)) == (Desired.STOPPED, 4)


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.STOPPED])
def test_start_tries_again_what_ended_by_itself(do, alice, workspace, seen, phase):
    seen(workspace, phase)
    assert intent(do(workspaces.start, alice, workspace.id)) == (Desired.RUNNING, 2)
    assert intent(do(workspaces.start, alice, workspace.id)) == (Desired.RUNNING, 2)     # not yet looked at


def test_start_of_a_running_one_changes_nothing(do, alice, workspace, seen):
    seen(workspace, Phase.RUNNING)
    assert intent(do(workspaces.start, alice, workspace.id)) == (Desired.RUNNING, 1)


def test_intent_leaves_what_the_agent_saw_alone(do, alice, workspace, seen, row):
    seen(workspace, Phase.RUNNING, container_id="c1", revision=1)
    do(workspaces.stop, alice, workspace.id)
    after = row(Workspace, workspace.id)
    assert (after.phase, after.container_id, after.observed_generation) == (Phase.RUNNING, "c1", 1)


@pytest.mark.parametrize("service", [workspaces.start, workspaces.stop])
def test_removal_is_final(do, alice, workspace, gone, service):
    do(workspaces.remove, alice, workspace.id)
    with pytest.raises(Conflict) as caught:
        do(service, alice, workspace.id)
    assert caught.value.facts == {"phase": Phase.REMOVING}
    gone(workspace)
    with pytest.raises(Conflict) as caught:
        do(service, alice, workspace.id)
    assert caught.value.facts == {"phase": Phase.REMOVED}


@pytest.mark.parametrize("service", [workspaces.start, workspaces.stop, workspaces.remove, workspaces.reveal])
def test_strangers_workspace_is_not_there(do, bob, workspace, service):
    with pytest.raises(NotFound):
        do(service, bob, workspace.id)
    with pytest.raises(NotFound):
        do(service, bob, "no-such-id")


@pytest.mark.parametrize("service", [workspaces.stop, workspaces.remove])
def test_admin_acts_on_a_members_workspace(do, carol, workspace, service, store):
    do(service, carol, workspace.id)
    with store.read() as session:
        event = session.scalars(select(Event).order_by(Event.id.desc()).limit(1)).one()
    assert (event.actor_id, event.object_id) == (carol.member_id, workspace.id)


def test_owner_gets_the_way_in(do, alice, workspace, seen, store):
    seen(workspace, Phase.RUNNING)
    connection = do(workspaces.reveal, alice, workspace.id)
    assert (connection.ssh_port, connection.jupyter_port) == (20000, 20001)
    assert connection.jupyter_token and connection.jupyter_token not in repr(connection)
    with store.read() as session:
        event = session.scalars(select(Event).where(Event.action == "workspace.open")).one()
    assert connection.jupyter_token not in str(event.details)


def test_token_stays_over_stop_and_start(do, alice, workspace, seen):
    seen(workspace, Phase.RUNNING)
    before = do(workspaces.reveal, alice, workspace.id)
    do(workspaces.stop, alice, workspace.id)
    do(workspaces.start, alice, workspace.id)
    assert do(workspaces.reveal, alice, workspace.id) == before


@pytest.mark.parametrize("who", ["carol", "house"])
def test_nobody_else_gets_the_way_in(do, carol, workspace, seen, who):
    seen(workspace, Phase.RUNNING)
    with pytest.raises(Forbidden):
        do(workspaces.reveal, carol if who == "carol" else Actor.house(), workspace.id)


def test_way_into_one_that_does_not_run_is_a_conflict(do, alice, workspace):
    with pytest.raises(Conflict):
        do(workspaces.reveal, alice, workspace.id)


def test_removed_workspace_reveals_nothing(do, alice, workspace, gone):
    do(workspaces.remove, alice, workspace.id)
    gone(workspace)
    with pytest.raises(Conflict):
        do(workspaces.reveal, alice, workspace.id)
