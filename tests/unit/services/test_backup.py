"""berth backup and berth restore: a house kept in a file while it is at work, and brought back, on hold."""

from __future__ import annotations

import fcntl
import io
import json
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from databases import IS_POSTGRESQL, Databases
from sqlalchemy import func, select, text

from webapp.cli import root
from webapp.domain.operation import OperationKind, OperationState
from webapp.services import events, images, operations, people, workspaces
from webapp.services.orders import LaunchRequest
from webapp.store import copy_postgresql
from webapp.store.postgresql import Lock, connect_alone, try_lock
from webapp.store.reads import agent as agent_reads
from webapp.store.reads import hold as reads
from webapp.store.reads import people as people_reads
from webapp.store.session import Store
from webapp.store.tables import AgentState, Event, Host, Invite, Member, Operation, Role, Workspace, WorkspaceSecret

KIND = "postgresql" if IS_POSTGRESQL else "sqlite"
MODE = 0o777


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, databases: Databases, template: Any) -> Iterator[Path]:
    """A house with the cast in it; nothing answers where its web would listen."""
    for name in [name for name in os.environ if name.startswith("BERTH_") and not name.startswith("BERTH_TEST_")]:
        monkeypatch.delenv(name)
    state = tmp_path / "state"
    state.mkdir()
    (state / "instance").write_text("house1\n")
    (state / "secret_key").write_text("k" * 64 + "\n")
    (state / "secret_key").chmod(0o640)
    (state / "simulation").mkdir()
    monkeypatch.setenv("BERTH_STATE_DIR", str(state))
    monkeypatch.setenv("BERTH_DATABASE_URL", databases.make("backed", like=template[0]))
    monkeypatch.setenv("BERTH_ENGINE", f"unix://{tmp_path}/no-engine.sock")
    monkeypatch.setenv("BERTH_LISTEN", "127.0.0.1:9")
    yield state
    databases.drop("backed")
    databases.drop("other")


@pytest.fixture
def berth(state: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    def run(*arguments: object) -> SimpleNamespace:
        code = root.run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)
    return run


@pytest.fixture
def backed(state: Path) -> Iterator[Store]:
    """The house's database."""
    store = Store(os.environ["BERTH_DATABASE_URL"])
    yield store
    store.close()


@pytest.fixture
def work(backed: Store, cast: Any, house: Any, now: datetime) -> Callable[..., Workspace]:
    """work("run-1") = alice has launched it; the store is let go of."""
    def launch(name: str) -> Workspace:
        with backed.write() as session:
            request = LaunchRequest(name=name, image_id=cast.image_id)
            workspace = workspaces.launch(session, cast.alice, request, house=house, now=now)
        backed.close()
        return workspace
    return launch


def names(store: Store) -> list[str]:
    with store.read() as session:
        found = list(session.scalars(select(Workspace.name).order_by(Workspace.name)))
    store.close()
    return found


def members_of(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}      # type: ignore[union-attr]


def manifest_of(file: Path) -> dict[str, Any]:
    return dict(json.loads(members_of(file)["manifest.json"]))


def forged(file: Path, **changes: Any) -> Path:
    """The same backup with another manifest, or other members."""
    members = members_of(file)
    manifest = {**json.loads(members["manifest.json"]), **changes.pop("manifest", {})}
    members |= {"manifest.json": json.dumps(manifest).encode(), **changes}
    target = file.with_name("forged.tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target


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


def restored(
    berth: Any, tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch, *options: str,
) -> Store:
    """The backup on a new machine: its store, which whoever asks closes."""
    (tmp_path / "new").mkdir(exist_ok=True)
    monkeypatch.setenv("BERTH_STATE_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("BERTH_DATABASE_URL", databases.make("other"))
    if not IS_POSTGRESQL:
        databases.drop("other")     # not even an empty file
    done = berth("restore", tmp_path / "house.tar.gz", *options)
    assert done.code == 0, done.err
    return Store(os.environ["BERTH_DATABASE_URL"])


@pytest.fixture
def file(berth: Any, work: Any, tmp_path: Path) -> Path:
    """Yesterday's backup; there was one workspace. Today there are two."""
    work("old")
    path = tmp_path / "house.tar.gz"
    assert berth("backup", path).code == 0
    work("new")
    return path


class TestRestore:
    def test_on_a_new_machine_all_is_as_it_was(
        self, berth: Any, file: Path, tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = restored(berth, tmp_path, databases, monkeypatch)
        assert names(store) == ["old"]
        assert (tmp_path / "new" / "instance").read_text() == "house1\n"
        assert (tmp_path / "new" / "secret_key").read_text() == "k" * 64 + "\n"
        assert (tmp_path / "new" / "secret_key").stat().st_mode & MODE == 0o640
        assert not [path for path in (tmp_path / "new").iterdir() if "restore" in path.name and path.is_dir()]

    def test_house_that_is_there_is_replaced_only_when_asked_to_and_kept(
        self, berth: Any, file: Path, backed: Store, state: Path,
    ) -> None:
        refused = berth("restore", file)
        assert refused.code == 4 and "4 members and 2 workspaces" in refused.err and "--replace" in refused.err
        assert names(backed) == ["new", "old"]
        done = berth("restore", file, "--replace")
        assert done.code == 0, done.err
        assert names(backed) == ["old"] and "kept in" in done.out
        kept = Path(next(line for line in done.out.splitlines() if "kept in" in line).rpartition(" kept in ")[2])
        if IS_POSTGRESQL:
            assert kept.parent == state and kept.stat().st_mode & MODE == 0o600
        else:
            assert names(Store(f"sqlite:///{kept}")) == ["new", "old"]

    def test_is_on_hold_and_nobody_of_before_has_a_say(
        self, berth: Any, file: Path, backed: Store, cast: Any, now: datetime,
    ) -> None:
        with backed.write() as session:
            session.get_one(AgentState, 1).epoch = 7
            waiting = operations.request(session, cast.carol, OperationKind.WORKSPACE_LOGS, now=now,
                                         workspace_id=session.scalars(select(Workspace.id)).first() or "",
                                         arguments={})
        backed.close()
        assert berth("restore", file, "--replace").code == 0
        with backed.read() as session:
            on = reads.current(session)
            assert on is not None and (on.why, on.instance, on.looks) == ("restore", "house1", {})
            assert on.made_at is not None and on.made_at < on.since <= datetime.now(UTC)
            assert agent_reads.may_act(session, 8) is False
            assert session.get_one(AgentState, 1).epoch > 7
            epochs = set(session.scalars(select(Member.session_epoch)))
            assert min(epochs) > 0 and session.get(Operation, waiting.id) is None
            assert session.scalar(select(Event.action).where(Event.action == "database.restore"))

    def test_what_waited_in_the_backup_is_ended(
        self, berth: Any, work: Any, backed: Store, cast: Any, now: datetime, tmp_path: Path,
    ) -> None:
        workspace = work("run-1")
        with backed.write() as session:
            logs = operations.request(session, cast.carol, OperationKind.WORKSPACE_LOGS, workspace_id=workspace.id,
                                      arguments={}, now=now)
            row = session.get_one(Workspace, workspace.id)
            row.phase, row.observed_generation = "running", row.generation
            saving = images.save(session, cast.alice, workspace.id, title="Saved", team_id=None, now=now)
        backed.close()
        assert berth("backup", tmp_path / "b").code == 0
        assert berth("restore", tmp_path / "b", "--replace").code == 0
        with backed.read() as session:
            states = [session.get_one(Operation, each.id) for each in (logs, saving)]
            assert [each.state for each in states] == [OperationState.CANCELLED] * 2
            # An image that was saved since is nobody's to take away.
            assert states[1].arguments == {} and states[1].image_id is None

    def test_without_keys_people_sign_in_and_workspaces_have_no_secrets(
        self, berth: Any, work: Any, backed: Store, cast: Any, now: datetime, tmp_path: Path, state: Path,
    ) -> None:
        work("run-1")
        with backed.write() as session:
            people.make_invite(session, cast.carol, role=Role.MEMBER, now=now)
        backed.close()
        assert berth("backup", tmp_path / "b", "--without-keys").code == 0
        (state / "secret_key").write_text("n" * 64 + "\n")
        done = berth("restore", tmp_path / "b", "--replace")
        assert done.code == 0 and "reads them back" in done.out
        assert (state / "secret_key").read_text() == "n" * 64 + "\n"
        with backed.read() as session:
            assert session.scalar(select(func.count()).select_from(WorkspaceSecret)) == 0
            assert session.scalar(select(func.count()).select_from(Invite)) == 0
            assert people.authenticate(session, username="alice", password="correct horse battery") is not None
            host = session.scalars(select(Host.id)).one()
            assert len(agent_reads.without_secrets(session, host)) == 1

    def test_restored_twice_is_restored(self, berth: Any, file: Path, backed: Store) -> None:
        for _ in range(2):
            assert berth("restore", file, "--replace").code == 0
        assert names(backed) == ["old"]

    def test_damage_is_found_before_anything_is_changed(self, berth: Any, file: Path, backed: Store) -> None:
        content = members_of(file)["database"]
        whole = file.read_bytes()
        cut = file.with_name("cut.tar.gz")
        cut.write_bytes(whole[:len(whole) // 2])
        text_ = file.with_name("text.tar.gz")
        text_.write_text("no archive")
        flipped = bytes([content[100] ^ 1])
        broken = [cut, text_, file.with_name("none"), forged(file, database=content[:100] + flipped + content[101:])]
        for each in broken:
            done = berth("restore", each, "--replace")
            assert done.code == 1 and "Nothing was changed" in done.err, each
        assert names(backed) == ["new", "old"]

    @pytest.mark.parametrize(("manifest", "said"), [
        ({"format": "other"}, "another program's"),
        ({"version": 2}, "of a newer Berth"),
        ({"schema": "9999"}, "newer Berth"),
        ({"database": "sqlite" if IS_POSTGRESQL else "postgresql"}, "Rows are not carried over"),
        ({"members": {}}, "lacks something"),
        ({"members": "x"}, "lacks something"),
        ({"made_at": "yesterday"}, "lacks something"),
    ])
    def test_backup_that_does_not_fit_says_why(
        self, berth: Any, file: Path, backed: Store, manifest: dict[str, Any], said: str,
    ) -> None:
        done = berth("restore", forged(file, manifest=manifest), "--replace")
        assert done.code == 1 and said in done.err, done.err
        assert names(backed) == ["new", "old"]

    def test_member_of_an_archive_is_written_nowhere_else(self, berth: Any, file: Path, tmp_path: Path) -> None:
        content = b"evil"
        evil = forged(file, **{"../../escaped": content})
        berth("restore", evil, "--replace")
        assert not list(tmp_path.rglob("escaped"))

    def test_another_instance_is_refused(
        self, berth: Any, file: Path, state: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (state / "instance").write_text("other1\n")
        refused = berth("restore", file)
        assert refused.code == 4 and "house1" in refused.err and "other1" in refused.err
        monkeypatch.setenv("BERTH_INSTANCE", "other1")
        given = berth("restore", file, "--replace")
        assert given.code == 1 and "BERTH_INSTANCE" in given.err
        monkeypatch.delenv("BERTH_INSTANCE")
        done = berth("restore", file, "--replace")
        assert done.code == 0 and (state / "instance").read_text() == "house1\n"
        assert [path.read_text() for path in state.glob("instance.replaced-*")] == ["other1\n"]


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
        class Healthz(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Healthz)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        monkeypatch.setenv("BERTH_LISTEN", f"127.0.0.1:{server.server_port}")
        done = berth("restore", file, "--replace")
        thread.join()
        server.server_close()
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
