"""Operations: keys into running workspaces, and logs out of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from agent.stage import Stage
from webapp.agent.operations import carry_out
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Phase, Service
from webapp.errors import EngineRejected, EngineUnreachable
from webapp.services import keys, operations, secrets
from webapp.store.tables import Operation, SshKey, Workspace

SILENCE = EngineUnreachable(host="gpu1", detail="timed out")
KEYS_FILE = "/etc/berth/authorized_keys"


@pytest.fixture
def workspace(stage: Stage) -> Workspace:
    return stage.running()


def add_key(stage: Stage) -> SshKey:
    line = secrets.new_secrets().host_public_key
    added: list[SshKey] = stage.do(
        keys.add_keys, stage.cast.alice, member_id=stage.cast.alice.member_id, text=line, title="laptop")
    return added[0]


def letting_in(stage: Stage, workspace: Workspace) -> list[str]:
    """The keys in its container, as sshd reads them."""
    content = stage.engine.read_file(stage.name(workspace), KEYS_FILE) or b""
    return content.decode().splitlines()


def ask_logs(stage: Stage, workspace: Workspace, **arguments: Any) -> Operation:
    asked: Operation = stage.do(operations.request, stage.cast.alice, OperationKind.WORKSPACE_LOGS,
                                workspace_id=workspace.id, arguments=arguments)
    return asked


def during(stage: Stage, call: str, act: Callable[[], object]) -> None:
    """Right before the next such call of the engine is carried out, somebody acts."""
    original = getattr(stage.engine, call)

    def slow(*arguments: Any, **keywords: Any) -> Any:
        setattr(stage.engine, call, original)
        act()
        return original(*arguments, **keywords)

    setattr(stage.engine, call, slow)


def of(stage: Stage, workspace: Workspace) -> Operation:
    with stage.store.read() as session:
        return session.scalars(select(Operation).where(Operation.workspace_id == workspace.id)).one()


class TestKeys:
    def test_new_key_opens_a_running_workspace(self, stage: Stage, workspace: Workspace) -> None:
        key = add_key(stage)
        stage.settle()
        assert letting_in(stage, workspace) == [key.line]

    def test_removed_key_opens_it_no_more(self, stage: Stage, workspace: Workspace) -> None:
        key, other = add_key(stage), add_key(stage)
        stage.do(keys.remove_key, stage.cast.alice, key.id)
        stage.settle()
        assert letting_in(stage, workspace) == [other.line]

    def test_only_the_keys_are_written(self, stage: Stage, workspace: Workspace) -> None:
        stage.forget_calls()
        add_key(stage)
        stage.settle()
        assert stage.deeds() == [f"put {stage.name(workspace)}"]

    @pytest.mark.parametrize("times", [1, 5])
    def test_silent_engine_only_delays_it(self, stage: Stage, workspace: Workspace, times: int) -> None:
        """A key that was taken away must go, however long the engine is silent."""
        key = add_key(stage)
        stage.settle()
        for _ in range(times):
            stage.engine.fail_next("put", SILENCE)
        stage.do(keys.remove_key, stage.cast.alice, key.id)
        stage.live(20)
        assert letting_in(stage, workspace) == []

    def test_silence_is_no_hot_loop(self, stage: Stage, workspace: Workspace) -> None:
        for _ in range(50):
            stage.engine.fail_next("put", SILENCE)
        add_key(stage)
        stage.forget_calls()
        stage.loop.one_pass()
        before = stage.clock.time
        stage.loop.one_pass()
        assert stage.clock.time - before > timedelta(seconds=1)

    @pytest.mark.parametrize("call", ["create", "read_file", "put", "start"])
    def test_key_added_during_a_launch_is_not_lost(self, stage: Stage, call: str) -> None:
        """The start reads the keys, then writes them; a change between the two must win."""
        workspace = stage.launch()
        added: list[SshKey] = []
        during(stage, call, lambda: added.append(add_key(stage)))
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING
        assert letting_in(stage, workspace) == [added[0].line]

    def test_operation_that_comes_between_reading_and_writing_is_not_undone(self, stage: Stage) -> None:
        workspace = stage.launch()
        added: list[SshKey] = []

        def operation_is_faster() -> None:
            added.append(add_key(stage))
            carry_out(stage.context, of(stage, workspace).id)

        during(stage, "put", operation_is_faster)
        stage.settle()
        assert letting_in(stage, workspace) == [added[0].line]

    def test_change_while_the_operation_writes_is_written_too(self, stage: Stage, workspace: Workspace) -> None:
        first, second = add_key(stage), []
        during(stage, "put", lambda: second.append(add_key(stage)))
        stage.settle()
        assert letting_in(stage, workspace) == [first.line, second[0].line]

    def test_stopped_workspace_has_them_at_its_next_start(self, stage: Stage, workspace: Workspace) -> None:
        stage.stop(workspace)
        stage.settle()
        key = add_key(stage)
        stage.start(workspace)
        stage.settle()
        assert letting_in(stage, workspace) == [key.line]

    def test_workspace_without_a_container_has_nothing_to_be_written(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.remove_by_hand(stage.name(workspace))
        add_key(stage)
        asked = of(stage, workspace)
        stage.settle()
        assert stage.operation(asked).state == OperationState.DONE


class TestLogs:
    def test_last_lines(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.print_log(stage.name(workspace), "one\ntwo\nthree\n")
        asked = ask_logs(stage, workspace, tail_lines=2)
        stage.settle()
        done = stage.operation(asked)
        assert (done.state, done.result and done.result["text"]) == (OperationState.DONE, "two\nthree\n")

    def test_of_a_long_log_the_end_is_kept(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.print_log(stage.name(workspace), "x" * 200_000 + "the end")
        asked = ask_logs(stage, workspace)
        stage.settle()
        result = stage.operation(asked).result
        assert result is not None and result["truncated"]
        assert len(result["text"]) <= 64 * 1024 and result["text"].endswith("the end")

    def test_of_a_stopped_workspace_too(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.print_log(stage.name(workspace), "before\n")
        stage.stop(workspace)
        stage.settle()
        asked = ask_logs(stage, workspace)
        stage.settle()
        assert (stage.operation(asked).result or {})["text"] == "before\n"

    def test_without_a_container_they_are_empty(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.remove_by_hand(stage.name(workspace))
        asked = ask_logs(stage, workspace)
        stage.settle()
        assert (stage.operation(asked).result or {})["text"] == ""

    @pytest.mark.parametrize(("error", "code"), [
        (SILENCE, "engine_unreachable"),                # somebody waits for it: said at once
        (EngineRejected(host="gpu1", detail="configured logging driver does not support reading"), "engine_rejected"),
    ])
    def test_engine_that_does_not_give_them(
        self, stage: Stage, workspace: Workspace, error: Exception, code: str,
    ) -> None:
        stage.engine.fail_next("logs", error)
        asked = ask_logs(stage, workspace)
        stage.settle()
        failed = stage.operation(asked)
        assert (failed.state, failed.reason and failed.reason["code"]) == (OperationState.FAILED, code)

    def test_bug_ends_the_operation(self, stage: Stage, workspace: Workspace, log: list[Any]) -> None:
        stage.engine.fail_next("logs", KeyError("a bug"))
        asked = ask_logs(stage, workspace)
        stage.settle()
        log.clear()
        assert (stage.operation(asked).reason or {})["code"] == "internal"

    def test_they_come_while_the_workspace_is_at_work(self, stage: Stage) -> None:
        """A launch that hangs is when one wants to see them."""
        workspace, asked = stage.launch(), []
        stage.silent = {Service.SSH}

        def look_into_it() -> None:
            stage.on_sleep = lambda: None
            stage.engine.print_log(stage.name(workspace), "sshd: no hostkeys\n")
            asked.append(ask_logs(stage, workspace))
            carry_out(stage.context, asked[0].id)

        stage.on_sleep = look_into_it
        stage.settle()
        assert (stage.operation(asked[0]).result or {})["text"] == "sshd: no hostkeys\n"


class TestTime:
    def test_expired_one_is_not_done_and_says_so(self, stage: Stage, workspace: Workspace) -> None:
        asked = ask_logs(stage, workspace)
        stage.clock.sleep(121)
        stage.loop.one_pass()
        assert stage.operation(asked).state == OperationState.WAITING
        stage.do(operations.expire)
        failed = stage.operation(asked)
        assert (failed.state, failed.reason and failed.reason["code"]) == (OperationState.FAILED, "expired")

    def test_one_that_a_dead_agent_had_taken_is_done_by_the_next(self, stage: Stage, workspace: Workspace) -> None:
        asked = ask_logs(stage, workspace)
        stage.do(operations.take, asked.id)
        stage.settle()
        assert stage.operation(asked).state == OperationState.RUNNING
        with stage.store.write() as session:
            operations.requeue_running(session)
        stage.settle()
        assert stage.operation(asked).state == OperationState.DONE
