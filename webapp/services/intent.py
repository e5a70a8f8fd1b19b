"""The bell that wakes the agent: called by every service whose change the agent must see."""

from __future__ import annotations

from sqlalchemy import update
from sqlalchemy.orm import Session

from webapp.services.rows import change
from webapp.store.postgresql import is_postgresql, notify
from webapp.store.tables import Intent

_ONLY_ROW = 1


def ring(session: Session) -> None:
    """Heard when the transaction commits; a transaction that is rolled back rings nothing."""
    if is_postgresql(session):      # and not by the row: it would let one intent through at a time, in any order
        notify(session)
        return
    rung = change(session, update(Intent).where(Intent.id == _ONLY_ROW).values(seq=Intent.seq + 1))
    if rung == 0:
        session.add(Intent(id=_ONLY_ROW, seq=1))
        session.flush()
