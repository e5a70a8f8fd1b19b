"""A process whose database is upgraded, or put back, while it runs: it writes nothing any more, and says why (F33)."""

import threading

import pytest
from sqlalchemy import func, select, text

from webapp.services import events
from webapp.store.migrate import upgrade
from webapp.store.revisions import DatabaseAhead, DatabaseBehind, Revisions, own
from webapp.store.session import Store
from webapp.store.tables import Event

SECONDS = 20.0


@pytest.fixture
def old(store):
    """A process that began before the last migration."""
    head = own().head
    process = Store(store.url.render_as_string(hide_password=False), revisions=Revisions(own().known - {head}, "0001"))
    yield process
    process.close()


@pytest.fixture
def put(store):
    """put("0001"): the database says that it is of that revision."""
    def run(revision: str) -> None:
        with store.engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
    return run


def write(store, actor, now) -> None:
    with store.write() as session:
        events.write(session, actor, "test.write", "test", "1", now=now)


def written(store) -> int:
    with store.read() as session:
        return session.scalar(select(func.count()).select_from(Event).where(Event.action == "test.write")) or 0


def test_process_that_is_older_now_neither_writes_nor_reads(store, old, put, alice, now):
    put("0001")
    write(old, alice, now)
    put(own().head)
    with pytest.raises(DatabaseAhead, match="upgraded by a newer Berth"):
        write(old, alice, now)
    with pytest.raises(DatabaseAhead):
        written(old)
    assert written(store) == 1


def test_process_whose_database_was_put_back_does_neither(store, put, alice, now):
    put("0001")
    with pytest.raises(DatabaseBehind, match="berth migrate"):
        write(store, alice, now)
    put(own().head)
    assert written(store) == 0


def test_it_goes_on_when_its_version_is_back(store, old, put, alice, now):
    with pytest.raises(DatabaseAhead):
        write(old, alice, now)
    put("0001")
    write(old, alice, now)


def test_part_of_a_transaction_asks_nothing_again(store, old, put, alice, now):
    put("0001")
    with old.write() as session, session.begin_nested():
        events.write(session, alice, "test.write", "test", "1", now=now)
    put(own().head)
    assert written(store) == 1


def test_upgrade_falls_between_two_transactions(store, old, put, alice, now):
    """What was begun is committed before it, and counts; what begins meanwhile waits for it, and is refused."""
    put("0001")
    begun, refused = threading.Event(), []

    def be_late() -> None:
        begun.wait(SECONDS)
        try:
            write(old, alice, now)
        except DatabaseAhead:
            refused.append(True)

    with old.write() as session:
        events.write(session, alice, "test.write", "test", "1", now=now)
        session.flush()
        upgrader = threading.Thread(target=_upgrade, args=(store, begun))
        upgrader.start()
        late = threading.Thread(target=be_late)
        late.start()
        begun.wait(SECONDS)
        assert upgrader.is_alive()
    upgrader.join(SECONDS)
    late.join(SECONDS)
    # The late one came before the upgrade or after it: never in it.
    assert written(store) == 2 - len(refused)
    with pytest.raises(DatabaseAhead):
        write(old, alice, now)


def _upgrade(store, begun: threading.Event) -> None:
    """As a migration does: one transaction that begins with the lock on the revision."""
    with store.engine.execution_options(berth_write=True).connect() as connection:
        begun.set()
        with connection.begin():
            if not store.is_sqlite:
                connection.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": own().head})


def test_newer_files_beside_a_running_process_are_not_its_own(tmp_path, monkeypatch):
    before = own()
    monkeypatch.setattr("webapp.store.revisions.migrations_folder", lambda: tmp_path)
    assert own() is before


def test_tables_that_fit_are_upgraded_by_nobody(store):
    assert not upgrade(store)
