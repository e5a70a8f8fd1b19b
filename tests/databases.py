"""Databases of tests: SQLite files, or with BERTH_TEST_DATABASE=postgresql those of a server (tests/postgresql.py)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from postgresql import Server
from sqlalchemy import Engine, NullPool, create_engine, make_url

IS_POSTGRESQL = os.environ.get("BERTH_TEST_DATABASE") == "postgresql"


class Databases(Protocol):
    """Each has a name, and an address which is the same whenever it is made anew."""

    def url(self, name: str) -> str: ...

    def make(self, name: str, like: str | None = None) -> str:
        """The address of a new one, empty or like another one that nobody uses just now."""
        ...

    def drop(self, name: str) -> None: ...


class Files:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, name: str) -> str:
        return f"sqlite:///{self._folder}/{name}.db"

    def make(self, name: str, like: str | None = None) -> str:
        self.drop(name)
        if like is not None:
            shutil.copy(self._folder / f"{like}.db", self._folder / f"{name}.db")
        return self.url(name)

    def drop(self, name: str) -> None:
        for left in self._folder.glob(f"{name}.db*"):
            left.unlink()


class OfServer:
    """`worker`: part of every name, so that tests run side by side on one server."""

    def __init__(self, url: str, worker: str) -> None:
        self._url, self._worker = make_url(url), worker
        self._engine: Engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def url(self, name: str) -> str:
        return self._url.set(database=self._name(name)).render_as_string(hide_password=False)

    def make(self, name: str, like: str | None = None) -> str:
        # Copying files takes a third of the time that the default takes, which writes every page to the log.
        of = f'TEMPLATE "{self._name(like)}" STRATEGY FILE_COPY' if like else ""
        self._run(f'DROP DATABASE IF EXISTS "{self._name(name)}" WITH (FORCE)',
                  f'CREATE DATABASE "{self._name(name)}" {of}')
        return self.url(name)

    def drop(self, name: str) -> None:
        self._run(f'DROP DATABASE IF EXISTS "{self._name(name)}" WITH (FORCE)')

    def _name(self, name: str) -> str:
        return f"{self._worker}-{name}"

    def _run(self, *statements: str) -> None:
        with self._engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)


@contextmanager
def databases(folder: Path) -> Iterator[Databases]:
    """`folder`: of nobody else's, for the files."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    given = os.environ.get("BERTH_TEST_POSTGRESQL")
    if not IS_POSTGRESQL:
        yield Files(folder)
    elif given:
        yield OfServer(given, worker)
    else:
        with a_server() as server:
            yield OfServer(server.url(), worker)


@contextmanager
def a_server(name: str = "own") -> Iterator[Server]:
    """A server of this test process alone, to be killed at will: what was committed is there afterwards."""
    server = Server.create(f"{os.getpid()}-{name}", synchronous_commit="on")
    try:
        yield server
    finally:
        server.remove()
