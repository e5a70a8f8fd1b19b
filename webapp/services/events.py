"""What happened and who did it: one row each, appended only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.store.tables import Event


def write(
    session: Session, actor: Actor, action: str, object_type: str, object_id: str, *, now: datetime, **details: Any,
) -> Event:
    """`action` is "noun.verb"; `details` are facts for people who look later, never a secret."""
    event = Event(
        at=now, actor_id=actor.member_id, address=actor.address, action=action,
        object_type=object_type, object_id=object_id, details=details,
    )
    session.add(event)
    return event
