"""What pages read: the right rows, no secrets, and as many statements for a hundred rows as for one."""

from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta

import pytest
from sqlalchemy import event

from webapp.domain.operation import OperationKind
from webapp.domain.workspace import Phase
from webapp.services import images, keys, operations, people, sessions, volumes, workspaces
from webapp.store.reads import catalogue, changes, house
from webapp.store.reads import launch as launching
from webapp.store.reads import people as persons
from webapp.store.reads import workspaces as reads
from webapp.store.tables import Host, Image, Role, WorkspaceSecret


@pytest.fixture
def statements(store):
    """with statements() as seen: … = the statements that ran."""
    @contextmanager
    def recording():
        seen = []

        def note(connection, cursor, statement, *_):
            if not statement.startswith("BEGIN") and "alembic_version" not in statement:
                seen.append(statement)

        event.listen(store.engine, "before_cursor_execute", note)
        yield seen
        event.remove(store.engine, "before_cursor_execute", note)
    return recording


@pytest.fixture
def read(store):
    """read(model, …) = the read model in a session of its own."""
    def run(model, *args, **kwargs):
        with store.read() as session:
            return model(session, *args, **kwargs)
    return run


@pytest.fixture
def volume(do, carol, cast):
    return do(volumes.create_volume, carol, name="imagenet", team_id=cast.team_id, host_folder=None, target=None,
              read_only=False, roots=())


@pytest.fixture
def crowd(do, launch, alice, bob, carol, volume, public_key):
    """Several rows of everything."""
    def fill(n: int) -> None:
        for i in range(n):
            launch(alice, f"a-{i}", mounts=((volume.id, True),))
            launch(bob, f"b-{i}")
            do(keys.add_keys, alice, member_id=alice.member_id, text=public_key(), title=f"key {i}")
            do(people.make_invite, carol, role=Role.MEMBER)
            do(people.create_member, carol, username=f"new{i}", display_name="New", password="long enough",
               role=Role.MEMBER)
    return fill


def test_statements_do_not_grow_with_rows(crowd, read, statements, alice, launch, now):
    first = launch(alice, "first")
    models = [
        (3, lambda: read(reads.list_cards, alice.member_id)), (3, lambda: read(reads.list_cards, None)),
        (7, lambda: read(reads.page, first.id)), (6, lambda: read(launching.options, alice.member_id)),
        (2, lambda: read(launching.hosts)), (3, lambda: read(house.hosts)), (2, lambda: read(house.images)),
        (3, lambda: read(catalogue.catalogue, alice.member_id, everything=False)),
        (4, lambda: read(catalogue.image_page, first.image_id, alice.member_id, everything=False)),
        (4, lambda: read(changes.change_page, first.id)), (1, lambda: read(persons.teams_of, alice.member_id)),
        (1, lambda: read(house.volumes)),
        (1, lambda: read(house.checklist)), (1, lambda: read(house.sign_of_life)),
        (1, lambda: read(persons.signed_in, "none", seen_since=now)),
        (1, lambda: read(persons.keys_of, alice.member_id)),
        (2, lambda: read(persons.members)), (2, lambda: read(persons.teams)),
        (1, lambda: read(persons.open_invites, now=now)),
    ]
    for rows in (0, 3):
        crowd(rows)
        counted = []
        for _, model in models:
            with statements() as seen:
                model()
            counted.append(len(seen))
        assert counted == [expected for expected, _ in models]


def test_list_shows_ones_own_and_what_is_not_gone(do, read, launch, alice, bob, gone):
    kept, leaving, removed = (launch(alice, name) for name in ("kept", "leaving", "removed"))
    launch(bob)
    for workspace in (leaving, removed):
        do(workspaces.remove, alice, workspace.id)
    gone(removed)
    assert {card.id for card in read(reads.list_cards, alice.member_id)} == {kept.id, leaving.id}
    assert len(read(reads.list_cards, None)) == 3


def test_card_says_where_and_on_which_ports(read, launch, alice, seen):
    workspace = launch(alice)
    seen(workspace, Phase.RUNNING)
    card, = read(reads.list_cards, alice.member_id)
    assert (card.owner_username, card.host_name, card.image_title) == ("alice", "gpu1", "Full")
    assert (card.ssh_port, card.jupyter_port, card.phase) == (20000, 20001, Phase.RUNNING)


def test_page_shows_everything_but_secrets(store, do, read, launch, alice, volume, public_key):
    do(keys.add_keys, alice, member_id=alice.member_id, text=public_key(), title="")
    workspace = launch(alice, mounts=((volume.id, True),))
    page = read(reads.page, workspace.id)
    assert (page.owner_uid, page.owner_has_keys, page.image_reference) == (10000, True, "berth/workspace:full-1")
    assert [asdict(mount) for mount in page.mounts] == [
        {"volume_name": "imagenet", "team_name": "vision", "target": "/data/imagenet", "read_only": True}]
    assert page.host_public_key.startswith("ssh-ed25519 ") and page.host_fingerprint.startswith("SHA256:")
    with store.read() as session:
        secret = session.get_one(WorkspaceSecret, workspace.id)
    assert secret.jupyter_token not in str(page) and "PRIVATE" not in str(page)


def test_secret_columns_are_not_even_read(read, launch, alice, statements):
    workspace = launch(alice)
    with statements() as seen:
        read(reads.page, workspace.id)
        read(reads.list_cards, alice.member_id)
    assert not any(word in statement for statement in seen for word in ("jupyter_token", "host_private_key"))


def test_page_of_a_removed_one_has_no_ports_and_no_host_key(do, read, launch, alice, gone):
    workspace = launch(alice)
    do(workspaces.remove, alice, workspace.id)
    gone(workspace)
    page = read(reads.page, workspace.id)
    assert (page.card.phase, page.card.ssh_port, page.host_public_key) == (Phase.REMOVED, None, None)


def test_page_of_nothing_is_none(read):
    assert read(reads.page, "no") is None


def test_page_shows_the_newest_logs(do, read, launch, alice, now):
    workspace = launch(alice)
    assert read(reads.page, workspace.id).logs is None
    for minute, text in enumerate(("old", "new")):
        at = now + timedelta(minutes=minute)
        operation = do(operations.request, alice, OperationKind.WORKSPACE_LOGS, workspace_id=workspace.id,
                       arguments={}, now=at)
        do(operations.take, operation.id, now=at)
        do(operations.finish, operation.id, result={"text": text}, now=at)
    assert read(reads.page, workspace.id).logs.text == "new"


def test_launch_offers_what_is_ready_first_and_own_volumes_only(do, read, alice, dave, carol, cast, volume):
    do(images.seed)
    do(images.withdraw, carol, cast.slim_image_id)
    offered = read(launching.options, alice.member_id)
    assert cast.slim_image_id not in {image.id for image in offered.images}
    assert offered.default_image.id == cast.image_id
    assert [choice.name for choice in offered.volumes] == ["imagenet"]
    assert read(launching.options, dave.member_id).volumes == ()


def test_launch_suggests_a_free_name(read, launch, alice):
    assert read(launching.options, alice.member_id).suggested_name == "workspace"
    launch(alice, "workspace")
    assert read(launching.options, alice.member_id).suggested_name == "workspace-2"


def test_launch_knows_the_hosts_size_once_the_agent_has_looked(store, read, alice, cast):
    assert read(launching.options, alice.member_id).hosts[0].cpus is None
    with store.write() as session:
        session.get_one(Host, cast.host_id).capabilities = {"cpus": 64, "memory_bytes": 2**38}
    assert read(launching.options, alice.member_id).hosts[0].cpus == 64


def test_house_counts_what_is_in_use(do, read, launch, alice, gone, volume):
    kept, removed = launch(alice, "kept", mounts=((volume.id, True),)), launch(alice, "removed")
    do(workspaces.stop, alice, kept.id)
    do(workspaces.remove, alice, removed.id)
    gone(removed)
    host, = read(house.hosts)
    assert (host.workspaces, host.wanted_running, host.ports_claimed) == (1, 0, 2)
    assert [image.workspaces for image in read(house.images)] == [1, 0]
    assert [row.workspaces for row in read(house.volumes)] == [1]


def test_checklist_tells_how_far_a_house_is(store, read, now, cast):
    before = read(house.checklist)
    assert (before.agent_alive_at, before.hosts_answering, before.images_ready, before.members, before.launches) == (
        now, 0, 2, 4, 0)
    with store.write() as session:
        session.get_one(Host, cast.host_id).seen_at = now
        session.get_one(Image, cast.image_id).withdrawn_at = now
    after = read(house.checklist)
    assert (after.hosts_answering, after.images_ready) == (1, 1)


def test_members_are_listed_with_their_teams(do, read, carol, bob):
    do(people.deactivate_member, carol, bob.member_id)
    rows = read(persons.members)
    assert [row.username for row in rows] == ["alice", "carol", "dave", "bob"]
    assert rows[0].teams == ("vision",) and rows[2].teams == ()
    assert read(persons.teams)[0].members == ((rows[0].id, "alice"), (bob.member_id, "bob"))


def test_deactivated_member_is_not_signed_in(do, read, carol, bob, now):
    token = do(sessions.begin, bob.member_id, address=None, browser="")
    assert read(persons.signed_in, sessions.hash_of(token), seen_since=now).username == "bob"
    assert read(persons.signed_in, sessions.hash_of(token), seen_since=now + timedelta(seconds=1)) is None
    do(people.deactivate_member, carol, bob.member_id)
    assert read(persons.signed_in, sessions.hash_of(token), seen_since=now) is None


def test_used_and_ended_invites_are_not_listed(do, read, carol, now):
    do(people.make_invite, carol, role=Role.ADMIN, lifetime=timedelta(hours=1))
    token = do(people.make_invite, carol, role=Role.MEMBER)
    do(people.redeem_invite, token=token, username="ann", display_name="Ann", password="long enough")
    invite, = read(persons.open_invites, now=now)
    assert invite.is_admin and invite.created_by == "carol"
    assert read(persons.open_invites, now=now + timedelta(hours=2)) == ()
