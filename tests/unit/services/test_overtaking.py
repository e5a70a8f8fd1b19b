"""On PostgreSQL a transaction may begin while another has read and written and not committed yet.

`overtake(first, second)` lets it, and gives what became of the second: on SQLite it could not even begin.
"""

from collections.abc import Callable
from typing import Any

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select, text

from webapp.domain.operation import OperationKind
from webapp.domain.workspace import Desired, Phase
from webapp.errors import Forbidden, InvalidInput, NotFound
from webapp.services import (
    hosts,
    images,
    keys,
    observations,
    operations,
    passwords,
    people,
    ports,
    teams,
    volumes,
    workspaces,
)
from webapp.services.orders import LaunchRequest
from webapp.store.tables import Host, HostHome, Image, Invite, Member, Operation, PortClaim, Role, Workspace

PASSWORD = "correct horse battery"     # of everybody in the cast

pytestmark = pytest.mark.postgresql


def person(name: str, now, role: Role = Role.MEMBER, **changes: Any) -> dict[str, Any]:
    return {"username": name, "display_name": name.title(), "password": PASSWORD, "role": role, "now": now, **changes}


class TestPeople:
    def test_two_administrators_cannot_demote_each_other(self, overtake, do, carol, now):
        erin = do(people.create_member, carol, **person("erin", now, Role.ADMIN))
        second = overtake(lambda s: people.set_role(s, carol, erin.id, role=Role.MEMBER, now=now),
                          lambda s: people.set_role(s, carol, carol.member_id, role=Role.MEMBER, now=now))
        assert isinstance(second.error, InvalidInput)

    def test_two_administrators_cannot_both_be_deactivated(self, overtake, do, carol, now):
        erin = do(people.create_member, carol, **person("erin", now, Role.ADMIN))
        second = overtake(lambda s: people.deactivate_member(s, carol, erin.id, now=now),
                          lambda s: people.deactivate_member(s, carol, carol.member_id, now=now))
        assert isinstance(second.error, InvalidInput)

    def test_name_is_given_once(self, overtake, carol, now):
        second = overtake(lambda s: people.create_member(s, carol, **person("erin", now)),
                          lambda s: people.create_member(s, carol, **person("erin", now)))
        assert isinstance(second.error, InvalidInput) and "taken" in str(second.error)

    def test_name_is_given_to_a_member_or_to_a_team(self, overtake, carol, now):
        second = overtake(lambda s: people.create_member(s, carol, **person("erin", now)),
                          lambda s: teams.create_team(s, carol, name="erin", now=now))
        assert isinstance(second.error, InvalidInput)

    def test_number_is_given_once(self, overtake, carol, now, row):
        made = []
        second = overtake(lambda s: made.append(people.create_member(s, carol, **person("erin", now))),
                          lambda s: people.create_member(s, carol, **person("frank", now)))
        assert second.result.uid == made[0].uid + 1

    def test_team_number_is_given_once(self, overtake, carol, now):
        made = []
        second = overtake(lambda s: made.append(teams.create_team(s, carol, name="vision-a", now=now)),
                          lambda s: teams.create_team(s, carol, name="vision-b", now=now))
        assert second.result.gid == made[0].gid + 1

    def test_invite_is_used_once(self, overtake, do, carol, now):
        token = do(people.make_invite, carol, role=Role.MEMBER)

        def redeem(name: str) -> Callable[..., Any]:
            return lambda s: people.redeem_invite(s, token=token, username=name, display_name=name.title(),
                                                  password=PASSWORD, now=now)
        assert isinstance(overtake(redeem("erin"), redeem("frank")).error, NotFound)

    def test_one_link_for_the_first_administrator(self, overtake, store, rows, carol, now):
        with store.write() as session:
            session.get_one(Member, carol.member_id).role = Role.MEMBER
        overtake(lambda s: people.first_admin_token(s, now=now), lambda s: people.first_admin_token(s, now=now))
        assert rows(Invite, Invite.expires_at > now) == 1

    def test_sign_in_does_not_bring_the_old_password_back(self, overtake, store, alice, now, monkeypatch):
        """It makes a new hash where the costs have changed."""
        monkeypatch.setattr(passwords, "HASHER", PasswordHasher(time_cost=2, memory_cost=8, parallelism=1))
        overtake(lambda s: people.set_password(s, alice, alice.member_id, old=PASSWORD, new="another one", now=now),
                 lambda s: people.record_sign_in(s, alice, password=PASSWORD, now=now))
        with store.read() as session:
            assert people.authenticate(session, username="alice", password="another one")

    def test_deactivation_stops_what_is_just_being_launched(self, overtake, cast, alice, carol, house, now, row):
        launched = []
        request = LaunchRequest("run-1", cast.image_id)
        overtake(lambda s: launched.append(workspaces.launch(s, alice, request, house=house, now=now)),
                 lambda s: people.deactivate_member(s, carol, alice.member_id, now=now))
        assert row(Workspace, launched[0].id).desired == Desired.STOPPED

    def test_nobody_launches_who_is_just_being_deactivated(self, overtake, cast, alice, carol, house, now):
        request = LaunchRequest("run-1", cast.image_id)
        second = overtake(lambda s: people.deactivate_member(s, carol, alice.member_id, now=now),
                          lambda s: workspaces.launch(s, alice, request, house=house, now=now))
        assert isinstance(second.error, Forbidden)

    def test_nor_starts(self, overtake, do, launch, seen, alice, carol, now):
        workspace = launch(alice)
        do(workspaces.stop, alice, workspace.id)
        seen(workspace, Phase.STOPPED)
        second = overtake(lambda s: people.deactivate_member(s, carol, alice.member_id, now=now),
                          lambda s: workspaces.start(s, carol, workspace.id, now=now))
        assert isinstance(second.error, Forbidden)

    def test_deactivation_counts_on_from_a_wish_that_is_just_being_made(
        self, overtake, launch, alice, carol, now, row,
    ):
        workspace = launch(alice)
        overtake(lambda s: [workspaces.stop(s, alice, workspace.id, now=now),
                            workspaces.start(s, alice, workspace.id, now=now)],
                 lambda s: people.deactivate_member(s, carol, alice.member_id, now=now))
        found = row(Workspace, workspace.id)
        assert (found.desired, found.generation) == (Desired.STOPPED, 4)


class TestVolumes:
    @pytest.fixture
    def volume(self, do, cast, carol):
        return do(volumes.create_volume, carol, name="imagenet", team_id=cast.team_id, host_folder=None, target=None,
                  read_only=False, roots=())

    @pytest.fixture
    def mounting(self, cast, alice, volume, house, now):
        request = LaunchRequest("run-1", cast.image_id, mounts=((volume.id, True),))
        return lambda s: workspaces.launch(s, alice, request, house=house, now=now)

    def test_volume_that_is_just_being_mounted_is_not_removed(self, overtake, mounting, carol, volume, now):
        second = overtake(mounting, lambda s: volumes.remove_volume(s, carol, volume.id, now=now))
        assert isinstance(second.error, InvalidInput) and "run-1" in str(second.error)

    def test_volume_that_is_just_being_removed_is_not_mounted(self, overtake, mounting, carol, volume, now):
        second = overtake(lambda s: volumes.remove_volume(s, carol, volume.id, now=now), mounting)
        assert isinstance(second.error, InvalidInput) and "not yours" in str(second.error)

    def test_who_leaves_the_team_loses_what_is_just_being_launched(
        self, overtake, mounting, cast, alice, carol, volume, now,
    ):
        second = overtake(mounting, lambda s: teams.remove_member(
            s, carol, team_id=cast.team_id, member_id=alice.member_id, now=now))
        assert [workspace.desired for workspace in second.result] == [Desired.STOPPED]

    def test_folders_never_lie_in_each_other(self, overtake, cast, carol, now):
        def create(name: str, folder: str) -> Callable[..., Any]:
            return lambda s: volumes.create_volume(
                s, carol, name=name, team_id=cast.team_id, host_folder=folder, target=None, read_only=False,
                roots=("/srv",), now=now)
        assert isinstance(overtake(create("a", "/srv/a"), create("b", "/srv/a/b")).error, InvalidInput)

    def test_member_is_added_once(self, overtake, cast, carol, dave, now):
        def add(session) -> None:
            teams.add_member(session, carol, team_id=cast.team_id, member_id=dave.member_id, now=now)
        assert overtake(add, add).error is None


class TestWishes:
    def test_second_stop_is_no_second_wish(self, overtake, launch, alice, now, row):
        workspace = launch(alice)
        overtake(*[lambda s: workspaces.stop(s, alice, workspace.id, now=now)] * 2)
        assert row(Workspace, workspace.id).generation == 2

    def test_each_wish_has_its_number(self, overtake, launch, alice, now, row):
        workspace = launch(alice)
        overtake(lambda s: workspaces.stop(s, alice, workspace.id, now=now),
                 lambda s: workspaces.remove(s, alice, workspace.id, now=now))
        found = row(Workspace, workspace.id)
        assert (found.generation, found.desired) == (3, Desired.REMOVED)

    def test_bell_keeps_nobody_waiting(self, overtake, launch, alice, bob, now):
        one, other = launch(alice), launch(bob)
        assert not overtake(lambda s: workspaces.stop(s, alice, one.id, now=now),
                            lambda s: workspaces.stop(s, bob, other.id, now=now)).waited

    def test_name_is_used_once(self, overtake, cast, alice, house, now):
        def launching(session) -> Workspace:
            return workspaces.launch(session, alice, LaunchRequest("run-1", cast.image_id), house=house, now=now)
        second = overtake(launching, launching)
        assert isinstance(second.error, InvalidInput) and "run-1" in str(second.error)

    def test_launches_of_two_people_get_ports_of_their_own(self, overtake, cast, alice, bob, house, now, rows):
        overtake(lambda s: workspaces.launch(s, alice, LaunchRequest("a", cast.image_id), house=house, now=now),
                 lambda s: workspaces.launch(s, bob, LaunchRequest("a", cast.image_id), house=house, now=now))
        assert rows(PortClaim) == 4

    def test_ports_alone_are_claimed_by_who_is_first(self, overtake, store, launch, cast, alice, bob, house, now):
        """No lock but the primary key: the loser takes the next one, however often it loses."""
        first, second = launch(alice), launch(bob)
        with store.write() as session:
            for workspace in (first, second):
                ports.release_all(session, workspace.id, now)

        def three(workspace):
            return lambda s: [ports.claim(s, cast.host_id, workspace.id, service, ports=house.ports, now=now)
                              for service in ("one", "two", "three")]
        assert overtake(three(first), three(second)).result == [20007, 20008, 20009]

    def test_wish_is_not_answered_by_a_record_for_the_one_before(self, overtake, launch, cast, alice, now, row):
        workspace = launch(alice)
        second = overtake(lambda s: workspaces.stop(s, alice, workspace.id, now=now),
                          lambda s: observations.record(s, workspace.id, generation=1, epoch=cast.epoch, now=now,
                                                        changes={"phase": Phase.RUNNING}))
        assert (second.waited, second.result, row(Workspace, workspace.id).phase) == (True, False, Phase.PULLING)


class TestKeys:
    @pytest.fixture
    def workspace(self, launch, alice):
        return launch(alice)

    @pytest.fixture
    def adding(self, alice, public_key, now):
        return lambda s: keys.add_keys(s, alice, member_id=alice.member_id, text=public_key(), title="", now=now)

    @pytest.fixture
    def waiting(self, do, store, adding, workspace):
        """The operation for a key of a moment ago."""
        with store.write() as session:
            adding(session)
        with store.read() as session:
            return session.scalars(select(Operation).where(Operation.kind == OperationKind.WORKSPACE_KEYS)).one()

    def test_operation_that_was_just_taken_is_not_relied_upon(self, overtake, waiting, adding, rows, now):
        second = overtake(lambda s: operations.take(s, waiting.id, now), adding)
        assert second.waited
        assert rows(Operation) == 2

    def test_operation_is_not_taken_before_the_key_is_there(self, overtake, waiting, adding, rows, now):
        second = overtake(adding, lambda s: operations.take(s, waiting.id, now))
        assert (second.waited, second.result, rows(Operation)) == (True, True, 1)

    def test_agent_begins_with_nothing_while_a_key_is_taken_away(
        self, overtake, store, do, launch, seen, workspace, cast, alice, adding, now,
    ):
        with store.write() as session:
            key, = adding(session)
        do(workspaces.stop, alice, workspace.id)
        seen(workspace, Phase.STOPPED)
        generation = do(workspaces.start, alice, workspace.id).generation
        second = overtake(lambda s: keys.remove_key(s, alice, key.id, now=now),
                          lambda s: observations.record(s, workspace.id, generation=generation, epoch=cast.epoch,
                                                        now=now, changes={"phase": Phase.STARTING}))
        assert second.waited and second.result

    def test_key_is_removed_once(self, overtake, store, alice, adding, now):
        with store.write() as session:
            key, = adding(session)
        second = overtake(*[lambda s: keys.remove_key(s, alice, key.id, now=now)] * 2)
        assert isinstance(second.error, NotFound)

    def test_same_key_twice_is_refused_by_name(self, overtake, alice, public_key, now):
        line = public_key()
        second = overtake(*[lambda s: keys.add_keys(
            s, alice, member_id=alice.member_id, text=line, title="", now=now)] * 2)
        assert isinstance(second.error, InvalidInput) and "is there already" in str(second.error)


class TestAgents:
    def test_each_has_its_epoch(self, overtake, cast, now):
        second = overtake(*[lambda s: observations.next_epoch(s, now=now)] * 2)
        assert second.result == cast.epoch + 2

    def test_first_two_have_theirs(self, overtake, store, now):
        with store.write() as session:
            session.execute(text("DELETE FROM agent_state"))
        assert overtake(*[lambda s: observations.next_epoch(s, now=now)] * 2).result == 2

    def test_older_one_writes_nothing_once_a_newer_has_begun(self, overtake, launch, cast, alice, now):
        workspace = launch(alice)
        second = overtake(lambda s: observations.next_epoch(s, now=now),
                          lambda s: observations.record(s, workspace.id, generation=1, epoch=cast.epoch, now=now,
                                                        changes={"phase": Phase.RUNNING}))
        assert (second.waited, second.result) == (True, False)

    def test_newer_one_begins_after_the_last_record_of_the_older(self, overtake, launch, cast, alice, now):
        workspace = launch(alice)
        second = overtake(lambda s: observations.record(s, workspace.id, generation=1, epoch=cast.epoch, now=now,
                                                        changes={"phase": Phase.RUNNING}),
                          lambda s: observations.next_epoch(s, now=now))
        assert second.waited

    def test_records_of_two_workspaces_do_not_wait_for_each_other(self, overtake, launch, cast, alice, bob, now):
        def record(workspace):
            return lambda s: observations.record(s, workspace.id, generation=1, epoch=cast.epoch, now=now,
                                                 changes={"phase": Phase.RUNNING})
        second = overtake(record(launch(alice)), record(launch(bob)))
        assert (second.waited, second.result) == (False, True)

    def test_home_is_seeded_once(self, overtake, cast, alice, now, rows):
        second = overtake(*[lambda s: observations.record_home_seeded(s, cast.host_id, alice.member_id, now=now)] * 2)
        assert (second.error, rows(HostHome)) == (None, 1)


class TestHouse:
    def test_server_is_registered_once(self, overtake, store, now, rows):
        second = overtake(*[lambda s: hosts.ensure_local(s, name="new", engine_url="unix:///new", now=now)] * 2)
        assert (second.error, rows(Host, Host.name == "new")) == (None, 1)

    def test_images_are_seeded_once(self, overtake, now, rows):
        second = overtake(*[lambda s: images.seed(s, now=now)] * 2)
        assert (second.result, rows(Image)) == ([], 2 + len(images.SEEDS))

    def test_images_have_their_positions(self, overtake, carol, now):
        def add(reference: str) -> Callable[..., Any]:
            return lambda s: made.append(images.add(s, carol, title=reference, reference=reference, base=None,
                                                    cuda_version=None, has_jupyter=True, now=now).position)
        made: list[int] = []
        overtake(add("example/a:1"), add("example/b:1"))
        assert made == [2, 3]
