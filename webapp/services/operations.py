"""Work for the agent that is no phase: asked for here, taken up and ended by the agent through the same functions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.reasons import Reason
from webapp.errors import NotFound
from webapp.services import access, intent, locks
from webapp.services.ids import new_id
from webapp.services.rows import change
from webapp.store.tables import HostImage, Image, Operation, Workspace

RESULT_BYTES = 64 * 1024
MOST_TAIL_LINES = 2000
KEPT_AFTER_END = timedelta(hours=24)

# How long somebody waits for it. Nobody waits for keys, and a removed key must go also after a long outage.
_PATIENCE = {
    OperationKind.WORKSPACE_LOGS: timedelta(minutes=2),
    OperationKind.WORKSPACE_KEYS: timedelta(days=7),
    OperationKind.WORKSPACE_SIZE: timedelta(minutes=2),
    OperationKind.SSH_CONNECTIONS: timedelta(minutes=2),
    OperationKind.SSH_CUT: timedelta(days=1),
    OperationKind.WORKSPACE_SAVE: timedelta(hours=1),
    OperationKind.IMAGE_PULL: timedelta(days=1),
    OperationKind.IMAGE_PREPARE: timedelta(days=1),
    OperationKind.IMAGE_DELETE: timedelta(days=1),
}
_ENDED = (OperationState.DONE, OperationState.FAILED, OperationState.CANCELLED)
_OPEN = (OperationState.WAITING, OperationState.RUNNING)
# What can be ended from outside: all of it can be asked for again, and goes on where it was.
CANCELLABLE = (OperationKind.IMAGE_PULL, OperationKind.IMAGE_PREPARE, OperationKind.WORKSPACE_SAVE)


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
    return _insert(session, actor, kind, workspace_id=workspace_id, host_id=workspace.host_id, arguments=arguments,
                   now=now)


def request_for_image(
    session: Session, actor: Actor, kind: OperationKind, *, image_id: str, host_id: str, arguments: Mapping[str, Any],
    now: datetime,
) -> Operation:
    """A new one; or the one that waits or runs already for the same image on that host. The image's row is locked."""
    same = session.scalar(select(Operation).where(
        is_open(now), Operation.kind == kind, Operation.image_id == image_id, Operation.host_id == host_id,
        Operation.cancel_asked_at.is_(None)))
    if same is not None:
        return same
    return _insert(session, actor, kind, image_id=image_id, host_id=host_id, arguments=arguments, now=now)


def save_into(
    session: Session, actor: Actor, workspace: Workspace, image_id: str, *, now: datetime,
) -> Operation:
    return _insert(session, actor, OperationKind.WORKSPACE_SAVE, workspace_id=workspace.id, image_id=image_id,
                   host_id=workspace.host_id, arguments={"image": image_id}, now=now)


def is_open(now: datetime) -> ColumnElement[bool]:
    """It waits or runs."""
    return or_(Operation.state == OperationState.RUNNING,
               and_(Operation.state == OperationState.WAITING, Operation.expires_at > now))


def cancel(session: Session, actor: Actor, operation_id: str, *, now: datetime) -> bool:
    """One that waits ends at once, one that runs within seconds. False = it has ended, or is none that can be ended.

    For who asked for it, the owner of its workspace, and administrators.
    """
    operation = session.get(Operation, operation_id)
    if operation is None or not (actor.is_admin or actor.member_id in _concerned(session, operation)):
        raise NotFound()
    if operation.kind not in CANCELLABLE:
        return False
    this = Operation.id == operation_id
    if change(session, update(Operation).where(this, Operation.state == OperationState.WAITING).values(
            state=OperationState.CANCELLED, cancel_asked_at=now, ended_at=now)):
        forget_unsaved(session)
        return True
    running = (this, Operation.state == OperationState.RUNNING)
    return change(session, update(Operation).where(*running).values(
        cancel_asked_at=func.coalesce(Operation.cancel_asked_at, now))) == 1


def forget_unsaved(session: Session) -> None:
    """Entries of the catalogue for what is saved from a workspace: when that ends without an image they go with it."""
    underway = select(Operation.image_id).where(
        Operation.kind == OperationKind.WORKSPACE_SAVE, Operation.state.in_(_OPEN), Operation.image_id.is_not(None))
    unmade = session.scalars(select(Image.id).where(
        Image.saved_from.is_not(None), Image.reference.is_(None), Image.deleted_at.is_(None),
        Image.id.not_in(underway))).all()
    if unmade:
        session.execute(update(Operation).where(Operation.image_id.in_(unmade)).values(image_id=None))
        session.execute(delete(HostImage).where(HostImage.image_id.in_(unmade)))
        session.execute(delete(Image).where(Image.id.in_(unmade)))


def take(session: Session, operation_id: str, now: datetime) -> bool:
    """Whether the caller has it now: only one who asks gets True."""
    waits = (Operation.id == operation_id, Operation.state == OperationState.WAITING, Operation.expires_at > now)
    taken = update(Operation).where(*waits).values(state=OperationState.RUNNING, started_at=now)
    return change(session, taken) == 1


def report(session: Session, operation_id: str, progress: Mapping[str, Any], *, log: str | None = None) -> bool:
    """How far a running one is, and what it has printed (None = as before). False = it does not run any more."""
    running = (Operation.id == operation_id, Operation.state == OperationState.RUNNING)
    printed = {} if log is None else {"log": log}
    return change(session, update(Operation).where(*running).values(progress=dict(progress), **printed)) == 1


def finish(
    session: Session, operation_id: str, *, now: datetime, result: Mapping[str, Any] | None = None,
    reason: Reason | None = None, cancelled: bool = False,
) -> bool:
    """Done, or failed when there is a `reason`. Of a long result["text"] the end is kept. False = it did not run."""
    running = (Operation.id == operation_id, Operation.state == OperationState.RUNNING)
    state = OperationState.CANCELLED if cancelled else OperationState.FAILED if reason else OperationState.DONE
    ended = change(session, update(Operation).where(*running).values(
        state=state, result=_capped(result), reason=reason.as_json() if reason else None, ended_at=now))
    if state != OperationState.DONE:
        forget_unsaved(session)
    return ended == 1


def put_back(session: Session, operation_id: str) -> bool:
    """It could not be done just now and waits again. False = it did not run."""
    running = (Operation.id == operation_id, Operation.state == OperationState.RUNNING)
    return change(session, update(Operation).where(*running).values(
        state=OperationState.WAITING, started_at=None, progress=None)) == 1


def requeue_running(session: Session) -> int:
    """When the agent starts: what an earlier agent had taken waits again; each kind may be done twice."""
    running = Operation.state == OperationState.RUNNING
    if change(session, update(Operation).where(running, Operation.cancel_asked_at.is_not(None)).values(
            state=OperationState.CANCELLED, ended_at=Operation.cancel_asked_at)):
        forget_unsaved(session)
    return change(session, update(Operation).where(running).values(
        state=OperationState.WAITING, started_at=None, progress=None))


def expire(session: Session, *, now: datetime) -> int:
    """Fails what nobody took in time."""
    late = (Operation.state == OperationState.WAITING, Operation.expires_at <= now)
    failed = change(session, update(Operation).where(*late).values(
        state=OperationState.FAILED, reason=Reason("expired").as_json(), ended_at=now))
    if failed:
        forget_unsaved(session)
    return failed


def sweep(session: Session, *, now: datetime) -> int:
    """Deletes what ended more than a day ago."""
    old = (Operation.state.in_(_ENDED), Operation.ended_at < now - KEPT_AFTER_END)
    return change(session, delete(Operation).where(*old))


def _insert(
    session: Session, actor: Actor, kind: OperationKind, *, host_id: str, arguments: Mapping[str, Any], now: datetime,
    workspace_id: str | None = None, image_id: str | None = None,
) -> Operation:
    operation = Operation(
        id=new_id(), kind=kind, workspace_id=workspace_id, image_id=image_id, host_id=host_id, actor_id=actor.member_id,
        arguments=_bounded(arguments), created_at=now, expires_at=now + _PATIENCE[kind], state=OperationState.WAITING,
    )
    session.add(operation)
    session.flush()
    intent.ring(session)
    return operation


def _concerned(session: Session, operation: Operation) -> set[str | None]:
    """Never holds None, which is the house."""
    owner = select(Workspace.owner_id).where(Workspace.id == operation.workspace_id)
    return {operation.actor_id, session.scalar(owner)} - {None}


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
