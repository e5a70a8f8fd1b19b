"""What pages show of people: who is signed in, their keys, members and teams, open invites."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Phase
from webapp.store.tables import (
    BrowserSession,
    Host,
    Invite,
    Member,
    Operation,
    Role,
    SshKey,
    Team,
    TeamMember,
    Workspace,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Account:
    """What a request needs of the person behind it."""

    id: str
    username: str
    display_name: str
    is_admin: bool
    language: str | None        # None = as the browser asks
    session_id: str
    seen_at: datetime           # of the session, before this request
    proven_at: datetime


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: str
    created_at: datetime
    seen_at: datetime
    address: str | None
    browser: str                # as it calls itself


@dataclass(frozen=True, slots=True)
class KeyRow:
    id: str
    title: str
    type: str
    fingerprint: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class PendingKeys:
    """A workspace that does not know its owner's present keys yet."""

    workspace_id: str
    name: str
    host_name: str
    host_unreachable_since: datetime | None
    since: datetime


@dataclass(frozen=True, slots=True)
class MemberRow:
    id: str
    username: str
    display_name: str
    is_admin: bool
    uid: int
    teams: tuple[str, ...]      # names
    keys: int
    workspaces: int             # not yet gone
    created_at: datetime
    deactivated_at: datetime | None


@dataclass(frozen=True, slots=True)
class TeamRow:
    id: str
    name: str
    gid: int
    members: tuple[tuple[str, str], ...]    # (id, user name), by name


@dataclass(frozen=True, slots=True)
class InviteRow:
    id: str
    is_admin: bool
    created_by: str | None      # user name; None = the command line
    created_at: datetime
    expires_at: datetime


def signed_in(session: Session, token_hash: str, *, seen_since: datetime) -> Account | None:
    """None for a session that has ended or of which nothing was seen since then, and for somebody deactivated. One
    statement: it runs at each request.
    """
    found = session.execute(
        select(Member, BrowserSession).join(BrowserSession, BrowserSession.member_id == Member.id)
        .where(BrowserSession.token_hash == token_hash, BrowserSession.ended_at.is_(None),
               BrowserSession.seen_at >= seen_since, BrowserSession.epoch == Member.session_epoch,
               Member.deactivated_at.is_(None))).one_or_none()
    if found is None:
        return None
    row, browser = found
    return Account(row.id, row.username, row.display_name, row.role == Role.ADMIN, row.language, browser.id,
                   browser.seen_at, browser.proven_at)


def sessions_of(session: Session, member_id: str, *, seen_since: datetime) -> tuple[SessionRow, ...]:
    """Those that are open, the one that was seen last first."""
    rows = session.scalars(
        select(BrowserSession).join(Member, Member.id == BrowserSession.member_id)
        .where(BrowserSession.member_id == member_id, BrowserSession.ended_at.is_(None),
               BrowserSession.seen_at >= seen_since, BrowserSession.epoch == Member.session_epoch)
        .order_by(BrowserSession.seen_at.desc(), BrowserSession.id))
    return tuple(SessionRow(row.id, row.created_at, row.seen_at, row.address, row.browser) for row in rows)


def keys_of(session: Session, member_id: str) -> tuple[KeyRow, ...]:
    """Oldest first."""
    rows = session.scalars(
        select(SshKey).where(SshKey.member_id == member_id).order_by(SshKey.created_at, SshKey.title, SshKey.id))
    return tuple(KeyRow(row.id, row.title, row.type, row.fingerprint, row.created_at) for row in rows)


def pending_keys(session: Session, member_id: str) -> tuple[PendingKeys, ...]:
    """Oldest first. One statement."""
    rows = session.execute(
        select(Workspace.id, Workspace.name, Host.name, Host.unreachable_since, Operation.created_at)
        .join(Operation, Operation.workspace_id == Workspace.id).join(Host, Host.id == Workspace.host_id)
        .where(Workspace.owner_id == member_id, Operation.kind == OperationKind.WORKSPACE_KEYS,
               Operation.state.in_((OperationState.WAITING, OperationState.RUNNING)))
        .order_by(Operation.created_at, Workspace.name))
    return tuple(PendingKeys(*row) for row in rows)


def members(session: Session) -> tuple[MemberRow, ...]:
    """Active ones first, by user name. Two statements."""
    keys = select(func.count()).where(SshKey.member_id == Member.id).scalar_subquery()
    workspaces = select(func.count()).where(
        Workspace.owner_id == Member.id, Workspace.phase != Phase.REMOVED).scalar_subquery()
    rows = session.execute(
        select(Member, keys, workspaces).order_by(Member.deactivated_at.is_not(None), Member.username)).all()
    teams = _grouped(session.execute(
        select(TeamMember.member_id, Team.name).join(Team, Team.id == TeamMember.team_id).order_by(Team.name)))
    return tuple(
        MemberRow(
            id=row.id, username=row.username, display_name=row.display_name, is_admin=row.role == Role.ADMIN,
            uid=row.uid, teams=teams[row.id], keys=n_keys, workspaces=n_workspaces, created_at=row.created_at,
            deactivated_at=row.deactivated_at,
        )
        for row, n_keys, n_workspaces in rows
    )


def teams(session: Session) -> tuple[TeamRow, ...]:
    """By name. Two statements."""
    rows = session.scalars(select(Team).order_by(Team.name)).all()
    pairs = session.execute(
        select(TeamMember.team_id, Member.id, Member.username).join(Member, Member.id == TeamMember.member_id)
        .order_by(Member.username))
    people = _grouped((team_id, (member_id, username)) for team_id, member_id, username in pairs)
    return tuple(TeamRow(row.id, row.name, row.gid, people[row.id]) for row in rows)


def teams_of(session: Session, member_id: str) -> tuple[tuple[str, str], ...]:
    """(id, name), by name. One statement."""
    rows = session.execute(
        select(Team.id, Team.name).join(TeamMember, TeamMember.team_id == Team.id)
        .where(TeamMember.member_id == member_id).order_by(Team.name))
    return tuple((team_id, name) for team_id, name in rows)


def open_invites(session: Session, *, now: datetime) -> tuple[InviteRow, ...]:
    """Links that still work, newest first."""
    rows = session.execute(
        select(Invite, Member.username).outerjoin(Member, Member.id == Invite.created_by)
        .where(Invite.used_at.is_(None), Invite.expires_at > now)
        .order_by(Invite.created_at.desc(), Invite.id))
    return tuple(
        InviteRow(row.id, row.role == Role.ADMIN, username, row.created_at, row.expires_at) for row, username in rows)


def _grouped(pairs: Iterable[tuple[str, T]]) -> defaultdict[str, tuple[T, ...]]:
    grouped: defaultdict[str, tuple[T, ...]] = defaultdict(tuple)
    for key, value in pairs:
        grouped[key] += (value,)
    return grouped
