"""What a database needs after it was restored, before anybody uses it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, or_, update
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.hold import Decision
from webapp.domain.operation import OperationKind, OperationState
from webapp.services import events, hold, numbers, operations
from webapp.store.tables import HoldFinding, Member, Operation


@dataclass(frozen=True, slots=True)
class Restore:
    made_at: datetime           # of the backup
    now: datetime
    instance: str               # of what was restored: part of every name on an engine
    epoch_before: int           # of the agents of the database that was there; 0 = none
    highest_uid: int = 0        # that it has given; the same
    highest_gid: int = 0

    @property
    def hold(self) -> dict[str, Any]:
        return {"since": self.now.isoformat(), "why": hold.RESTORE, "made_at": self.made_at.isoformat(),
                "instance": self.instance}

    @property
    def beyond(self) -> int:
        """More than anything can have been counted up since the backup: nothing is once a second."""
        return max(0, int((self.now - self.made_at).total_seconds())) + 1


def as_sql(restore: Restore) -> str:
    """The hold as one statement for PostgreSQL, in the transaction that brings the tables: no agent acts between."""
    written = json.dumps(restore.hold).replace("'", "''")
    epoch = restore.epoch_before + restore.beyond
    return (f"INSERT INTO agent_state (id, epoch, hold) VALUES (1, {epoch}, '{written}') ON CONFLICT (id) "  # noqa: S608
            "DO UPDATE SET hold = EXCLUDED.hold, epoch = greatest(agent_state.epoch, EXCLUDED.epoch);")


def finish(session: Session, restore: Restore) -> None:
    """On hold; agents of before have no say any more; what waited is ended; everybody has to sign in again."""
    state = hold.lock(session)
    state.hold = restore.hold
    state.epoch = max(state.epoch, restore.epoch_before) + restore.beyond
    state.alive_at = None
    session.execute(delete(HoldFinding).where(
        or_(HoldFinding.decision.is_(None), HoldFinding.decision != Decision.FORGET)))
    session.execute(update(Member).values(session_epoch=Member.session_epoch + restore.beyond))
    _end_operations(session, restore.now)
    events.write(session, Actor.house(), "database.restore", "hold", str(state.id), now=restore.now,
                 made_at=restore.made_at.isoformat(),
                 **{numbers.HIGHEST_UID: restore.highest_uid, numbers.HIGHEST_GID: restore.highest_gid})


def _end_operations(session: Session, now: datetime) -> None:
    """Nobody waits for them any more, and what they were about may be another thing by now. What was being saved may
    have been saved since: it is not among what the agent takes away again (reads.image_work.unsaved).
    """
    going = Operation.state.in_((OperationState.WAITING, OperationState.RUNNING))
    session.execute(update(Operation).where(going, Operation.kind == OperationKind.WORKSPACE_SAVE).values(arguments={}))
    session.execute(update(Operation).where(going).values(state=OperationState.CANCELLED, ended_at=now))
    operations.forget_unsaved(session)
