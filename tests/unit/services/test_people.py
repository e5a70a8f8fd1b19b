from datetime import timedelta
from threading import Barrier, Thread

import pytest
from argon2 import PasswordHasher
from sqlalchemy import func, select, update

from webapp.domain.actor import Actor
from webapp.domain.workspace import Desired
from webapp.errors import Forbidden, InvalidInput, NotFound
from webapp.services import passwords, people, workspaces
from webapp.store.tables import Invite, Member, Role, SshKey, TeamMember, Workspace

PASSWORD = "correct horse battery"
ANN = {"username": "ann", "display_name": "Ann", "password": PASSWORD}


def fields(caught) -> set[str]:
    return {problem.field for problem in caught.value.problems}


def test_everything_wrong_with_a_new_person_is_told_at_once(do, carol):
    with pytest.raises(InvalidInput) as caught:
        do(people.create_member, carol, username="Root!", display_name="", password="short", role=Role.MEMBER)
    assert fields(caught) == {"username", "display_name", "password"}


def test_member_creates_nobody(do, alice):
    with pytest.raises(Forbidden):
        do(people.create_member, alice, **ANN, role=Role.MEMBER)


def test_uid_is_never_reused(do, carol, row):
    ann = do(people.create_member, carol, **ANN, role=Role.MEMBER)
    do(people.deactivate_member, carol, ann.id)
    eve = do(people.create_member, carol, **{**ANN, "username": "eve"}, role=Role.MEMBER)
    assert eve.uid == ann.uid + 1
    assert row(Member, ann.id).uid == ann.uid


def test_name_of_a_former_member_is_not_given_away(do, carol):
    ann = do(people.create_member, carol, **ANN, role=Role.MEMBER)
    do(people.deactivate_member, carol, ann.id)
    with pytest.raises(InvalidInput) as caught:
        do(people.create_member, carol, **ANN, role=Role.MEMBER)
    assert fields(caught) == {"username"}


def test_a_new_ann_inherits_nothing(do, store, carol, cast, launch, public_key):
    """Even if somebody frees the name by hand: everything hangs on ids and uids."""
    ann = do(people.create_member, carol, **ANN, role=Role.MEMBER)
    launch(Actor(ann.id, is_admin=False))
    with store.write() as session:
        session.add(TeamMember(team_id=cast.team_id, member_id=ann.id))
        session.add(SshKey(id="k", member_id=ann.id, title="t", type="t", line=public_key(), fingerprint="f",
                           created_at=ann.created_at))
        session.execute(update(Member).where(Member.id == ann.id).values(username="ann-2025"))
    new = do(people.create_member, carol, **ANN, role=Role.MEMBER)
    with store.read() as session:
        owned = [session.scalar(select(func.count()).where(column == new.id))
                 for column in (Workspace.owner_id, SshKey.member_id, TeamMember.member_id)]
    assert owned == [0, 0, 0]
    assert new.id != ann.id and new.uid != ann.uid


def test_username_is_refused_when_a_team_has_it(do, carol):
    with pytest.raises(InvalidInput) as caught:
        do(people.create_member, carol, **{**ANN, "username": "vision"}, role=Role.MEMBER)
    assert fields(caught) == {"username"}


@pytest.mark.parametrize("username, password, who", [
    ("alice", PASSWORD, "alice"),
    (" Alice ", PASSWORD, "alice"),         # what a phone makes of it
    ("alice", PASSWORD + " ", None),
    ("alice", "x" * 100_000, None),
    ("alice", "\ud800" * 10, None),
    ("nobody", PASSWORD, None),
    ("\ud800", PASSWORD, None),
    ("", "", None),
])
def test_sign_in(store, username, password, who):
    with store.read() as session:
        member = people.authenticate(session, username=username, password=password)
    assert (member and member.username) == who


def test_password_may_be_composed_in_two_ways(do, store, carol):
    do(people.create_member, carol, **{**ANN, "password": "Zürich im Nebel"}, role=Role.MEMBER)
    with store.read() as session:
        assert people.authenticate(session, username="ann", password="Zu\u0308rich im Nebel")


def test_deactivated_member_cannot_sign_in(do, store, carol, bob):
    do(people.deactivate_member, carol, bob.member_id)
    with store.read() as session:
        assert people.authenticate(session, username="bob", password=PASSWORD) is None


def test_unknown_name_costs_one_hash_too(store, monkeypatch):
    tried = []

    class Counting(PasswordHasher):
        def verify(self, hash, password):
            tried.append(password)
            return super().verify(hash, password)

    monkeypatch.setattr(passwords, "HASHER", Counting(time_cost=1, memory_cost=8, parallelism=1))
    with store.read() as session:
        people.authenticate(session, username="nobody", password=PASSWORD)
        people.authenticate(session, username="alice", password="wrong wrong wrong")
    assert len(tried) == 2


def test_hash_with_old_costs_is_made_anew_at_sign_in(do, store, alice, monkeypatch, row):
    before = row(Member, alice.member_id).password_hash
    monkeypatch.setattr(passwords, "HASHER", PasswordHasher(time_cost=2, memory_cost=8, parallelism=1))
    do(people.record_sign_in, alice, password=PASSWORD)
    after = row(Member, alice.member_id).password_hash
    assert after != before and passwords.matches(after, PASSWORD)


@pytest.mark.parametrize("password", [
    "short", "x" * 257, "line\nbreak and more", "nul\x00 and more text", "\ud800" * 12,
])
def test_unusable_password_is_refused(password):
    with pytest.raises(InvalidInput):
        passwords.parse_password(password)


def test_new_password_ends_all_sessions(do, alice, row):
    epoch = row(Member, alice.member_id).session_epoch
    do(people.set_password, alice, alice.member_id, old=PASSWORD, new="another long one")
    assert row(Member, alice.member_id).session_epoch == epoch + 1


def test_own_password_needs_the_old_one(do, carol):
    with pytest.raises(InvalidInput) as caught:
        do(people.set_password, carol, carol.member_id, old="wrong wrong", new="another long one")
    assert fields(caught) == {"old"}


def test_admin_sets_a_members_password_without_the_old_one(do, store, carol, alice):
    do(people.set_password, carol, alice.member_id, old=None, new="another long one")
    with store.read() as session:
        assert people.authenticate(session, username="alice", password="another long one")


def test_member_cannot_set_a_strangers_password(do, alice, bob):
    with pytest.raises(Forbidden):
        do(people.set_password, alice, bob.member_id, old=PASSWORD, new="another long one")


def test_deactivation_ends_sessions_invites_and_workspaces(do, carol, alice, launch, row, store, now):
    workspace = launch(alice)
    do(people.set_role, carol, alice.member_id, role=Role.ADMIN)
    token = do(people.make_invite, Actor(alice.member_id, is_admin=True), role=Role.ADMIN)
    epoch = row(Member, alice.member_id).session_epoch
    do(people.deactivate_member, carol, alice.member_id)
    assert row(Member, alice.member_id).session_epoch == epoch + 1
    assert row(Workspace, workspace.id).desired == Desired.STOPPED
    with store.read() as session, pytest.raises(NotFound):
        people.peek_invite(session, token=token, now=now)


def test_workspace_of_a_deactivated_member_does_not_start(do, carol, alice, launch):
    workspace = launch(alice)
    do(people.deactivate_member, carol, alice.member_id)
    with pytest.raises(Forbidden):
        do(workspaces.start, carol, workspace.id)


def test_deactivated_member_launches_nothing(do, carol, alice, launch):
    do(people.deactivate_member, carol, alice.member_id)
    with pytest.raises(Forbidden):
        launch(alice)


@pytest.mark.parametrize("demote", [
    lambda do, carol: do(people.deactivate_member, carol, carol.member_id),
    lambda do, carol: do(people.set_role, carol, carol.member_id, role=Role.MEMBER),
])
def test_last_admin_stays(do, carol, demote):
    with pytest.raises(InvalidInput):
        demote(do, carol)


def test_invite_is_used_once_under_concurrency(store, do, carol, now):
    token = do(people.make_invite, carol, role=Role.MEMBER)
    start, won, lost = Barrier(4), [], []

    def redeem(n: int) -> None:
        start.wait()
        try:
            with store.write() as session:
                won.append(people.redeem_invite(
                    session, token=token, **{**ANN, "username": f"new{n}"}, now=now).username)
        except NotFound:
            lost.append(n)

    threads = [Thread(target=redeem, args=(n,)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(won) == 1 and len(lost) == 3
    with store.read() as session:
        assert session.scalar(select(func.count()).where(Member.username.like("new%"))) == 1


def test_mistyped_form_does_not_use_the_invite_up(do, carol):
    token = do(people.make_invite, carol, role=Role.MEMBER)
    with pytest.raises(InvalidInput):
        do(people.redeem_invite, token=token, **{**ANN, "password": "short"})
    assert do(people.redeem_invite, token=token, **ANN).role == Role.MEMBER


def test_invite_ends(do, carol, now):
    token = do(people.make_invite, carol, role=Role.MEMBER, lifetime=timedelta(hours=1))
    with pytest.raises(NotFound):
        do(people.redeem_invite, token=token, **ANN, now=now + timedelta(hours=1))


def test_only_a_hash_of_the_invite_is_kept(do, carol, store):
    token = do(people.make_invite, carol, role=Role.MEMBER)
    with store.read() as session:
        assert token not in session.scalars(select(Invite.token_hash)).one()


def test_member_makes_no_invite(do, alice):
    with pytest.raises(Forbidden):
        do(people.make_invite, alice, role=Role.MEMBER)


def test_first_admin_link_is_not_given_when_there_is_an_admin(do):
    assert do(people.first_admin_token) is None


def test_newer_first_admin_link_voids_the_older(do, store, carol):
    with store.write() as session:
        session.execute(update(Member).where(Member.id == carol.member_id).values(role=Role.MEMBER))
    older, newer = do(people.first_admin_token), do(people.first_admin_token)
    with pytest.raises(NotFound):
        do(people.redeem_invite, token=older, **ANN)
    assert do(people.redeem_invite, token=newer, **ANN).role == Role.ADMIN
    assert do(people.first_admin_token) is None


def test_first_admin_link_lives_for_24_hours(do, store, carol, now):
    with store.write() as session:
        session.execute(update(Member).where(Member.id == carol.member_id).values(role=Role.MEMBER))
    token = do(people.first_admin_token)
    with store.read() as session:
        assert people.peek_invite(session, token=token, now=now + timedelta(hours=23, minutes=59))
        with pytest.raises(NotFound):
            people.peek_invite(session, token=token, now=now + timedelta(hours=24))


@pytest.mark.parametrize("language", ["zh_Hans_CN", "en", None])
def test_language_is_kept(do, alice, row, language):
    do(people.set_language, alice, language)
    assert row(Member, alice.member_id).language == language


def test_odd_language_is_refused(do, alice):
    with pytest.raises(InvalidInput):
        do(people.set_language, alice, "../../etc")


@pytest.mark.parametrize("name", ["a1ice", "al-ice", "visi0n", "v-ision"])
def test_name_that_looks_like_a_members_or_teams_is_refused(do, carol, name):
    with pytest.raises(InvalidInput) as caught:
        do(people.create_member, carol, username=name, display_name="V", password="long enough", role=Role.MEMBER)
    assert "looks like" in str(caught.value)


def test_name_of_somebody_who_left_stays_theirs(do, carol, bob):
    do(people.deactivate_member, carol, bob.member_id)
    for name in ("bob", "b0b"):
        with pytest.raises(InvalidInput):
            do(people.create_member, carol, username=name, display_name="B", password="long enough", role=Role.MEMBER)
