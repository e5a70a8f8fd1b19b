"""berth backup: a house kept in a file while it is at work."""


from __future__ import annotations

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from databases import IS_POSTGRESQL, Databases
from sqlalchemy import func, select, text

from services.backup.conftest import KIND, MODE, manifest_of, members_of, restored
from webapp.services import events
from webapp.store.session import Store
from webapp.store.tables import Event, WorkspaceSecret


class TestBackup:
    def test_holds_database_instance_and_keys_and_nothing_else(self, berth: Any, work: Any, tmp_path: Path) -> None:
        work("run-1")
        file = tmp_path / "house.tar.gz"
        done = berth("backup", file)
        assert done.code == 0, done.err
        members, manifest = members_of(file), manifest_of(file)
        assert list(members) == ["manifest.json", "database", "instance", "secret_key"]
        assert (manifest["instance"], manifest["database"], manifest["with_keys"]) == ("house1", KIND, True)
        assert manifest["schema"] >= "0003" and datetime.fromisoformat(manifest["made_at"]).tzinfo is not None
        assert file.stat().st_mode & MODE == 0o600 and members["secret_key"] == b"k" * 64 + b"\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["house.tar.gz", "state"]

    def test_without_keys_no_secret_is_anywhere_in_it(
        self, berth: Any, work: Any, backed: Store, tmp_path: Path,
    ) -> None:
        workspace = work("run-1")
        with backed.read() as session:
            secret = session.get_one(WorkspaceSecret, workspace.id)
        backed.close()
        file = tmp_path / "house.tar.gz"
        assert berth("backup", file, "--without-keys").code == 0
        members = members_of(file)
        assert "secret_key" not in members and manifest_of(file)["with_keys"] is False
        content = members["database"]
        if not IS_POSTGRESQL:
            assert b"run-1" in content
        for text_ in (secret.jupyter_token, secret.host_private_key.splitlines()[2]):
            assert text_.encode() not in content

    def test_file_that_is_there_is_overwritten_only_by_force(self, berth: Any, tmp_path: Path) -> None:
        file = tmp_path / "house.tar.gz"
        file.write_text("mine")
        done = berth("backup", file)
        assert (done.code, file.read_text()) == (4, "mine") and "--force" in done.err
        assert berth("backup", file, "--force").code == 0 and manifest_of(file)

    def test_what_cannot_be_written_says_why(self, berth: Any, tmp_path: Path) -> None:
        done = berth("backup", tmp_path / "no" / "house.tar.gz")
        assert done.code == 1 and "no such file or directory" in done.err

    def test_one_that_was_killed_leaves_nothing_for_ever(self, berth: Any, tmp_path: Path) -> None:
        left = tmp_path / ".house.tar.gz.part"
        left.mkdir()
        (left / "database").write_text("half")
        assert berth("backup", tmp_path / "house.tar.gz").code == 0
        assert not left.exists()

    def test_two_at_once_to_one_file_are_one(self, berth: Any, tmp_path: Path) -> None:
        other = tmp_path / ".house.tar.gz.part"
        other.mkdir()
        held = os.open(other, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        done = berth("backup", tmp_path / "house.tar.gz")
        os.close(held)
        assert done.code == 4 and "Another backup" in done.err

    def test_database_of_another_version_is_named(self, berth: Any, backed: Store, tmp_path: Path) -> None:
        for revision, said in (("0001", "berth migrate"), ("9999", "newer Berth")):
            with backed.engine.begin() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
            backed.close()
            done = berth("backup", tmp_path / "house.tar.gz")
            assert done.code == 6 and said in done.err

    def test_in_the_middle_of_eight_writers_it_is_one_moment(
        self, berth: Any, backed: Store, cast: Any, now: datetime, tmp_path: Path, databases: Databases,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Each transaction writes two lines: a copy in between would have an odd number of some writer's."""
        stop, written = threading.Event(), threading.Semaphore(0)

        def write(number: int) -> None:
            while not stop.is_set():
                with backed.write() as session:
                    for _ in range(2):
                        events.write(session, cast.carol, f"test.{number}", "test", "x" * 500, now=now)
                        session.flush()
                written.release()

        with ThreadPoolExecutor(8) as pool:
            writers = [pool.submit(write, number) for number in range(8)]
            for _ in range(40):
                written.acquire()
            done = berth("backup", tmp_path / "house.tar.gz")
            for _ in range(10):
                written.acquire()
            stop.set()
        assert done.code == 0, done.err
        for writer in writers:
            writer.result()
        backed.close()
        restored(berth, tmp_path, databases, monkeypatch)
        with Store(os.environ["BERTH_DATABASE_URL"]).read() as session:
            counts = dict(session.execute(select(Event.action, func.count()).where(Event.action.like("test.%"))
                                          .group_by(Event.action)).all())
        assert counts and all(count % 2 == 0 for count in counts.values())
