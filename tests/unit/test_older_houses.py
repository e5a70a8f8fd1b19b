"""Houses of older versions: nothing in them is lost by an upgrade, and their code can go on beside the new tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import older
import pytest
from databases import Databases
from datakey import SEAL
from sqlalchemy import text

from webapp.domain.actor import Actor
from webapp.domain.workspace import Phase
from webapp.services import people, workspaces
from webapp.store.migrate import upgrade
from webapp.store.reads import agent as agent_reads
from webapp.store.reads import hold as hold_reads
from webapp.store.reads import house, launch
from webapp.store.reads import workspaces as pages
from webapp.store.revisions import migrations_folder, own
from webapp.store.schema import current
from webapp.store.session import Store
from webapp.store.tables import Event, Workspace

# Of a migration that people have run: it is never edited, because it would not run again where it ran before.
RELEASED = {
    "0001": "37e2e83fb7621364ae73d886250a3c2ab9f387ac03ebf5db387a43ca3ce72a2c",
    "0002": "31dfae5e8fa9fdb7b5a7bdcec3cdc0ae09458e38f38db07574c923dc87ecc3c0",
    "0003": "0adf1a9aae2f34448289dad1001467e0bb599440dc4418384487e2c92f1bc604",
}


@pytest.fixture
def store(databases: Databases) -> Iterator[Store]:
    store = Store(databases.make("older"), seal=SEAL)
    yield store
    store.close()
    databases.drop("older")


@pytest.fixture(params=older.REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def upgraded(store: Store, revision: str, tmp_path: Path) -> Store:
    older.make(store, revision, tmp_path, {"IMAGE": "berth/workspace:1", **older.new_keys(revision)})
    assert upgrade(store)
    return store


def test_upgrade_keeps_every_row(store: Store, revision: str, tmp_path: Path) -> None:
    older.make(store, revision, tmp_path)
    before = older.rows(store, revision)
    assert all(before.values())
    assert upgrade(store)
    assert older.rows(store, revision) == before
    assert current(store) == own().head


def test_second_upgrade_has_nothing_to_do(upgraded: Store) -> None:
    assert not upgrade(upgraded)


def test_pages_and_agent_read_what_was_upgraded(upgraded: Store) -> None:
    with upgraded.read() as session:
        cards = pages.list_cards(session, None)
        assert cards and all(pages.page(session, card.id) for card in cards)
        for host in house.hosts(session):
            wanted = agent_reads.wanted_on(session, host.id, "instance")
            assert {one.workspace_id for one in wanted} >= {card.id for card in cards}
            for one in wanted:
                read = agent_reads.workspace(session, one.workspace_id, "instance", epoch=1)
                assert (read is None) == hold_reads.is_on(session)
        assert house.images(session) and launch.hosts(session)


def test_people_sign_in_and_go_on_after_it(upgraded: Store) -> None:
    with upgraded.write() as session:
        alice = people.authenticate(session, username="alice", password=older.PASSWORD)
        assert alice is not None
        card = next(card for card in pages.list_cards(session, alice.id) if card.phase == Phase.RUNNING)
        workspaces.stop(session, Actor(alice.id, is_admin=False), card.id, now=card.created_at)
        newest = session.query(Event).order_by(Event.id.desc()).first()
        assert newest is not None and newest.object_id == card.id


def test_containers_that_say_nothing_of_their_shape_have_the_present_one(upgraded: Store, revision: str) -> None:
    """So that the upgrade moves nobody. Since 0003 their labels say it."""
    if revision >= "0003":
        return
    with upgraded.read() as session:
        shapes = {(row.name, row.shm_bytes): row.shape_unlabelled for row in session.query(Workspace)}
        mounted = {row.id for row in session.execute(text("SELECT workspace_id AS id FROM workspace_mounts"))}
    assert shapes and all(shape and shape.startswith(f"shm={shm} ") for (_, shm), shape in shapes.items())
    assert sum(":r" in str(shape) for shape in shapes.values()) == len(mounted)


def test_older_code_writes_into_the_new_tables(store: Store, revision: str) -> None:
    """It names the columns that it knows, and no others: the new ones must fill themselves."""
    upgrade(store)
    older.insert(store, revision)
    assert all(older.rows(store, revision).values())


@pytest.mark.parametrize("revision", RELEASED)
def test_released_migration_is_as_it_was(revision: str) -> None:
    (file,) = (migrations_folder() / "versions").glob(f"{revision}_*.py")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == RELEASED[revision]
