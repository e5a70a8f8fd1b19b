"""Quotas, and what is used of them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from webapp.domain.quota import Amounts, Quota, most_generous
from webapp.domain.workspace import RESTING, Desired, Phase
from webapp.store.tables import HOUSE, GpuClaim, Member, QuotaRow, Team, TeamMember, Workspace

# As services.wishes.is_to_run: it uses what it has, or will in a moment.
_RUNS = and_(Workspace.desired == Desired.RUNNING,
             or_(Workspace.phase.not_in(RESTING), Workspace.observed_generation != Workspace.generation))


@dataclass(frozen=True, slots=True)
class Use:
    """What one person sees of it."""

    quota: Quota
    used: Amounts


@dataclass(frozen=True, slots=True)
class SetQuota:
    """One that an administrator has set."""

    id: str
    name: str               # of the team or member; "" = the house's
    is_team: bool
    quota: Quota
    version: int


def quota_of(session: Session, member_id: str) -> Quota:
    """One statement."""
    teams = select(TeamMember.team_id).where(TeamMember.member_id == member_id)
    rows = session.scalars(select(QuotaRow).where(
        or_(QuotaRow.id == HOUSE, QuotaRow.member_id == member_id, QuotaRow.team_id.in_(teams)))).all()
    own = [row for row in rows if row.member_id]
    of_teams = [row for row in rows if row.team_id]
    counts = own or of_teams or rows
    return most_generous(map(as_quota, counts)) if counts else Quota()


def used_by(session: Session, member_id: str, *, but_for: str | None = None) -> Amounts:
    """Cards: those that are held, also while a container is still going down. Two statements."""
    mine = (Workspace.owner_id == member_id, Workspace.phase != Phase.REMOVED, Workspace.id != (but_for or ""))
    there, cpus, memory = session.execute(select(
        func.count(),
        func.coalesce(func.sum(Workspace.cpu_millis).filter(_RUNS), 0),
        func.coalesce(func.sum(Workspace.memory_bytes).filter(_RUNS), 0)).where(*mine)).one()
    cards = session.scalar(select(func.count()).select_from(GpuClaim).join(
        Workspace, Workspace.id == GpuClaim.workspace_id).where(*mine))
    return Amounts(there, cards or 0, int(cpus), int(memory))


def use_of(session: Session, member_id: str) -> Use:
    """Three statements."""
    return Use(quota_of(session, member_id), used_by(session, member_id))


def all_set(session: Session) -> tuple[SetQuota, ...]:
    """The house's first, then teams, then members, by name. One statement."""
    rows = session.execute(
        select(QuotaRow, Team.name, Member.username).outerjoin(Team, Team.id == QuotaRow.team_id)
        .outerjoin(Member, Member.id == QuotaRow.member_id)).all()
    found = [SetQuota(row.id, team or member or "", team is not None, as_quota(row), row.version)
             for row, team, member in rows]
    return tuple(sorted(found, key=lambda one: (one.id != HOUSE, not one.is_team, one.name)))


def as_quota(row: QuotaRow) -> Quota:
    return Quota(row.workspaces, row.cards, row.cpu_millis, row.memory_bytes)
