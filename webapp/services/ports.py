"""Claims on ports. A claim is a row that exists; the database refuses a second holder.

The longest unused port goes first: a port that comes back soon with another host key trips OpenSSH's alarm.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.ports import PortRange
from webapp.domain.workspace import Service
from webapp.errors import NoFreePort
from webapp.services import events, locks
from webapp.store.tables import PortClaim, PortHistory, Workspace


def claim(
    session: Session, host_id: str, workspace_id: str, service: Service, *, ports: PortRange, now: datetime,
) -> int:
    """A free port of the host, now the workspace's. Raises NoFreePort."""
    lost: set[int] = set()
    while True:             # whoever loses a race tries again, with the next port; there are not that many
        port = _longest_unused(session, host_id, ports, lost)
        row = PortClaim(host_id=host_id, port=port, workspace_id=workspace_id, service=service, claimed_at=now)
        try:
            with session.begin_nested():
                session.add(row)
        except IntegrityError:
            lost.add(port)
        else:
            return port


def replace(
    session: Session, host_id: str, workspace_id: str, service: Service, *, taken: int, ports: PortRange,
    now: datetime,
) -> int:
    """Another port than `taken`, which a program outside Berth holds. Asked twice: the same answer.

    Raises:  NoFreePort: there is no other; the caller's transaction is to be rolled back.
    """
    session.get(Workspace, workspace_id, with_for_update=locks.ROW)     # a removal gives its ports back
    held = session.scalar(select(PortClaim).where(
        PortClaim.workspace_id == workspace_id, PortClaim.service == service))
    if held is not None and held.port != taken:
        return held.port
    if held is not None:
        session.delete(held)
    session.merge(PortHistory(host_id=host_id, port=taken, last_used_at=now))
    session.flush()
    port = claim(session, host_id, workspace_id, service, ports=ports, now=now)
    if port == taken:       # used most recently, so it comes last: all others are claimed
        raise NoFreePort(first=ports.first, last=ports.last)
    events.write(session, Actor.house(), "port.replace", "workspace", workspace_id, now=now,
                 service=service, old=taken, new=port)
    return port


def release_all(session: Session, workspace_id: str, now: datetime) -> None:
    """For the agent, once it has seen that the workspace is gone; never at the request."""
    for held in session.scalars(select(PortClaim).where(PortClaim.workspace_id == workspace_id)):
        session.merge(PortHistory(host_id=held.host_id, port=held.port, last_used_at=now))
    session.execute(delete(PortClaim).where(PortClaim.workspace_id == workspace_id))


def assign(session: Session, host_id: str, workspace_id: str, claims: Mapping[str, int], *, now: datetime) -> None:
    """These very ports (service → port), as a hold ends. Nobody else has one of them any more."""
    session.add_all(PortClaim(host_id=host_id, port=port, workspace_id=workspace_id, service=service, claimed_at=now)
                    for service, port in sorted(claims.items()))
    session.flush()


def _longest_unused(session: Session, host_id: str, ports: PortRange, lost: set[int]) -> int:
    """Ports that were never used come first, from the lowest; then by the time they were given back."""
    claimed = lost | set(session.scalars(select(PortClaim.port).where(PortClaim.host_id == host_id)))
    used = claimed | set(session.scalars(select(PortHistory.port).where(PortHistory.host_id == host_id)))
    fresh = next((port for port in range(ports.first, ports.last + 1) if port not in used), None)
    if fresh is not None:
        return fresh
    given_back = session.scalars(
        select(PortHistory.port)
        .where(PortHistory.host_id == host_id, PortHistory.port.between(ports.first, ports.last))
        .order_by(PortHistory.last_used_at, PortHistory.port))
    oldest = next((port for port in given_back if port not in claimed), None)
    if oldest is None:
        raise NoFreePort(first=ports.first, last=ports.last)
    return oldest
