"""Operations: work that is no phase. The row is the progress, the result and the retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from webapp.agent import images, launching, trouble
from webapp.agent.context import HostContext
from webapp.agent.desk import LOG_LINES, Desk
from webapp.agent.jobs import Asked
from webapp.agent.outage import write_down
from webapp.domain import ssh_connections
from webapp.domain.container import Layer
from webapp.domain.operation import OperationKind
from webapp.domain.reasons import Reason
from webapp.domain.ssh_connections import Connection
from webapp.errors import AppError, EngineRejected, EngineUnreachable
from webapp.services import operations
from webapp.store.failures import CommitUnknown, is_unavailable
from webapp.store.reads import agent as reads
from webapp.store.revisions import OtherVersion
from webapp.store.tables import Operation

log = structlog.get_logger(__name__)

CONNECTIONS_SECONDS = 10.0      # thousands of processes are read in less than one
PAUSE_SECONDS = 2.0             # after a silence of the engine, before the next try
# Nobody waits for these, and they must happen.
_PATIENT = frozenset({OperationKind.WORKSPACE_KEYS, OperationKind.SSH_CUT})
# What changes nothing, on the engine or in a container: done on hold too.
LOOKS = frozenset({OperationKind.WORKSPACE_LOGS, OperationKind.WORKSPACE_SIZE, OperationKind.SSH_CONNECTIONS})


def carry_out(context: HostContext, operation_id: str) -> None:
    """Take one waiting operation, do it, write down how it went. Taken by somebody else or expired: nothing."""
    try:
        taken = _take(context, operation_id)
        if taken is None:
            return
        kind, image_id, asked = taken
        if kind in images.DOERS:
            return images.carry_out(context, kind, image_id, asked)
        result, reason = _do(context, kind, asked.workspace_id or "", dict(asked.arguments))
    except EngineUnreachable as error:
        if kind in _PATIENT:
            return _put_back(context, operation_id)
        facts = {"host": context.host_name, "since": context.now().isoformat()}
        result, reason = None, Reason(error.code, facts)
    except Exception as error:
        if not context.outage.explains(error):
            raise
        return _put_back(context, operation_id)
    write_down(context, lambda session: operations.finish(
        session, operation_id, result=result, reason=reason, now=context.now()))


def _take(context: HostContext, operation_id: str) -> tuple[OperationKind, str | None, Asked] | None:
    with context.store.write() as session:
        operation = session.get(Operation, operation_id)
        if operation is None or context.stopping():
            return None
        may = reads.is_newest_agent if operation.kind in LOOKS else reads.may_act
        if not may(session, context.epoch):
            return None
        if not operations.take(session, operation_id, now=context.now()):
            return None
        asked = Asked(operation_id, operation.workspace_id, operation.arguments)
        return OperationKind(operation.kind), operation.image_id, asked


def _put_back(context: HostContext, operation_id: str) -> None:
    """A key that was taken away must go also when the engine is silent just now: it is tried until it expires."""
    write_down(context, lambda session: operations.put_back(session, operation_id))
    context.sleep(PAUSE_SECONDS)


def _do(
    context: HostContext, kind: OperationKind, workspace_id: str, arguments: dict[str, Any]
) -> tuple[dict[str, Any] | None, Reason | None]:
    desk = Desk.open(context, workspace_id, looking=kind in LOOKS)
    if desk is None:
        return None, Reason("not_running")
    try:
        return _DOERS[kind](desk, arguments), None
    except (EngineUnreachable, OtherVersion, CommitUnknown):
        raise
    except AppError as error:
        log.warning("operation.failed", kind=str(kind), workspace=workspace_id, detail=str(error))
        return None, trouble.reason_of(error, context.host_name)
    except Exception as error:
        if is_unavailable(error):
            raise
        log.exception("operation.failed", kind=str(kind), workspace=workspace_id)
        return None, Reason("internal", {"detail": type(error).__name__})


def _logs(desk: Desk, arguments: dict[str, Any]) -> dict[str, Any]:
    newest = next(iter(desk.containers()), None)
    if newest is None:
        return {"text": ""}
    return {"text": desk.engine.logs(newest.name, tail_lines=int(arguments.get("tail_lines", LOG_LINES)))}


def _keys(desk: Desk, _arguments: dict[str, Any]) -> dict[str, Any]:
    """Into the newest container, up or not: a start that is under way may have written the keys of a moment ago.

    Without a container there is nothing to do: the keys are read anew for the next one.
    """
    newest = next(iter(desk.containers()), None)
    if newest is not None:
        launching.write_keys(desk, newest.name)
    return {}


def _size(desk: Desk, _arguments: dict[str, Any]) -> dict[str, Any]:
    """What a move would have to keep, and how much room there is for it. Without a container there is nothing to."""
    newest, room = next(iter(desk.containers()), None), desk.engine.room()
    layer = desk.engine.layer(newest.name) if newest else Layer(0, 0)
    return {"size_bytes": layer.size_bytes, "layers": layer.layers, "free_bytes": room.free_bytes if room else None}


def _connections(desk: Desk, _arguments: dict[str, Any]) -> dict[str, Any]:
    """Of the newest container; none where it is down."""
    newest = next(iter(desk.containers()), None)
    found = _look_at_connections(desk, newest.name) if newest and newest.is_up else ()
    return {"connections": [one.as_json() for one in found]}


def _cut(desk: Desk, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those that are named, or all; programs that they left running go on. Then who is connected still."""
    newest = next(iter(desk.containers()), None)
    if newest is not None and newest.is_up:
        named = arguments.get("connections")
        ends = [process for one in _look_at_connections(desk, newest.name) if named is None or one.id in named
                for process in one.processes]
        if ends:
            desk.engine.exec(newest.name, ("bash", "-c", ssh_connections.CUT, "cut", *ends),
                             deadline_seconds=CONNECTIONS_SECONDS)
    return _connections(desk, arguments)


def _look_at_connections(desk: Desk, name: str) -> tuple[Connection, ...]:
    answer = desk.engine.exec(name, ("bash", "-c", ssh_connections.LOOK), deadline_seconds=CONNECTIONS_SECONDS)
    if answer.timed_out or answer.exit_code:
        detail = "no answer in time" if answer.timed_out else answer.output.strip()[-200:]
        raise EngineRejected(host=desk.context.host_name, detail=detail)
    return ssh_connections.read(answer.output, now=desk.now())


_DOERS: dict[OperationKind, Callable[[Desk, dict[str, Any]], dict[str, Any]]] = {
    OperationKind.WORKSPACE_LOGS: _logs,
    OperationKind.WORKSPACE_KEYS: _keys,
    OperationKind.WORKSPACE_SIZE: _size,
    OperationKind.SSH_CONNECTIONS: _connections,
    OperationKind.SSH_CUT: _cut,
}
