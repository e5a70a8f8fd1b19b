"""What a transaction keeps to itself until its end, and in which order.

SQLite lets one transaction write at a time: all of this is a formality there. On PostgreSQL many do, and each statement
sees what others have committed by then. Whoever decides by what a row says locks it first; and always in this order, so
that no two wait for each other: a turn; the member; hosts by id; workspaces by id; images; then what belongs to them,
claims by UUID. The counter of agents (`by_newest_agent`) may be locked at any time: who raises it holds nothing else.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from webapp.store.postgresql import Lock, is_postgresql, lock_until_commit
from webapp.store.tables import AgentState, Host, Member, Workspace

__all__ = ["ROW", "Lock", "by_acting_agent", "by_newest_agent", "hosts", "owner_and_host", "turn"]

# FOR NO KEY UPDATE: whoever only points to the row, such as an event to its member, need not wait.
ROW: Final[dict[str, Any]] = {"key_share": True}


def turn(session: Session, lock: Lock) -> None:
    """For what no single row stands for: names, numbers that are handed out, folders that must not nest."""
    if is_postgresql(session):
        lock_until_commit(session, lock)


def hosts(session: Session, host_id: str | None = None) -> None:
    """That host, None = all of them: their cards are found and claimed by one transaction at a time."""
    which = select(Host.id).order_by(Host.id).with_for_update(**ROW)
    session.execute(which if host_id is None else which.where(Host.id == host_id)).all()


def owner_and_host(session: Session, workspace_id: str) -> None:
    """Of a workspace that is to be locked next; neither ever changes."""
    found = session.execute(
        select(Workspace.owner_id, Workspace.host_id).where(Workspace.id == workspace_id)).one_or_none()
    if found is not None:
        session.get(Member, found.owner_id, with_for_update=ROW)
        hosts(session, found.host_id)


def by_newest_agent(epoch: int) -> ColumnElement[bool]:
    """A condition for what an agent writes. No newer one can begin before the transaction has ended."""
    counter = select(AgentState.epoch).where(AgentState.id == 1)
    return counter.with_for_update(read=True, key_share=True).scalar_subquery() == epoch


def by_acting_agent(epoch: int) -> ColumnElement[bool]:
    """The same, and Berth is not on hold: then what the agent sees of a workspace is a finding (services.hold)."""
    counter = select(AgentState.epoch).where(AgentState.id == 1, AgentState.hold.is_(None))
    return counter.with_for_update(read=True, key_share=True).scalar_subquery() == epoch
