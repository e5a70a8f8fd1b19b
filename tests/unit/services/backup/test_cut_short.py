"""berth restore while somebody uses the house, or cut short: one of the two is whole."""


from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from services.backup.conftest import forged, manifest_of, members_of, names
from webapp.store import copy_postgresql
from webapp.store.postgresql import Lock, connect_alone, try_lock
from webapp.store.reads import agent as agent_reads
from webapp.store.reads import hold as reads
from webapp.store.reads import people as people_reads
from webapp.store.session import Store
from webapp.store.tables import AgentState


class TestInUse:
    @pytest.mark.parametrize("name", ["agent.lock", "up.lock"])
    def test_running_agent_or_berth_refuses(self, berth: Any, file: Path, state: Path, name: str) -> None:
        held = os.open(state / name, os.O_RDWR | os.O_CREAT)
        fcntl.flock(held, fcntl.LOCK_EX)
        done = berth("restore", file, "--replace")
        os.close(held)
        assert done.code == 4 and "runs already" in done.err
        assert berth("restore", file, "--replace").code == 0

    def test_running_web_refuses(self, berth: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            monkeypatch.setenv("BERTH_LISTEN", f"127.0.0.1:{listener.getsockname()[1]}")
            done = berth("restore", file, "--replace")
        assert done.code == 4 and "Stop web first" in done.err

    def test_whoever_has_the_database_open_is_not_robbed_of_it(self, berth: Any, file: Path, backed: Store) -> None:
        with backed.read() as session:
            assert people_reads.members(session)
            done = berth("restore", file, "--replace")
            assert done.code == 4 and "in use" in done.err, done.err
        assert names(backed) == ["new", "old"]
        assert berth("restore", file, "--replace").code == 0

    @pytest.mark.postgresql
    def test_agent_of_another_server_refuses(self, berth: Any, file: Path, backed: Store) -> None:
        connection = connect_alone(backed.url)
        assert try_lock(connection, Lock.AGENT)
        done = berth("restore", file, "--replace")
        connection.close()
        assert done.code == 4 and "runs already on the database" in done.err


class Killed(BaseException):
    """As a power cut: nothing after it is done."""


@pytest.mark.sqlite
class TestCutShort:
    @pytest.mark.parametrize("moment", range(1, 14))
    def test_old_or_new_is_whole_and_the_next_run_goes_through(
        self, berth: Any, file: Path, backed: Store, state: Path, monkeypatch: pytest.MonkeyPatch, moment: int,
    ) -> None:
        """Killed before the n-th change of a name, however many there are."""
        calls = iter(range(1, 1000))

        def counted(name: str) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(*arguments: Any, **named: Any) -> Any:
                if next(calls) == moment:
                    raise Killed
                return real(*arguments, **named)
            return call

        with monkeypatch.context() as patch:
            for name in ("link", "rename", "replace", "fsync"):
                patch.setattr(os, name, counted(name))
            with suppress(Killed):
                berth("restore", file, "--replace")
        found = names(backed)
        with backed.read() as session:
            on = reads.current(session)
        backed.close()
        assert found == (["old"] if on else ["new", "old"])
        done = berth("restore", file, "--replace")
        assert done.code == 0, done.err
        assert names(backed) == ["old"] and (state / "instance").read_text() == "house1\n"

    def test_damaged_database_is_replaced_and_kept(
        self, berth: Any, file: Path, backed: Store, state: Path,
    ) -> None:
        path = backed.sqlite_path
        assert path is not None
        backed.close()
        path.write_bytes(b"no database" * 100)
        refused = berth("restore", file)
        assert refused.code == 4 and "unknown number" in refused.err
        done = berth("restore", file, "--replace")
        assert done.code == 0, done.err
        assert names(backed) == ["old"]
        [kept] = path.parent.glob(f"{path.name}.replaced-*")
        assert kept.read_bytes().startswith(b"no database")


@pytest.mark.postgresql
class TestPostgresql:
    def test_dump_that_cannot_be_played_in_changes_nothing(self, berth: Any, file: Path, backed: Store) -> None:
        done = berth("restore", spoiled(file), "--replace")
        assert done.code == 1 and "nothing was changed" in done.err, done.err
        assert names(backed) == ["new", "old"]
        with backed.read() as session:
            assert reads.current(session) is None

    def test_killed_before_its_commit_it_changes_nothing(
        self, berth: Any, file: Path, backed: Store, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        say = copy_postgresql._say

        def killed(into: Any, statements: list[str]) -> None:
            if "COMMIT;" in statements:
                raise Killed
            say(into, statements)

        with monkeypatch.context() as patch:
            patch.setattr(copy_postgresql, "_say", killed)
            with pytest.raises(Killed):
                berth("restore", file, "--replace")
        assert names(backed) == ["new", "old"]
        assert berth("restore", file, "--replace").code == 0
        assert names(backed) == ["old"]

    def test_killed_after_it_berth_is_on_hold(
        self, berth: Any, file: Path, backed: Store, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def killed(*_: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr("webapp.services.restored.finish", killed)
            with pytest.raises(Killed):
                berth("restore", file, "--replace")
        with backed.read() as session:
            assert reads.is_on(session) and not agent_reads.may_act(session, session.get_one(AgentState, 1).epoch)
        assert names(backed) == ["old"]

    def test_tables_of_a_newer_berth_go_too(self, berth: Any, file: Path, backed: Store) -> None:
        with backed.engine.begin() as connection:
            connection.execute(text("CREATE TABLE later (id INTEGER PRIMARY KEY)"))
        backed.close()
        assert berth("restore", file, "--replace").code == 0
        with backed.engine.connect() as connection:
            assert connection.scalar(text("SELECT to_regclass('later')")) is None

    def test_missing_and_older_programs_are_named(
        self, berth: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(copy_postgresql, "SERVERS", tmp_path / "none")
        monkeypatch.setenv("PATH", str(tmp_path))
        done = berth("backup", tmp_path / "b")
        assert done.code == 1 and "pg_dump" in done.err and "there is none" in done.err
        old = tmp_path / "pg_dump"
        old.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 9.6.1'\n")
        old.chmod(0o755)
        done = berth("backup", tmp_path / "b")
        assert done.code == 1 and "9.6.1" in done.err and "postgresql-client" in done.err

    def test_password_is_in_no_command_line(self, backed: Store) -> None:
        url = backed.url.set(password="pass-canary")
        assert "pass-canary" not in copy_postgresql._address(url)
        assert copy_postgresql._environment(url)["PGPASSWORD"] == "pass-canary"


def spoiled(file: Path) -> Path:
    """Its dump ends in the middle, with a manifest that says so is right."""
    import hashlib
    content = members_of(file)["database"]
    content = content[:len(content) * 2 // 3]
    manifest = manifest_of(file)
    manifest["members"]["database"] = {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    return forged(file, manifest=manifest, database=content)
