"""The database fails at any write of the agent, is upgraded under it, or lets it lose a dead-lock (F6, F33)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import datakey
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import webapp.agent
from agent.stage import INSTANCE, Stage, check_at_rest
from webapp.agent.outage import Outage
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Phase
from webapp.services import operations
from webapp.settings import Settings, load_settings
from webapp.store.failures import CommitUnknown
from webapp.store.revisions import DatabaseAhead, own
from webapp.store.session import Store

MOST_WRITES = 9         # more than any flow here has
SECONDS = 10.0


def full_disk() -> OperationalError:
    cause = sqlite3.OperationalError("database or disk is full")
    cause.sqlite_errorcode = sqlite3.SQLITE_FULL
    return OperationalError("UPDATE", {}, cause)


def lost_deadlock() -> OperationalError:
    cause = type("DeadlockDetected", (Exception,), {"sqlstate": "40P01"})("deadlock detected")
    return OperationalError("UPDATE", {}, cause)


class AilingStore:
    """The store, in which three writes fail, from number `at` on: before the commit, or with an answer that is lost."""

    def __init__(self, store: Store, at: int, error: Callable[[], Exception], *, committed: bool) -> None:
        self._store, self._error, self._committed = store, error, committed
        self._failing = range(at, at + 3)
        self.read = store.read
        self.writes = 0

    @contextmanager
    def write(self) -> Iterator[Session]:
        self.writes += 1
        fails = self.writes in self._failing
        if not (fails and self._committed):
            with self._store.write() as session:
                yield session
                if fails:
                    raise self._error()
            return
        with self._store.write() as session:
            yield session
        raise self._error()


class CrewLike:
    """Does the work at once; what goes wrong is handled as a crew does it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.submitted: list[str] = []

    def submit(self, key: str, work: Callable[..., None], *arguments: object) -> None:
        self.submitted.append(key)
        try:
            work(*arguments)
        except Exception as error:
            if not self._stage.context.outage.explains(error):
                raise


@pytest.fixture
def ailing(stage: Stage) -> Callable[..., AilingStore]:
    """ailing(3, full_disk) = a new agent whose third write fails, and the two after it."""
    def begin(at: int, error: Callable[[], Exception], *, committed: bool = False) -> AilingStore:
        store = AilingStore(stage.store, at, error, committed=committed)
        stage.hands = cast(Any, CrewLike(stage))
        stage.take_over(store=cast(Any, store))
        return store
    return begin


def go_on(stage: Stage, passes: int = 40) -> None:
    for _ in range(passes):
        stage.clock.sleep(stage.loop._pass_whatever_happens())
    stage.settle()


def events(log: list[Any], name: str) -> int:
    return sum(entry["event"] == name for entry in log)


@pytest.mark.parametrize(("error", "committed"), [(full_disk, False), (lost_deadlock, False), (CommitUnknown, True)])
@pytest.mark.parametrize("at", range(1, MOST_WRITES))
class TestEveryWrite:
    def test_launch_gets_there_all_the_same(
        self, stage: Stage, ailing: Callable[..., AilingStore], log: list[Any], at: int, error: Any, committed: bool,
    ) -> None:
        store = ailing(at, error, committed=committed)
        workspace = stage.launch()
        go_on(stage)
        row = stage.row(workspace)
        assert (row.phase, row.reason, row.failures) == (Phase.RUNNING, None, 0)
        assert store.writes > at + 2, "it never came to this write"
        assert events(log, "database.away") == 1, "said once"
        check_at_rest(stage)

    def test_stop_and_removal_give_everything_back(
        self, stage: Stage, ailing: Callable[..., AilingStore], at: int, error: Any, committed: bool,
    ) -> None:
        workspace = stage.running()
        ailing(at, error, committed=committed)
        stage.remove(workspace)
        go_on(stage)
        assert stage.row(workspace).phase == Phase.REMOVED
        assert not stage.containers() and not stage.ports(workspace)

    def test_log_that_was_read_is_handed_over(
        self, stage: Stage, ailing: Callable[..., AilingStore], at: int, error: Any, committed: bool,
    ) -> None:
        workspace = stage.running()
        asked = stage.do(operations.request, stage.cast.alice, OperationKind.WORKSPACE_LOGS,
                         workspace_id=workspace.id, arguments={})
        ailing(at, error, committed=committed)
        go_on(stage)
        assert stage.operation(asked).state == OperationState.DONE


class TestSaying:
    def test_outage_is_a_line_at_its_beginning_and_one_at_its_end(self, log: list[Any]) -> None:
        outage = Outage()
        for _ in range(3):
            assert outage.explains(full_disk())
        for _ in range(2):
            outage.is_over()
        assert [entry["event"] for entry in log] == ["database.away", "database.back"]
        assert "disk is full" in log[0]["detail"] and "exception" not in log[0]

    def test_bug_is_none(self, stage: Stage, log: list[Any]) -> None:
        outage = Outage()
        with pytest.raises(Exception) as bug, stage.store.read() as session:
            session.execute(text("SELECT nothing FROM members"))
        assert not outage.explains(bug.value) and not outage.explains(KeyError("id"))

    def test_sign_of_life_ends_it(self, stage: Stage, log: list[Any]) -> None:
        stop, outage = threading.Event(), Outage()
        assert outage.explains(full_disk())
        webapp.agent._live(stage.store, stop, outage, stage.context.epoch, lambda: True)
        assert [entry["event"] for entry in log] == ["database.away", "database.back"] and not stop.is_set()


class TestOtherVersion:
    @pytest.fixture
    def settings(self, tmp_path: Path, store: Store) -> Settings:
        datakey.put_into(tmp_path)
        return load_settings({
            "BERTH_STATE_DIR": str(tmp_path), "BERTH_INSTANCE": INSTANCE, "BERTH_MAX_CPUS": "8",
            "BERTH_DATABASE_URL": store.url.render_as_string(hide_password=False), "BERTH_MAX_MEMORY": "32GiB"})

    @staticmethod
    def upgrade(store: Store) -> None:
        with store.engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    def test_agent_ends_with_the_sentence_and_touches_nothing(
        self, stage: Stage, settings: Settings, log: list[Any], monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(webapp.agent, "ALIVE_SECONDS", 0.05)
        workspace = stage.running()
        before, stop, ended = stage.containers(), threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                webapp.agent.run(settings, stop, opener=lambda *_, **__: stage.engine)
            except DatabaseAhead as error:
                ended.append(error)

        process = threading.Thread(target=work)
        process.start()
        self.upgrade(stage.store)
        process.join(SECONDS)
        assert not process.is_alive() and "newer Berth" in str(ended[0])
        assert stage.containers() == before and before[0].is_up
        with stage.store.engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": own().head})
        assert stage.row(workspace).phase == Phase.RUNNING
        assert not [entry for entry in log if "exception" in entry]

    def test_worker_takes_it_for_no_failure_of_the_workspace(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.engine.on_create = lambda *_: None
        self.upgrade(stage.store)
        with pytest.raises(DatabaseAhead):
            stage.work_on(workspace)
        assert stage.deeds() == []

    def test_whichever_thread_meets_it_stops_the_agent(self) -> None:
        stop = threading.Event()
        outage = Outage(stop)
        assert outage.explains(DatabaseAhead(found="9999"))
        assert stop.is_set() and str(outage.refusal).startswith("The database was upgraded")
