"""Numbers under which files lie on disks: of people and teams. Never given twice, also not after an older database was
restored: what was seen of the lost days is written in the events of the restore and of the end of its hold.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from webapp.store.tables import Event, Member, Team
from webapp.store.tables.people import FIRST_GID, FIRST_UID

HIGHEST_UID, HIGHEST_GID = "highest_uid", "highest_gid"     # details of such events; 0 = nothing was seen
TELLING = ("database.restore", "hold.release")


def next_uid(session: Session) -> int:
    """One above the highest ever given: rows of members are never deleted, and their files stay on the hosts."""
    return max(FIRST_UID - 1, session.scalar(select(func.max(Member.uid))) or 0, _seen(session, HIGHEST_UID)) + 1


def next_gid(session: Session) -> int:
    return max(FIRST_GID - 1, session.scalar(select(func.max(Team.gid))) or 0, _seen(session, HIGHEST_GID)) + 1


def _seen(session: Session, which: str) -> int:
    details = session.scalars(select(Event.details).where(Event.action.in_(TELLING)))
    return max((int(each.get(which) or 0) for each in details), default=0)
