"""Work for the agent that is no phase: asked for here, taken up and ended by the agent through the same functions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.reasons import Reason
from webapp.services import access, intent, locks
from webapp.services.ids import new_id
from webapp.services.rows import change
from webapp.store.tables import Operation

RESULT_BYTES = 64 * 1024
MOST_TAIL_LINES = 2000
KEPT_AFTER_END = timedelta(hours=24)

# How long somebody waits for it. Nobody waits for keys, and a removed key must go also after a long outage.
_PATIENCE = {
    OperationKind.WORKSPACE_LOGS: timedelta(minutes=2),
    OperationKind.WORKSPACE_KEYS: timedelta(days=7),
    OperationKind.WORKSPACE_SIZE: timedelta(minutes=2),
    OperationKind.WORKSPACE_SAVE: timedelta(hours=1),
    OperationKind.IMAGE_PULL: timedelta(days=1),
    OperationKind.IMAGE_PREPARE: timedelta(days=1),
    OperationKind.IMAGE_DELETE: timedelta(days=1),
}
_ENDED = (OperationState.DONE, OperationState.FAILED, OperationState.CANCELLED)


def request(
    session: Session, actor: Actor, kind: OperationKind, *, workspace_id: str, arguments: Mapping[str, Any],
    now: datetime,
) -> Operation:
    """A new one; or the one that waits already for the same workspace, since it will see what this one would."""
    workspace = access.workspace(session, actor, workspace_id)
    waiting = session.scalar(select(Operation).where(
        Operation.kind == kind, Operation.workspace_id == workspace_id, Operation.state == OperationState.WAITING,
        Operation.expires_at > now).with_for_update(**locks.ROW))   # the agent cannot take it before this is written
    if waiting is not None:
        return waiting
    operation = Operation(
        id=new_id(), kind=kind, workspace_id=workspace_id, host_id=workspace.host_id, actor_id=actor.member_id,
        arguments=_bounded(arguments), created_at=now, expires_at=now + _PATIENCE[kind], state=OperationState.WAITING,
    )
    session.add(operation)
    session.flush()
    intent.ring(session)
    return operation


def take(session: Session, operation_id: str, now: datetime) -> bool:
    """Whether the caller has it now: only one who asks gets True."""
    waits = (Operation.id == operation_id, Operation.state == OperationState.WAITING, Operation.expires_at > now)
    taken = update(Operation).where(*waits).values(state=OperationState.RUNNING, started_at=now)
    return change(session, taken) == 1


def report(session: Session, operation_id: str, progress: Mapping[str, Any]) -> bool:
    """How far a running one is. False = it does not run any more."""
    running = (Operation.id == operation_id, Operation.state == OperationState.RUNNING)
    return change(session, update(Operation).where(*running).values(progress=dict(progress))) == 1


def finish(
    session: Session, operation_id: str, *, now: datetime, result: Mapping[str, Any] | None = None,
    reason: Reason | None = None,
) -> bool:
    """Done, or failed when there is a `reason`. Of a long result["text"] the end is kept. False = it did not run."""
    running = (Operation.id == operation_id, Operation.state == OperationState.RUNNING)
    ended = update(Operation).where(*running).values(
        state=OperationState.FAILED if reason else OperationState.DONE,
        result=_capped(result), reason=reason.as_json() if reason else None, ended_at=now,
    )
    return change(session, ended) == 1


def put_back(session: Session, operation_id: str) -> bool:
    """It could not be done just now and waits again. False = it did not run."""
    running = (Operation.id == operation_id, Operation.state == OperationState.RUNNING)
    return change(session, update(Operation).where(*running).values(
        state=OperationState.WAITING, started_at=None, progress=None)) == 1


def requeue_running(session: Session) -> int:
    """When the agent starts: what an earlier agent had taken waits again; each kind may be done twice."""
    return change(session, update(Operation).where(Operation.state == OperationState.RUNNING).values(
        state=OperationState.WAITING, started_at=None, progress=None))


def expire(session: Session, *, now: datetime) -> int:
    """Fails what nobody took in time."""
    late = (Operation.state == OperationState.WAITING, Operation.expires_at <= now)
    return change(session, update(Operation).where(*late).values(
        state=OperationState.FAILED, reason=Reason("expired").as_json(), ended_at=now))


def sweep(session: Session, *, now: datetime) -> int:
    """Deletes what ended more than a day ago."""
    old = (Operation.state.in_(_ENDED), Operation.ended_at < now - KEPT_AFTER_END)
    return change(session, delete(Operation).where(*old))


def _bounded(arguments: Mapping[str, Any]) -> dict[str, Any]:
    bounded = dict(arguments)
    if "tail_lines" in bounded:
        bounded["tail_lines"] = max(1, min(MOST_TAIL_LINES, int(bounded["tail_lines"])))
    return bounded


def _capped(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if result is None or "text" not in result:
        return None if result is None else dict(result)
    text = str(result["text"]).encode("utf-8", "replace")
    kept = text[-RESULT_BYTES:].decode("utf-8", "ignore")
    return {**result, "text": kept, "truncated": len(text) > RESULT_BYTES}
