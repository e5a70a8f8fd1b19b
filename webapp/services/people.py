"""Members: how they come in, sign in, change their password, and leave."""

from __future__ import annotations

import re
import secrets
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.names import parse_display_name, parse_username
from webapp.domain.workspace import Desired
from webapp.errors import N_, InvalidInput, NotFound
from webapp.services import access, account_names, events, locks, numbers, passwords, workspaces
from webapp.services.ids import new_id
from webapp.services.problems import Problems
from webapp.services.rows import change
from webapp.store.tables import Invite, Member, Role, Workspace

INVITE_TOKEN_BYTES = 24
INVITE_LIFETIME = timedelta(days=7)
FIRST_ADMIN_LIFETIME = timedelta(hours=24)

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:_[A-Za-z]{2,4}){0,2}")


def create_member(
    session: Session, actor: Actor, *, username: str, display_name: str, password: str, role: Role, now: datetime,
) -> Member:
    """A new person, by an admin or by the command line."""
    access.require_admin(actor)
    locks.turn(session, locks.Lock.PEOPLE)
    member = _insert(session, username=username, display_name=display_name, password=password, role=role, now=now)
    events.write(session, actor, "member.create", "member", member.id, now=now, username=member.username, role=role)
    return member


def make_invite(
    session: Session, actor: Actor, *, role: Role, now: datetime, lifetime: timedelta = INVITE_LIFETIME,
) -> str:
    """The token of a new link: the only time that it can be seen."""
    access.require_admin(actor)
    token = secrets.token_urlsafe(INVITE_TOKEN_BYTES)
    invite = Invite(
        id=new_id(), token_hash=_token_hash(token), role=role, created_by=actor.member_id, created_at=now,
        expires_at=now + lifetime,
    )
    session.add(invite)
    events.write(session, actor, "invite.make", "invite", invite.id, now=now, role=role,
                 expires_at=invite.expires_at.isoformat())
    return token


def first_admin_token(session: Session, *, now: datetime) -> str | None:
    """Token for the first administrator; None when there is one. Earlier unused ones stop working."""
    locks.turn(session, locks.Lock.PEOPLE)
    if active_admins(session):
        return None
    earlier = (Invite.created_by.is_(None), Invite.role == Role.ADMIN, *_open_invite(now))
    session.execute(update(Invite).where(*earlier).values(expires_at=now))
    return make_invite(session, Actor.house(), role=Role.ADMIN, now=now, lifetime=FIRST_ADMIN_LIFETIME)


def peek_invite(session: Session, *, token: str, now: datetime) -> Invite:
    """The open invite of that token. Raises NotFound when it was used, has ended, or never was."""
    invite = session.scalar(select(Invite).where(Invite.token_hash == _token_hash(token), *_open_invite(now)))
    if invite is None:
        raise NotFound()
    return invite


def redeem_invite(
    session: Session, *, token: str, username: str, display_name: str, password: str, now: datetime,
    address: str | None = None,
) -> Member:
    """A new person, by a link. Of two who use it at the same moment one gets NotFound."""
    locks.turn(session, locks.Lock.PEOPLE)
    invite = _use_invite(session, token=token, now=now)
    member = _insert(
        session, username=username, display_name=display_name, password=password, role=Role(invite.role), now=now)
    invite.member_id = member.id
    actor = Actor(member.id, is_admin=member.role == Role.ADMIN, address=address)
    events.write(session, actor, "invite.redeem", "member", member.id, now=now, username=member.username,
                 role=member.role, invite_id=invite.id)
    return member


def withdraw_invite(session: Session, actor: Actor, invite_id: str, *, now: datetime) -> None:
    """An open link stops working."""
    access.require_admin(actor)
    ended = change(session, update(Invite).where(Invite.id == invite_id, *_open_invite(now)).values(expires_at=now))
    if ended == 0:
        raise NotFound()
    events.write(session, actor, "invite.withdraw", "invite", invite_id, now=now)


def authenticate(session: Session, *, username: str, password: str) -> Member | None:
    """The active member with that name and password, else None; it takes as long either way.

    Give it a session for reading: the hash takes 20 ms, and nobody should hold the write lock that long.
    """
    name = username.strip().lower()     # phones begin every field with a capital
    member = session.scalar(select(Member).where(Member.username == name, Member.deactivated_at.is_(None))
                            ) if name.isascii() else None
    with passwords.TURNS:
        return member if passwords.matches(member.password_hash if member else None, password) else None


def record_sign_in(session: Session, actor: Actor, *, password: str, now: datetime) -> None:
    """After authenticate, in a transaction of its own: the event, and a hash with today's costs if it had others."""
    member = access.person(session, actor)
    if passwords.is_outdated(member.password_hash) and passwords.matches(member.password_hash, password):
        member.password_hash = passwords.hash_password(password)
    events.write(session, actor, "member.sign_in", "member", member.id, now=now)


def set_password(
    session: Session, actor: Actor, member_id: str, *, old: str | None, new: str, now: datetime,
) -> Member:
    """One's own with the old one; anybody's for an admin, who needs none. Ends all of that person's sessions."""
    own = actor.member_id == member_id
    if not own:
        access.require_admin(actor)
    member = access.member(session, member_id)
    problems = Problems()
    with problems.gather():
        new = passwords.parse_password(new, "new")
    if own and not passwords.matches(member.password_hash, old or ""):
        problems.add("old", N_("That is not your present password."))
    problems.raise_if_any()
    member.password_hash = passwords.hash_password(new)
    member.session_epoch += 1
    events.write(session, actor, "member.set_password", "member", member_id, now=now)
    return member


def end_sessions(session: Session, actor: Actor, *, now: datetime) -> None:
    """Signs a person out in every browser: a cookie that was copied earlier is worth nothing afterwards."""
    member = access.person(session, actor)
    member.session_epoch += 1
    events.write(session, actor, "member.sign_out", "member", member.id, now=now)


def set_language(session: Session, actor: Actor, language: str | None, *, now: datetime) -> Member:
    """`language`: a locale id such as "zh_Hans_CN"; None = as the browser asks."""
    member = access.person(session, actor)
    if language is not None and not _LANGUAGE.fullmatch(language):
        raise InvalidInput.of("language", N_("That is not a language Berth speaks. Choose one from the list."))
    if member.language != language:
        member.language = language
        events.write(session, actor, "member.set_language", "member", member.id, now=now, language=language)
    return member


def deactivate_member(session: Session, actor: Actor, member_id: str, *, now: datetime) -> Member:
    """Ends sessions, open invites and running workspaces of a person. Data, uid and user name stay theirs for ever."""
    access.require_admin(actor)
    locks.turn(session, locks.Lock.PEOPLE)
    member = access.member(session, member_id)
    if member.deactivated_at is not None:
        return member
    if member.role == Role.ADMIN and active_admins(session) == 1:
        raise InvalidInput.of("member", N_("This is the only administrator. Make another one first."))
    member.deactivated_at = now
    member.session_epoch += 1
    session.execute(
        update(Invite).where(Invite.created_by == member_id, Invite.used_at.is_(None)).values(expires_at=now))
    running = select(Workspace.id).where(Workspace.owner_id == member_id, Workspace.desired == Desired.RUNNING)
    for workspace_id in session.scalars(running.order_by(Workspace.id)).all():
        workspaces.stop(session, actor, workspace_id, now=now)
    events.write(session, actor, "member.deactivate", "member", member_id, now=now)
    return member


def reactivate_member(session: Session, actor: Actor, member_id: str, *, now: datetime) -> Member:
    access.require_admin(actor)
    member = access.member(session, member_id)
    if member.deactivated_at is not None:
        member.deactivated_at = None
        events.write(session, actor, "member.reactivate", "member", member_id, now=now)
    return member


def set_role(session: Session, actor: Actor, member_id: str, *, role: Role, now: datetime) -> Member:
    """Ends the person's sessions: a session carries what its owner may do."""
    access.require_admin(actor)
    locks.turn(session, locks.Lock.PEOPLE)
    member = access.member(session, member_id)
    if member.role == role:
        return member
    if member.role == Role.ADMIN and active_admins(session) == 1 and member.deactivated_at is None:
        raise InvalidInput.of("role", N_("This is the only administrator. Make another one first."))
    member.role = role
    member.session_epoch += 1
    events.write(session, actor, "member.set_role", "member", member_id, now=now, role=role)
    return member


def active_admins(session: Session) -> int:
    count = select(func.count()).where(Member.role == Role.ADMIN, Member.deactivated_at.is_(None))
    return session.scalar(count) or 0


def _use_invite(session: Session, *, token: str, now: datetime) -> Invite:
    """Marks it used; the guard in the UPDATE lets one of two through."""
    invite = peek_invite(session, token=token, now=now)
    used = change(session, update(Invite).where(Invite.id == invite.id, *_open_invite(now)).values(used_at=now))
    if used == 0:
        raise NotFound()
    return invite


def _open_invite(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return Invite.used_at.is_(None), Invite.expires_at > now


def _token_hash(token: str) -> str:
    """Plain SHA-256: the token is 192 random bits, nothing to guess."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def _insert(
    session: Session, *, username: str, display_name: str, password: str, role: Role, now: datetime,
) -> Member:
    problems = Problems()
    with problems.gather():
        username = parse_username(username, "username")
        account_names.refuse_taken(session, username, "username")
    with problems.gather():
        display_name = parse_display_name(display_name, "display_name")
    with problems.gather():
        password = passwords.parse_password(password, "password")
    problems.raise_if_any()
    member = Member(
        id=new_id(), username=username, display_name=display_name, role=role,
        password_hash=passwords.hash_password(password), uid=numbers.next_uid(session), created_at=now,
    )
    session.add(member)
    session.flush()
    return member
