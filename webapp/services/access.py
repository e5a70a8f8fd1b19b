"""Who may: the few questions that every service asks the same way.

What belongs to somebody else does not exist for a member, so that ids cannot be tried out.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.errors import Forbidden, NotFound
from webapp.services import locks
from webapp.store.tables import Image, Member, Workspace


def require_admin(actor: Actor) -> None:
    if not actor.is_admin:
        raise Forbidden()


def is_house(actor: Actor) -> bool:
    """The agent or the command line: whoever uses it has the server already."""
    return actor.member_id is None and actor.is_admin


def person(session: Session, actor: Actor) -> Member:
    """The person who asks, locked (services.locks). Raises Forbidden for the house and for somebody deactivated."""
    member = session.get(Member, actor.member_id, with_for_update=locks.ROW) if actor.member_id else None
    if member is None or member.deactivated_at is not None:
        raise Forbidden()
    return member


def member(session: Session, member_id: str) -> Member:
    """Locked until the end of the transaction."""
    found = session.get(Member, member_id, with_for_update=locks.ROW)
    if found is None:
        raise NotFound()
    return found


def workspace(session: Session, actor: Actor, workspace_id: str, *, lock: bool = True) -> Workspace:
    """A workspace that its owner or an admin may act on, locked until the end of the transaction unless only read."""
    found = session.get(Workspace, workspace_id, with_for_update=locks.ROW if lock else None)
    if found is None or not (actor.is_admin or found.owner_id == actor.member_id):
        raise NotFound()
    return found


def image(session: Session, image_id: str) -> Image:
    """An entry of the catalogue, locked until the end of the transaction."""
    found = session.get(Image, image_id, with_for_update=locks.ROW)
    if found is None or found.deleted_at is not None:
        raise NotFound()
    return found
