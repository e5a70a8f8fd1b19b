"""PostgreSQL, when BERTH_DATABASE_URL names one: how it is connected to, what is locked, and the bell.

Nothing here imports the driver: SQLAlchemy does, once a PostgreSQL is opened. A house on SQLite never loads it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import structlog
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, func, select
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from webapp.store.failures import CommitUnknown

if TYPE_CHECKING:
    import psycopg

log = structlog.get_logger(__name__)

POOL_SIZE = 10          # connections kept by a process; with the overflow of two processes well below the server's 100
POOL_OVERFLOW = 20
POOL_WAIT_SECONDS = 10
AGAIN_SECONDS = 1.0     # between two tries to reach a server that went away
LOOK_SECONDS = 5.0      # for a server that went away in a commit to say what became of it
CHANNEL = "berth_intent"
_TRANSACTION = "berth_transaction"      # its number, beside the connection

# A server that is gone without a word is noticed within a minute, on both sides; by default it takes two hours.
# libpq: postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
_CONNECTION = {
    "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 60_000, "application_name": "berth",
}
# A wait for a lock ends as on SQLite; and whoever stopped in the middle of a transaction, a frozen process for
# instance, loses it instead of holding everybody else up.
_SESSION = {
    "lock_timeout": "30s", "idle_in_transaction_session_timeout": "60s", "timezone": "UTC",
    "tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3",
}
_LOCKS = 0x62657274     # the first half of every advisory lock of ours; the second is a Lock


class Lock(IntEnum):
    """Advisory locks, of a session or of a transaction. One database is one house: there is no instance in them."""

    AGENT = 1
    MIGRATION = 2
    PEOPLE = 11         # names, uids, gids, and that an administrator is left
    VOLUMES = 12        # names, and that no folder lies in another
    IMAGES = 13
    HOSTS = 14


def open_engine(url: URL) -> Engine:
    engine = create_engine(
        url, connect_args=_arguments(url), hide_parameters=True, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW,
        pool_timeout=POOL_WAIT_SECONDS, pool_pre_ping=True)
    engine.dialect.do_commit = partial(_commit, engine)     # type: ignore[method-assign]
    return engine


def ask_in_transaction(connection: Connection, question: str) -> object:
    """The answer to `question` (SELECT one column FROM …); in the same round trip the transaction gets its number."""
    row = connection.exec_driver_sql(question.replace(" FROM", ", txid_current() FROM", 1)).first()
    connection.connection.info[_TRANSACTION] = row and row[1]
    return row and row[0]


def connect_alone(url: URL) -> Connection:
    """A connection of nobody else's, in autocommit: what belongs to a session lasts as long as it."""
    engine = create_engine(
        url, connect_args=_arguments(url), hide_parameters=True, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    return engine.connect()


def is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def try_lock(connection: Connection, lock: Lock) -> bool:
    """For as long as the connection lives. False = another one has it."""
    return bool(connection.scalar(select(func.pg_try_advisory_lock(_LOCKS, lock))))


def lock_until_commit(session: Session, lock: Lock) -> None:
    session.execute(select(func.pg_advisory_xact_lock(_LOCKS, lock)))


def notify(session: Session) -> None:
    """Sent when the transaction commits, once however often it was called."""
    session.execute(select(func.pg_notify(CHANNEL, "")))


class ListeningDoorbell:
    """LISTEN on a connection of its own. Not thread-safe: one thread listens.

    What rang while the server was away is not lost: being back counts as a ring.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._listen()

    def wait(self, timeout_seconds: float) -> bool:
        """True as soon as intent changed; False after the time-out."""
        try:
            if self._connection is None:
                self._listen()
                log.info("doorbell.back")
                return True
            return bool(list(self._driver.notifies(timeout=timeout_seconds, stop_after=1)))
        except (DBAPIError, self._error) as error:
            if self._connection is not None:
                log.warning("doorbell.lost", error=error, next_try_seconds=AGAIN_SECONDS)
            self.close()
            time.sleep(min(AGAIN_SECONDS, timeout_seconds))
            return False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        _let_go(connection)

    def _listen(self) -> None:
        connection = connect_alone(self._url)
        connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        self._connection = connection
        self._driver: psycopg.Connection[Any] = cast(Any, connection.connection.driver_connection)
        self._error: type[Exception] = cast(Any, connection.dialect.loaded_dbapi).Error     # of the driver itself


class SoleAgent:
    """The lock of the one agent, held by a connection of its own. Not thread-safe.

    It goes with the connection. Until that is noticed a newer agent may begin; it raises the epoch before anything
    else, and with that every write of the older one is refused.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._connection: Connection | None = None

    def take(self, seconds: float) -> bool:
        """Within that time: the server may take a moment to see that a killed agent is gone."""
        deadline = time.monotonic() + seconds
        while not self.holds():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)
        return True

    def holds(self) -> bool:
        """Asks the server. A lock that was lost is taken again; False = another agent has it.

        Raises:  sqlalchemy's DBAPIError: the server does not answer, so nobody can tell.
        """
        try:
            if self._connection is not None:
                self._connection.exec_driver_sql("SELECT 1")
                return True
            self._connection = connect_alone(self._url)
            if try_lock(self._connection, Lock.AGENT):
                return True
        except DBAPIError:
            self.close()
            raise
        self.close()
        return False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        _let_go(connection)


def _commit(engine: Engine, connection: PoolProxiedConnection) -> None:
    """Nobody is told that something failed which happened: a connection that broke in the commit says nothing about
    it, but the server knows (postgresql.org/docs/current/functions-info.html, txid_status).

    A server that takes over and lacks what was answered before has lost that as well; this cannot tell it apart.
    """
    number = connection.info.pop(_TRANSACTION, None)
    try:
        connection.commit()
    except cast(Any, engine.dialect.loaded_dbapi).OperationalError as error:
        if number is None or not cast(Any, connection.driver_connection).closed:
            raise
        outcome = _outcome_of(engine.url, number)
        if outcome == "aborted":
            raise
        connection.invalidate()
        if outcome != "committed":
            raise CommitUnknown from error
        log.warning("database.commit_found", error=str(error).strip())


def _outcome_of(url: URL, number: int) -> str | None:
    """Of a transaction; None when the server does not say in time."""
    deadline = time.monotonic() + LOOK_SECONDS
    while (state := _state_of(url, number)) not in ("committed", "aborted"):
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.1)
    return state


def _state_of(url: URL, number: int) -> str | None:
    """"committed", "aborted", "in progress"; None = it does not answer."""
    try:
        with connect_alone(url) as connection:
            return cast("str | None", connection.scalar(select(func.txid_status(number))))
    except OperationalError:
        return None
    except DBAPIError:
        return "aborted"    # a number of the future: the server has begun anew, without it


def _let_go(connection: Connection | None) -> None:
    """Its server may be gone already."""
    if connection is not None:
        with suppress(DBAPIError):
            connection.close()


def _arguments(url: URL) -> dict[str, Any]:
    """What the address itself says comes last, so that it counts."""
    arguments: dict[str, Any] = {name: value for name, value in _CONNECTION.items() if name not in url.query}
    given = url.query.get("options", "")
    arguments["options"] = " ".join([*(f"-c {name}={value}" for name, value in _SESSION.items()), str(given)]).strip()
    return arguments
