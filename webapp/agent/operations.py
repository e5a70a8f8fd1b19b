"""Operations: work that is no phase. The row is the progress, the result and the retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from webapp.agent import launching
from webapp.agent.context import HostContext
from webapp.agent.desk import LOG_LINES, Desk
from webapp.domain.operation import OperationKind
from webapp.domain.reasons import Reason
from webapp.errors import AppError
from webapp.services import operations
from webapp.store.tables import Operation

log = structlog.get_logger(__name__)

RESULT_CHARACTERS = 48 * 1024   # a result is bounded; the newest end of a log is what people ask for


class NotNow(Exception):
    """It cannot be done in the workspace's present state."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code)
        self.reason = reason


def carry_out(context: HostContext, operation_id: str) -> None:
    """Take one waiting operation, do it, write down how it went. Taken by somebody else or expired: nothing."""
    with context.store.write() as session:
        operation = session.get(Operation, operation_id)
        if operation is None or not operations.take(session, operation_id, now=context.now()):
            return
        kind, workspace_id, arguments = OperationKind(operation.kind), operation.workspace_id, operation.arguments
    result, reason = _do(context, kind, workspace_id or "", arguments)
    with context.store.write() as session:
        operations.finish(session, operation_id, result=result, reason=reason, now=context.now())


def _do(
    context: HostContext, kind: OperationKind, workspace_id: str, arguments: dict[str, Any]
) -> tuple[dict[str, Any] | None, Reason | None]:
    desk = Desk.open(context, workspace_id)
    if desk is None:
        return None, Reason("not_running")
    try:
        return _DOERS[kind](desk, arguments), None
    except NotNow as error:
        return None, error.reason
    except AppError as error:
        log.warning("operation.failed", kind=str(kind), workspace=workspace_id, detail=str(error))
        facts = {"since": context.now().isoformat(), **error.facts}
        return None, Reason(error.code, facts)


def _logs(desk: Desk, arguments: dict[str, Any]) -> dict[str, Any]:
    newest = next(iter(desk.containers()), None)
    if newest is None:
        return {"text": ""}
    text = desk.engine.logs(newest.name, tail_lines=int(arguments.get("tail_lines", LOG_LINES)))
    return {"text": text[-RESULT_CHARACTERS:]}


def _keys(desk: Desk, _arguments: dict[str, Any]) -> dict[str, Any]:
    """A workspace that is down gets its keys at the next start."""
    running = next((one for one in desk.containers() if one.is_up), None)
    if running is None:
        raise NotNow(Reason("not_running"))
    launching.write_keys(desk, running.name)
    return {}


_DOERS: dict[OperationKind, Callable[[Desk, dict[str, Any]], dict[str, Any]]] = {
    OperationKind.WORKSPACE_LOGS: _logs,
    OperationKind.WORKSPACE_KEYS: _keys,
}
