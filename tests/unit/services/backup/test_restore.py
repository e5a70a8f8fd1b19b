"""berth restore: a house brought back, on hold; what does not fit is refused before anything is changed."""


from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from databases import IS_POSTGRESQL, Databases
from sqlalchemy import func, select

from services.backup.conftest import MODE, forged, members_of, names, restored
from webapp.domain.operation import OperationKind, OperationState
from webapp.services import images, operations, people, teams
from webapp.store.reads import agent as agent_reads
from webapp.store.reads import hold as reads
from webapp.store.session import Store
from webapp.store.tables import AgentState, Event, Host, Invite, Member, Operation, Role, Workspace, WorkspaceSecret


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

    def test_numbers_of_lost_members_and_teams_are_given_to_nobody(
        self, berth: Any, file: Path, backed: Store, cast: Any, now: datetime,
    ) -> None:
        """Their files are on the disks."""
        def newcomer(name: str) -> tuple[int, int]:
            with backed.write() as session:
                member = people.create_member(session, cast.carol, username=name, display_name="New",
                                              password="correct horse battery", role=Role.MEMBER, now=now)
                team = teams.create_team(session, cast.carol, name=f"{name}s", now=now)
                numbers = member.uid, team.gid
            backed.close()
            return numbers

        lost = newcomer("lost")
        assert berth("restore", file, "--replace").code == 0
        new = newcomer("next")
        assert new[0] > lost[0] and new[1] > lost[1]
