"""The two ways to the database: `read()` never takes the write lock, `write()` takes it at once.

SQLite: WAL, and BEGIN IMMEDIATE for writes; a deferred transaction that turns into a write fails with
"database is locked" whatever the time-out (measured: 238 times with 16 threads, against 0).

PostgreSQL: writes are READ COMMITTED and lock rows in the order of services.locks; reads are one snapshot.

Both begin by asking whether the tables are still those of this code: a newer Berth may have upgraded them while this
process ran. So nobody writes rows of an older kind, and an upgrade falls between two transactions, never into one:
SQLite has one writer, and on PostgreSQL the question locks `alembic_version` against the upgrade until the commit.
It costs 0.02 ms on SQLite, 0.1 ms on a PostgreSQL of the same machine (measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from webapp.store import postgresql, sealing
from webapp.store.revisions import Revisions, own
from webapp.store.sealing import Seal

BUSY_SECONDS = 30       # longest wait for another writer; then 503, never half a write
POOL_SIZE = 16          # connections kept; requests are short, so 512 threads share them
POOL_OVERFLOW = 48
POOL_WAIT_SECONDS = 10


class Store:
    """One database. Thread-safe; sessions are not and live for one request or one step."""

    def __init__(self, url: str, *, revisions: Revisions | None = None, seal: Seal | None = None) -> None:
        """`revisions`: of other code than this. `seal`: without it no secret can be read or written."""
        self.url = make_url(url)
        self.revisions = revisions or own()
        self.engine = _open_sqlite(self.url) if self.is_sqlite else postgresql.open_engine(self.url)
        sealing.use(self.engine.dialect, seal)
        self._for_writing = self.engine.execution_options(berth_write=True)
        self._for_reading = self.engine if self.is_sqlite else self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._sessions = sessionmaker(expire_on_commit=False)
        event.listen(self._sessions, "after_begin", self._check_revision)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading: one consistent view, rolled back at the end. Raises OtherVersion."""
        with self._sessions(bind=self._for_reading) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction that may write: committed at the end, rolled back by any error.

        Raises:  OtherVersion; failures.CommitUnknown: the connection broke in the commit, and nobody can tell.
        """
        with self._sessions(bind=self._for_writing) as session, session.begin():
            yield session

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def sqlite_path(self) -> Path | None:
        return Path(self.url.database) if self.is_sqlite and self.url.database else None

    @property
    def place(self) -> str:
        """Where it is, for people: a path, or an address without its password and options."""
        if self.is_sqlite:
            return str(self.sqlite_path)
        url, socket = self.url, self.url.query.get("host")
        return unquote(str(URL.create("postgresql", url.username, host=url.host, port=url.port, database=url.database,
                                      query={"host": socket} if socket else {})))

    def product(self) -> str:
        """"PostgreSQL 15.18"; asks it, unless it was asked before."""
        with self.engine.connect() as connection:
            version = connection.dialect.server_version_info or ()
        return f"{'SQLite' if self.is_sqlite else 'PostgreSQL'} {'.'.join(map(str, version))}"

    def close(self) -> None:
        self.engine.dispose()

    def _check_revision(self, _session: Session, transaction: SessionTransaction, connection: Connection) -> None:
        """When the first statement comes, so that a session which asks nothing locks nothing."""
        if transaction.nested:
            return
        question = "SELECT version_num FROM alembic_version"
        if self.is_sqlite or not connection.get_execution_options().get("berth_write"):
            found = connection.exec_driver_sql(question).scalar()
        else:
            found = postgresql.ask_in_transaction(connection, question)
        self.revisions.check(None if found is None else str(found))


def _open_sqlite(url: URL) -> Engine:
    engine = create_engine(
        url, connect_args={"timeout": BUSY_SECONDS}, hide_parameters=True,
        pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW, pool_timeout=POOL_WAIT_SECONDS,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None   # sqlite3 begins nothing by itself; _begin_sqlite does
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")   # a claim that was answered must survive a power cut
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("berth_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")
