from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.reasons import Reason
from webapp.errors import NotFound
from webapp.services import operations
from webapp.store.tables import Operation


@pytest.fixture
def workspace(launch, alice):
    return launch(alice)


@pytest.fixture
def ask(do, alice, workspace):
    def run(actor=alice, **kwargs):
        return do(operations.request, actor, OperationKind.WORKSPACE_LOGS, workspace_id=workspace.id,
                  **{"arguments": {"tail_lines": 200}, **kwargs})
    return run


@pytest.fixture
def state(row):
    return lambda operation: row(Operation, operation.id).state


def test_waiting_request_for_the_same_is_reused(ask, do):
    first = ask()
    assert ask().id == first.id
    do(operations.take, first.id)
    assert ask().id != first.id


def test_stranger_asks_in_vain(ask, bob):
    with pytest.raises(NotFound):
        ask(bob)


@pytest.mark.parametrize("asked, given", [(200, 200), (0, 1), (10**9, operations.MOST_TAIL_LINES)])
def test_number_of_lines_is_bounded(ask, asked, given):
    assert ask(arguments={"tail_lines": asked}).arguments == {"tail_lines": given}


def test_only_one_takes_it(ask, store, now):
    operation = ask()

    def take(_: int) -> bool:
        with store.write() as session:
            return operations.take(session, operation.id, now)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(take, range(4))) == [False, False, False, True]


def test_result_is_kept(ask, do, row):
    operation = ask()
    do(operations.take, operation.id)
    assert do(operations.finish, operation.id, result={"text": "hello"})
    kept = row(Operation, operation.id)
    assert (kept.state, kept.result) == (OperationState.DONE, {"text": "hello", "truncated": False})


def test_end_of_a_long_result_is_kept(ask, do, row):
    operation = ask()
    do(operations.take, operation.id)
    do(operations.finish, operation.id, result={"text": "ä" * 100_000 + "end"})
    result = row(Operation, operation.id).result
    assert result["text"].endswith("äend") and result["truncated"]
    assert len(result["text"].encode()) <= operations.RESULT_BYTES


def test_failure_carries_its_reason(ask, do, row):
    operation = ask()
    do(operations.take, operation.id)
    do(operations.finish, operation.id, reason=Reason("not_running"))
    kept = row(Operation, operation.id)
    assert (kept.state, kept.reason["code"]) == (OperationState.FAILED, "not_running")


def test_what_nobody_took_cannot_be_finished(ask, do, state):
    operation = ask()
    assert not do(operations.finish, operation.id, result={"text": "x"})
    assert state(operation) == OperationState.WAITING


def test_late_one_is_not_taken_but_fails_with_a_reason(ask, do, row, now):
    operation = ask()
    late = now + timedelta(minutes=2)
    assert not do(operations.take, operation.id, now=late)
    assert do(operations.expire, now=late) == 1
    assert row(Operation, operation.id).reason["code"] == "expired"


def test_new_request_is_not_answered_with_an_expired_one(ask, now):
    assert ask().id != ask(now=now + timedelta(minutes=3)).id


def test_what_an_earlier_agent_had_taken_waits_again(ask, do, store, state):
    operation = ask()
    do(operations.take, operation.id)
    with store.write() as session:
        assert operations.report(session, operation.id, {"percent": 50})
        assert operations.requeue_running(session) == 1
    assert state(operation) == OperationState.WAITING
    assert do(operations.take, operation.id)


def test_ended_ones_are_swept_after_a_day(ask, do, store, now):
    operation = ask()
    do(operations.take, operation.id)
    do(operations.finish, operation.id)
    assert do(operations.sweep, now=now + timedelta(hours=23)) == 0
    assert do(operations.sweep, now=now + timedelta(hours=25)) == 1
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(Operation)) == 0
