"""SSH connections into a workspace: who is connected, and end that. For its owner and administrators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.ssh_connections import MOST, is_connection_id
from webapp.errors import N_, InvalidInput
from webapp.services import access, events, locks, operations
from webapp.store.tables import Operation


def look(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Operation:
    """Have the agent look who is connected."""
    return operations.request(session, actor, OperationKind.SSH_CONNECTIONS, workspace_id=workspace_id, arguments={},
                              now=now)


def cut(
    session: Session, actor: Actor, workspace_id: str, *, connections: Sequence[str] | None, now: datetime,
) -> Operation:
    """End those connections, None = all there are when the agent comes to it. Programs that need none go on.

    Raises:  NotFound.   InvalidInput: something that is no id of a connection.
    """
    access.workspace(session, actor, workspace_id)
    if connections is not None and not all(map(is_connection_id, connections[:MOST])):
        raise InvalidInput.of("connection", N_("That is no connection. Choose one from the list."))
    waiting = session.scalar(select(Operation).where(
        Operation.kind == OperationKind.SSH_CUT, Operation.workspace_id == workspace_id,
        Operation.state == OperationState.WAITING, Operation.expires_at > now).with_for_update(**locks.ROW))
    wanted = None if connections is None else sorted(set(connections[:MOST]))
    operation = waiting or operations.request(session, actor, OperationKind.SSH_CUT, workspace_id=workspace_id,
                                              arguments={"connections": wanted}, now=now)
    if waiting is not None:
        before = waiting.arguments.get("connections")
        both = None if wanted is None or before is None else sorted({*before, *wanted})
        waiting.arguments = {"connections": both}
    events.write(session, actor, "workspace.cut_connections", "workspace", workspace_id, now=now, connections=wanted)
    return operation
