"""Quotas of the house, of teams and of members. A member's own counts; else the most that one of their teams has; else
the house's.

`require` runs in the transaction that claims, with the member's row locked: of many launches at the same moment
none gets past it.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.quota import FIGURES, Amounts, Quota, refuse_excess
from webapp.errors import N_, InvalidInput, NotFound, StaleForm
from webapp.services import access, events, locks
from webapp.store.reads import quotas as reads
from webapp.store.tables import HOUSE, Member, QuotaRow, Team, Workspace

MOST_COUNT = 10_000


def require(session: Session, owner_id: str, asked: Amounts, *, but_for: str | None = None) -> None:
    """Before something is claimed. `but_for`: a workspace whose own use is in `asked`. Raises QuotaExceeded."""
    quota = reads.quota_of(session, owner_id)
    if quota != Quota():
        refuse_excess(quota, reads.used_by(session, owner_id, but_for=but_for), asked)


def of_workspace(workspace: Workspace) -> Amounts:
    """What it uses while it runs."""
    return Amounts(0, workspace.gpu_count, workspace.cpu_millis, workspace.memory_bytes)


def require_to_run(session: Session, workspace: Workspace, *, has: Amounts | None = None) -> None:
    """Before one is started; or goes on otherwise, of which `has` is what it had: then only what grows is asked for."""
    wants, has = of_workspace(workspace), has or Amounts()
    grown = {name: getattr(wants, name) for name in FIGURES if getattr(wants, name) > getattr(has, name)}
    require(session, workspace.owner_id, Amounts(**grown), but_for=workspace.id)


def set_quota(
    session: Session, actor: Actor, subject: str, quota: Quota, *, version: int, now: datetime,
) -> QuotaRow:
    """`subject`: HOUSE, or the id of a team or member. `version`: of the row that was looked at, 0 = there was none.

    What runs goes on, whatever the new quota. Raises StaleForm: somebody else has changed it since. NotFound.
    """
    access.require_admin(actor)
    locks.turn(session, locks.Lock.PEOPLE)
    row = session.get(QuotaRow, subject)
    _refuse_stale(row, version)
    before = None if row is None else asdict(reads.as_quota(row))
    if row is None:
        row = QuotaRow(id=subject, **_whose(session, subject), version=0)
        session.add(row)
    for name, limit in asdict(quota).items():
        setattr(row, name, limit)
    row.version, row.changed_at = row.version + 1, now
    session.flush()
    events.write(session, actor, "quota.set", "quota", subject, now=now, before=before, after=asdict(quota))
    return row


def clear_quota(session: Session, actor: Actor, subject: str, *, version: int, now: datetime) -> None:
    """A team or member without one of its own again. Raises StaleForm, NotFound."""
    access.require_admin(actor)
    locks.turn(session, locks.Lock.PEOPLE)
    row = session.get(QuotaRow, subject)
    if row is None or subject == HOUSE:
        raise NotFound()
    _refuse_stale(row, version)
    session.delete(row)
    events.write(session, actor, "quota.clear", "quota", subject, now=now, before=asdict(reads.as_quota(row)))


def read_count(text: str, field: str) -> int | None:
    """Of workspaces or cards; "" = no limit. Raises InvalidInput."""
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text[:9]) > MOST_COUNT or len(text) > 9:
        raise InvalidInput.of(field, N_("“%(given)s” is no number from 0 to %(most)d. Leave it empty for no limit."),
                              given=text[:50], most=MOST_COUNT)
    return int(text)


def _refuse_stale(row: QuotaRow | None, version: int) -> None:
    if (row.version if row else 0) != version:
        raise StaleForm()


def _whose(session: Session, subject: str) -> dict[str, str]:
    if subject == HOUSE:
        return {}
    if session.scalar(select(func.count()).where(Team.id == subject)):
        return {"team_id": subject}
    if session.scalar(select(func.count()).where(Member.id == subject)):
        return {"member_id": subject}
    raise NotFound()

