"""What the page of a workspace's SSH connections shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Phase
from webapp.store.tables import Host, Member, Operation, SshKey, Workspace

KINDS = (OperationKind.SSH_CONNECTIONS, OperationKind.SSH_CUT)
OPEN = (OperationState.WAITING, OperationState.RUNNING)
FRESH = timedelta(seconds=10)       # the page has somebody look again after this


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    id: str
    since: datetime
    address: str | None             # None: not known
    fingerprint: str | None         # None: not known
    key_title: str | None           # None: not known, or not among the owner's keys any more

    @property
    def key_is_gone(self) -> bool:
        return self.fingerprint is not None and self.key_title is None


@dataclass(frozen=True, slots=True)
class ConnectionsPage:
    workspace_id: str
    name: str
    owner_id: str
    owner_username: str
    host_name: str
    host_unreachable_since: datetime | None
    is_running: bool
    is_coming: bool                 # somebody is looking, or ending some, now
    is_cutting: bool
    asked_at: datetime | None       # None: nobody has looked yet
    seen_at: datetime | None        # of what is listed
    reason: Mapping[str, Any] | None    # why the last look failed
    connections: tuple[ConnectionRow, ...]

    def needs_look(self, now: datetime) -> bool:
        return self.is_running and not self.is_coming and (self.asked_at is None or now - self.asked_at > FRESH)


def page(session: Session, workspace_id: str) -> ConnectionsPage | None:
    """Whoever calls decides who may see it, by `owner_id`. Three statements."""
    row = session.execute(
        select(Workspace, Member, Host).join(Member, Member.id == Workspace.owner_id)
        .join(Host, Host.id == Workspace.host_id).where(Workspace.id == workspace_id)).first()
    if row is None:
        return None
    workspace, owner, host = row
    asked = session.scalars(
        select(Operation).where(Operation.workspace_id == workspace_id, Operation.kind.in_(KINDS))
        .order_by(Operation.created_at.desc(), Operation.id)).all()
    titles = dict(session.execute(select(SshKey.fingerprint, SshKey.title).where(SshKey.member_id == owner.id)).all())
    newest = asked[0] if asked else None
    seen = next((one for one in asked if one.state == OperationState.DONE), None)
    is_running = workspace.phase == Phase.RUNNING
    return ConnectionsPage(
        workspace_id=workspace.id, name=workspace.name, owner_id=owner.id, owner_username=owner.username,
        host_name=host.name, host_unreachable_since=host.unreachable_since, is_running=is_running,
        is_coming=any(one.state in OPEN for one in asked),
        is_cutting=any(one.state in OPEN and one.kind == OperationKind.SSH_CUT for one in asked),
        asked_at=newest.created_at if newest else None, seen_at=seen.ended_at if seen else None,
        reason=newest.reason if newest else None,
        connections=_rows(seen, titles) if seen and is_running else ())


def _rows(seen: Operation, titles: Mapping[str, str]) -> tuple[ConnectionRow, ...]:
    return tuple(
        ConnectionRow(one["id"], datetime.fromisoformat(one["since"]), one["address"], one["fingerprint"],
                      titles.get(one["fingerprint"] or ""))
        for one in (seen.result or {}).get("connections", ()))
