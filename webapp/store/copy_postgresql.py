"""A PostgreSQL dumped while it is written to, and restored in one transaction, by its own programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sqlalchemy import URL, Connection, text

from webapp.errors import N_, AppError
from webapp.store.copy_sqlite import DatabaseInUse
from webapp.store.postgresql import Lock
from webapp.store.session import Store

SERVERS = Path("/usr/lib/postgresql")       # where Debian keeps the programs of each version
CHUNK = 1024 * 1024
LOCK_SECONDS = 30
_VERSION = re.compile(r"\) (\d+)")


class ProgramMissing(AppError):
    code, status = "program_missing", 500
    title = N_("%(program)s of PostgreSQL %(server)s or newer is not installed here: %(why)s. "
               "Install it: apt-get install postgresql-client")


class CopyFailed(AppError):
    """Nothing was changed."""

    code, status = "copy_failed", 500
    title = N_("%(program)s failed, and nothing was changed: %(detail)s")


def dump(store: Store, target: Path, *, emptied: Iterable[str] = ()) -> str | None:
    """One moment of the database into `target`, in pg_dump's own format; the revision of its tables at that moment.

    Args:    emptied: tables whose rows are left out.
    Raises:  ProgramMissing, CopyFailed.
    """
    program = find("pg_dump", major(store))
    with _snapshot(store) as (connection, snapshot):
        revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
        left_out = [f"--exclude-table-data={table}" for table in emptied]
        _run([program, "-Fc", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={target}", *left_out,
              f"--lock-wait-timeout={LOCK_SECONDS}s", _address(store.url)], store.url)
    return None if revision is None else str(revision)


def restore(store: Store, source: Path, *, afterwards: Sequence[str]) -> None:
    """The dump in the place of all tables, and `afterwards` done to it: one transaction, so all of it or nothing.

    Nobody else may be connected.

    Args:    afterwards: statements of SQL.
    Raises:  ProgramMissing, CopyFailed, DatabaseInUse.
    """
    server = major(store)
    unpack, client = find("pg_restore", server), find("psql", server)
    schema, tables = _tables(store)
    store.close()
    quoted = [f'"{schema}"."{table}"' for table in tables]
    before = ["BEGIN;", "SET LOCAL client_min_messages = 'warning';", f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s';",
              *(f"DROP TABLE {table} CASCADE;" for table in quoted)]
    after = [f"SELECT pg_catalog.set_config('search_path', '\"{schema}\"', true);", *afterwards, "COMMIT;"]
    feed = [client, "--no-psqlrc", "--quiet", "--output=/dev/null", "--set=ON_ERROR_STOP=1", _address(store.url)]
    with subprocess.Popen(feed, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(store.url)) as psql:
        try:
            _feed(psql, before, [unpack, "--file=-", "--no-owner", "--no-privileges", str(source)], after)
        except BaseException:
            psql.kill()         # without COMMIT nothing of it is there
            raise
        _, said = psql.communicate()
    if psql.returncode:
        raise CopyFailed(program="psql", detail=_last(said))


def refuse_users(store: Store) -> None:
    """Raises DatabaseInUse: somebody is connected beside us, who have the agent's lock."""
    others = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                  "AND pid <> pg_backend_pid() AND usesysid IS NOT NULL AND pid NOT IN ("
                  "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = :agent AND granted)")
    with store.engine.connect() as connection:
        count = connection.scalar(others, {"agent": int(Lock.AGENT)})
    if count:
        raise DatabaseInUse(database=store.place, who=f"{count} connections beside this one")


def major(store: Store) -> int:
    """Of the server."""
    with store.engine.connect() as connection:
        return int(connection.scalar(text("SHOW server_version_num")) or 0) // 10_000


def find(program: str, server: int) -> str:
    """Of the server's version, else of a newer one: an older program refuses. Raises ProgramMissing."""
    installed = sorted((int(path.parts[-3]), path) for path in SERVERS.glob(f"*/bin/{program}")
                       if path.parts[-3].isdigit())
    fitting = [path for version, path in installed if version >= server]
    if fitting:
        return str(fitting[0])
    found = shutil.which(program)
    if found is None:
        raise ProgramMissing(program=program, server=server, why="there is none")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    version = _VERSION.search(said)
    if version is None or int(version[1]) < server:
        raise ProgramMissing(program=program, server=server, why=f"{found} is {said.strip() or 'of no known version'}")
    return found


@contextmanager
def _snapshot(store: Store) -> Iterator[tuple[Connection, str]]:
    """One state of the database for as long as the block lasts, and its name for pg_dump."""
    with store.engine.execution_options(isolation_level="REPEATABLE READ").connect() as connection, connection.begin():
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield connection, str(connection.scalar(text("SELECT pg_export_snapshot()")))


def _tables(store: Store) -> tuple[str, list[str]]:
    with store.engine.connect() as connection:
        schema = str(connection.scalar(text("SELECT current_schema()")))
        tables = connection.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = :schema"),
                                    {"schema": schema})
        return schema, sorted(map(str, tables))


def _feed(psql: subprocess.Popen[bytes], before: Sequence[str], unpack: Sequence[str], after: Sequence[str]) -> None:
    """COMMIT is sent only after the whole dump was unpacked."""
    into = psql.stdin
    if into is None:
        raise AssertionError("psql was started without a pipe")
    with subprocess.Popen(unpack, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as unpacking:
        _say(into, before)
        while unpacking.stdout is not None and (chunk := unpacking.stdout.read(CHUNK)):
            _write(into, chunk)
        said = unpacking.stderr.read() if unpacking.stderr is not None else b""
    if unpacking.returncode:
        raise CopyFailed(program="pg_restore", detail=_last(said))
    _say(into, after)


def _say(into: IO[bytes], statements: Sequence[str]) -> None:
    _write(into, "".join(f"{statement}\n" for statement in statements).encode())


def _write(into: IO[bytes], content: bytes) -> None:
    """psql may have ended already: what it has to say comes with its exit code."""
    try:
        into.write(content)
        into.flush()
    except BrokenPipeError:
        pass


def _run(command: Sequence[str], url: URL) -> None:
    done = subprocess.run(command, env=_environment(url), capture_output=True, check=False)
    if done.returncode:
        raise CopyFailed(program=Path(command[0]).name, detail=_last(done.stderr))


def _address(url: URL) -> str:
    """Without the password: everybody on a machine may read command lines."""
    plain = url._replace(drivername="postgresql", password=None)    # `set` takes None for "as it is"
    return f"--dbname={plain.render_as_string(hide_password=False)}"


def _environment(url: URL) -> dict[str, str]:
    password = {"PGPASSWORD": str(url.password)} if url.password else {}
    return {**os.environ, **password, "PGCONNECT_TIMEOUT": "10"}


def _last(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else "it said nothing"
