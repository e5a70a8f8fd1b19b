"""The two sessions, the doorbell and the migration, as the services use them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from webapp.domain.operation import OperationKind
from webapp.domain.workspace import Phase
from webapp.errors import NotFound
from webapp.services import events, keys, operations, workspaces
from webapp.store.doorbell import open_doorbell
from webapp.store.tables import Base, Event, Intent, PortClaim

SOON = 1.0      # seconds; a ring that comes ends the wait within a poll


@pytest.fixture
def doorbell(store, workspace):
    """Opened after the launch: on PostgreSQL its ring may still be on its way otherwise."""
    doorbell = open_doorbell(store)
    yield doorbell
    doorbell.close()


@pytest.fixture
def workspace(launch, alice):
    return launch(alice)


def count(store, table) -> int:
    with store.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_error_rolls_the_whole_transaction_back(store, alice, now):
    before = count(store, Event)
    with pytest.raises(NotFound), store.write() as session:
        events.write(session, alice, "test.write", "test", "1", now=now)
        session.flush()
        workspaces.stop(session, alice, "no-such-id", now=now)
    assert count(store, Event) == before


def test_transaction_that_was_rolled_back_rings_nothing(store, doorbell, alice, workspace, now):
    with pytest.raises(NotFound), store.write() as session:
        workspaces.stop(session, alice, workspace.id, now=now)
        workspaces.stop(session, alice, "no-such-id", now=now)
    assert not doorbell.wait(0.05)


@pytest.mark.parametrize("intent", ["launch", "stop", "remove", "logs", "key"])
def test_each_intent_rings(intent, do, doorbell, launch, alice, workspace, public_key):
    {
        "launch": lambda: launch(alice, "another"),
        "stop": lambda: do(workspaces.stop, alice, workspace.id),
        "remove": lambda: do(workspaces.remove, alice, workspace.id),
        "logs": lambda: do(operations.request, alice, OperationKind.WORKSPACE_LOGS, workspace_id=workspace.id,
                           arguments={}),
        "key": lambda: do(keys.add_keys, alice, member_id=alice.member_id, text=public_key(), title=""),
    }[intent]()
    assert doorbell.wait(SOON)


def test_doorbell_wakes_who_waits(doorbell, do, alice, workspace):
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(do, workspaces.stop, alice, workspace.id)
        assert doorbell.wait(SOON)
        asked.result()


def test_record_of_the_agent_does_not_ring(doorbell, seen, workspace):
    seen(workspace, Phase.RUNNING)
    assert not doorbell.wait(0.05)


def test_asking_for_what_is_so_does_not_ring(doorbell, do, alice, workspace):
    do(workspaces.start, alice, workspace.id)
    assert not doorbell.wait(0.05)


def test_doorbell_rings_in_a_house_whose_counter_was_lost(store, doorbell, do, alice, workspace):
    with store.write() as session:
        session.delete(session.get_one(Intent, 1))
    doorbell.wait(0)
    do(workspaces.stop, alice, workspace.id)
    assert doorbell.wait(SOON)


def test_database_itself_refuses_a_second_holder(store, cast, workspace, now):
    with pytest.raises(IntegrityError), store.write() as session:
        session.add(PortClaim(host_id=cast.host_id, port=20000, workspace_id=workspace.id, service="other",
                              claimed_at=now))


def test_reader_neither_waits_for_a_writer_nor_sees_half_of_it(store, alice, now):
    before = count(store, Event)
    with store.write() as session:
        events.write(session, alice, "test.write", "test", "1", now=now)
        session.flush()
        assert count(store, Event) == before


def test_house_on_sqlite_loads_no_driver_of_another_kind(tmp_path):
    """6 MB in each process."""
    code = ("import sys, webapp.cli.wsgi, webapp.agent; from webapp.store.session import Store; "
            f"Store('sqlite:///{tmp_path}/x.db').product(); print([m for m in sys.modules if m.startswith('psycopg')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_migrated_database_is_what_the_tables_say(store):
    with store.read() as session:
        assert compare_metadata(MigrationContext.configure(session.connection()), Base.metadata) == []
