"""What only a PostgreSQL does: connections that break, locks of a session, a server that is killed at work (F6)."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import older
import pytest
from databases import OfServer, a_server
from datakey import SEAL
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, InternalError, OperationalError
from sqlalchemy.pool import _ConnectionFairy

from webapp.services import events, people, workspaces
from webapp.services.orders import LaunchRequest
from webapp.store import migrate, postgresql
from webapp.store.doorbell import open_doorbell
from webapp.store.failures import CommitUnknown, is_unavailable, may_be_tried_again
from webapp.store.migrate import MigrationBusy, MigrationFailed, TablesInUse, upgrade
from webapp.store.postgresql import Lock, SoleAgent, connect_alone, try_lock
from webapp.store.schema import DatabaseUnreachable, check_current, current
from webapp.store.session import Store
from webapp.store.tables import Event, Intent, Workspace

pytestmark = pytest.mark.postgresql
SECONDS = 10.0      # nobody waits so long unless something is broken


def of_session(store: Store, **settings: str) -> Store:
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return Store(store.url.update_query_dict({"options": options}).render_as_string(hide_password=False), seal=SEAL)


def cut(store: Store, mark: str) -> None:
    """The server ends the connections whose last statement holds `mark`."""
    with store.write() as session:
        session.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE :mark "
                             "AND datname = current_database() AND pid <> pg_backend_pid()"), {"mark": f"%{mark}%"})


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end


def number_of(store: Store, table: type) -> int:
    with store.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


class TestSessions:
    def test_reading_sees_one_moment(self, store, alice, now):
        with store.read() as reading:
            before = reading.scalar(select(func.count()).select_from(Event))
            with store.write() as session:
                events.write(session, alice, "test.write", "test", "1", now=now)
            assert reading.scalar(select(func.count()).select_from(Event)) == before
        assert number_of(store, Event) == before + 1

    def test_reading_cannot_write(self, store):
        with pytest.raises(InternalError), store.read() as session:
            session.execute(text("UPDATE intent SET seq = 7"))

    def test_connection_that_read_can_write_afterwards(self, store):
        for _ in range(3):
            with store.read() as session:
                session.execute(text("SELECT 1"))
            with store.write() as session:
                session.execute(text("UPDATE intent SET seq = 7"))

    def test_wait_for_a_lock_ends(self, store):
        hasty = of_session(store, lock_timeout="50ms")
        with store.write() as session:
            session.get(Intent, 1, with_for_update=True)
            with pytest.raises(OperationalError, match="lock timeout"), hasty.write() as other:
                other.get(Intent, 1, with_for_update=True)
        hasty.close()

    def test_who_stops_in_the_middle_loses_the_transaction(self, store):
        frozen = of_session(store, idle_in_transaction_session_timeout="50ms")
        with pytest.raises(DBAPIError), frozen.write() as session:
            session.get(Intent, 1, with_for_update=True)
            with store.write() as other:
                other.get(Intent, 1, with_for_update=True)      # as soon as it is let go
            session.execute(text("SELECT 1"))
        frozen.close()

    def test_connections_that_were_cut_are_made_anew(self, store):
        with store.read() as session:
            session.execute(text("SELECT 'mark'"))
        cut(store, "mark")
        assert number_of(store, Intent) == 1

    def test_own_options_count(self, store):
        mine = of_session(store, timezone="Europe/Berlin")
        with mine.read() as session:
            assert session.scalar(text("SHOW timezone")) == "Europe/Berlin"
        with store.read() as session:
            assert session.scalar(text("SHOW timezone")) == "UTC"
        mine.close()


class TestDoorbell:
    def test_it_listens_again_when_its_connection_was_cut(self, store, do, launch, alice):
        workspace = launch(alice)
        doorbell = open_doorbell(store)
        cut(store, "LISTEN")
        until(lambda: doorbell.wait(0.01))      # what rang meanwhile was not heard: so this is a ring
        do(workspaces.stop, alice, workspace.id)
        assert doorbell.wait(SECONDS)
        doorbell.close()

    def test_many_wishes_of_one_transaction_are_one_ring(self, store, launch, alice, now):
        workspace = launch(alice)
        doorbell = open_doorbell(store)
        with store.write() as session:
            for wish in (workspaces.stop, workspaces.start, workspaces.stop):
                wish(session, alice, workspace.id, now=now)
        assert doorbell.wait(SECONDS) and not doorbell.wait(0)
        doorbell.close()


class TestSoleAgent:
    @pytest.fixture
    def agents(self, store):
        pair = SoleAgent(store.url), SoleAgent(store.url)
        yield pair
        for agent in pair:
            agent.close()

    def test_second_one_is_refused(self, agents):
        one, other = agents
        assert one.take(0) and not other.take(0.2)
        assert one.holds() and not other.holds()

    def test_next_one_follows_a_killed_one(self, agents):
        one, other = agents
        assert one.take(0)
        one.close()
        assert other.take(SECONDS)

    def test_lock_that_was_lost_is_taken_again(self, store, agents):
        one, _ = agents
        assert one.take(0)
        cut(store, "pg_try_advisory_lock")
        with pytest.raises(DBAPIError):
            one.holds()
        assert one.holds()

    def test_lock_that_was_lost_may_be_another_agents(self, store, agents):
        one, other = agents
        assert one.take(0)
        cut(store, "pg_try_advisory_lock")
        assert other.take(SECONDS)
        with pytest.raises(DBAPIError):
            one.holds()
        assert not one.holds()


class TestMigration:
    def test_second_upgrade_at_the_same_time_says_so(self, store):
        connection = connect_alone(store.url)
        assert try_lock(connection, Lock.MIGRATION)
        with pytest.raises(MigrationBusy):
            upgrade(store, lock_seconds=0)
        connection.close()
        assert not upgrade(store, lock_seconds=0)

    @pytest.fixture
    def behind(self, databases, tmp_path):
        """A house whose last migration is missing."""
        store = Store(databases.make("behind"), seal=SEAL)
        older.make(store, "0002", tmp_path)
        yield store
        store.close()
        databases.drop("behind")

    def test_who_is_in_a_transaction_is_waited_for_and_then_left(self, behind, monkeypatch):
        monkeypatch.setattr(migrate, "GATE_SECONDS", 0.1)
        monkeypatch.setattr(migrate, "GATE_PAUSE_SECONDS", 0.01)
        with behind.engine.begin() as connection:
            connection.execute(text("SELECT version_num FROM alembic_version"))     # as every session begins
            with pytest.raises(TablesInUse):
                upgrade(behind)
        assert current(behind) == "0002"
        assert upgrade(behind)

    def test_role_without_the_right_to_make_tables_is_told(self, behind):
        narrow = of_session(behind, search_path="nowhere")
        with pytest.raises(MigrationFailed, match="no schema"):
            upgrade(narrow)
        narrow.close()


@pytest.fixture(autouse=True)
def no_long_look(monkeypatch):
    monkeypatch.setattr(postgresql, "LOOK_SECONDS", 0.2)


@pytest.fixture(scope="module")
def server():
    with a_server("killed") as server:
        yield server


@pytest.fixture
def killable(server, cast, template, store):
    """A database like the cast's, of a server that the test may kill."""
    databases = OfServer(server.url(), "own")
    copy = Store(databases.make("test"), seal=SEAL)
    upgrade(copy)
    with store.read() as source, copy.write() as target:
        for table in Workspace.metadata.sorted_tables:
            rows = [dict(row) for row in source.execute(select(table)).mappings()]
            target.execute(table.delete())
            if rows:
                target.execute(table.insert(), rows)
        target.execute(text("SELECT setval('events_id_seq', 1000)"))
    yield copy
    copy.close()
    databases.drop("test")


def launch_on(store: Store, cast: Any, house: Any, now: Any, name: str = "run-1") -> Workspace:
    with store.write() as session:
        return workspaces.launch(session, cast.alice, LaunchRequest(name, cast.image_id), house=house, now=now)


class TestKilledServer:
    def test_nothing_is_half_there_and_it_works_again(self, server, killable, cast, house, now):
        before = number_of(killable, Event)
        with pytest.raises(CommitUnknown), killable.write() as session:
            workspaces.launch(session, cast.alice, LaunchRequest("run-1", cast.image_id), house=house, now=now)
            session.flush()
            server.stop("immediate")
        with pytest.raises(OperationalError):
            number_of(killable, Event)
        with pytest.raises(DatabaseUnreachable, match="postgresql://berth@/own-test.*cannot be reached"):
            check_current(killable)
        server.start()
        assert (number_of(killable, Event), number_of(killable, Workspace)) == (before, 0)
        assert launch_on(killable, cast, house, now).name == "run-1"

    def test_orderly_stop_is_the_same(self, server, killable, cast, house, now):
        with pytest.raises(CommitUnknown), killable.write() as session:
            people.set_language(session, cast.alice, "de", now=now)
            session.flush()
            server.stop("fast")
        server.start()
        assert number_of(killable, Workspace) == 0
        assert launch_on(killable, cast, house, now)

    def test_bell_and_lock_come_back(self, server, killable, cast, house, now):
        doorbell, agent = open_doorbell(killable), SoleAgent(killable.url)
        assert agent.take(0)
        with ThreadPoolExecutor(1) as pool:
            heard = pool.submit(doorbell.wait, SECONDS)
            server.stop("immediate")
            assert heard.result() is False
        assert not doorbell.wait(0.01)
        for _ in range(2):
            with pytest.raises(DBAPIError):
                agent.holds()
        server.start()
        assert agent.holds()
        until(lambda: doorbell.wait(0.01))
        launch_on(killable, cast, house, now)
        assert doorbell.wait(SECONDS)
        doorbell.close()
        agent.close()


class TestLostCommit:
    """The connection breaks in the commit. Nobody is told the wrong thing, and nobody has to guess."""

    @pytest.fixture
    def commit(self, store, monkeypatch):
        """commit(is_sent=True) = the next one reaches the server, and its answer does not come back."""
        def lost(connection: Any, is_sent: bool) -> None:
            monkeypatch.undo()
            if is_sent:
                connection.driver_connection.commit()
            connection.driver_connection.close()
            raise store.engine.dialect.loaded_dbapi.OperationalError("server closed the connection unexpectedly")

        def prepare(*, is_sent: bool) -> None:
            monkeypatch.setattr(_ConnectionFairy, "commit", lambda self: lost(self, is_sent), raising=False)
        return prepare

    def test_what_was_written_counts_as_written(self, store, commit, cast, house, now):
        commit(is_sent=True)
        workspace = launch_on(store, cast, house, now)
        assert (workspace.name, number_of(store, Workspace)) == ("run-1", 1)

    def test_what_was_not_is_an_error_that_may_be_tried_again(self, store, commit, cast, house, now):
        commit(is_sent=False)
        with pytest.raises(OperationalError) as failed:
            launch_on(store, cast, house, now)
        assert may_be_tried_again(failed.value)
        assert number_of(store, Workspace) == 0
        assert launch_on(store, cast, house, now)

    def test_server_that_comes_back_is_asked(self, server, killable, cast, house, now):
        with killable.write() as session:
            workspaces.launch(session, cast.alice, LaunchRequest("run-1", cast.image_id), house=house, now=now)
            session.flush()
            server.stop("immediate")
            server.start()
            with pytest.raises(OperationalError) as failed:
                session.commit()
        assert may_be_tried_again(failed.value)
        assert number_of(killable, Workspace) == 0

    def test_server_that_stays_away_leaves_it_open(self, server, killable, cast, house, now):
        with pytest.raises(CommitUnknown, match="Look before you ask for it") as failed, killable.write() as session:
            workspaces.launch(session, cast.alice, LaunchRequest("run-1", cast.image_id), house=house, now=now)
            session.flush()
            server.stop("immediate")
        server.start()
        assert is_unavailable(failed.value) and not may_be_tried_again(failed.value)


def test_wrong_password_or_name_is_one_sentence_without_the_password(store):
    wrong = Store(store.url.set(database="nowhere", password="hunter2").render_as_string(hide_password=False))
    with pytest.raises(DatabaseUnreachable) as refused:
        check_current(wrong)
    assert "nowhere" in str(refused.value) and "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)
    wrong.close()


