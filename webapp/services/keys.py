"""SSH keys of members. A key is a shell in every workspace of its owner: nobody adds one for somebody else."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.names import parse_display_name
from webapp.domain.operation import OperationKind
from webapp.domain.sshkeys import MOST_KEYS, PublicKey, parse_public_keys
from webapp.domain.workspace import RESTING, Desired
from webapp.errors import N_, NotFound
from webapp.services import access, events, locks, operations
from webapp.services.ids import new_id
from webapp.services.problems import Problems
from webapp.store.tables import SshKey, Workspace

MOST_TITLE = 60     # characters


def add_keys(session: Session, actor: Actor, *, member_id: str, text: str, title: str, now: datetime) -> list[SshKey]:
    """All keys in `text` (one a line), or none when any of them cannot be used.

    `title` "" = each key's own comment. Running workspaces get the keys while they run.
    """
    if actor.member_id != member_id and not access.is_house(actor):
        raise NotFound()
    access.member(session, member_id)
    problems = Problems()
    parsed: tuple[PublicKey, ...] = ()
    with problems.gather():
        parsed = parse_public_keys(text, "text")
        _refuse_what_is_there(session, member_id, parsed, problems)
    with problems.gather():
        title = parse_display_name(title, "title") if title.strip() else ""
    problems.raise_if_any()
    rows = [_row(member_id, key, title, now) for key in parsed]
    session.add_all(rows)
    session.flush()
    for row in rows:
        events.write(session, actor, "key.add", "key", row.id, now=now, member_id=member_id,
                     fingerprint=row.fingerprint, title=row.title)
    _write_into_running(session, member_id, now)
    return rows


def rename_key(session: Session, actor: Actor, key_id: str, *, title: str, now: datetime) -> SshKey:
    """By its owner. Nothing in workspaces changes: the name is for people."""
    key = session.get(SshKey, key_id)
    if key is None or key.member_id != actor.member_id:
        raise NotFound()
    access.member(session, key.member_id)
    title = parse_display_name(title, "title")
    if key.title != title:
        events.write(session, actor, "key.rename", "key", key_id, now=now, before=key.title, after=title)
        key.title = title
    return key


def remove_key(session: Session, actor: Actor, key_id: str, *, now: datetime) -> None:
    """By its owner, or by an admin when a key must not open anything any more."""
    key = session.get(SshKey, key_id)
    if key is None or not (actor.is_admin or key.member_id == actor.member_id):
        raise NotFound()
    access.member(session, key.member_id)
    if session.get(SshKey, key_id, with_for_update=True) is None:   # somebody was faster (PostgreSQL only)
        raise NotFound()
    session.delete(key)
    session.flush()
    events.write(session, actor, "key.remove", "key", key_id, now=now, member_id=key.member_id,
                 fingerprint=key.fingerprint, title=key.title)
    _write_into_running(session, key.member_id, now)


def _refuse_what_is_there(
    session: Session, member_id: str, parsed: tuple[PublicKey, ...], problems: Problems,
) -> None:
    if not parsed:
        problems.add("text", N_("Paste at least one key: the line of a .pub file such as ~/.ssh/id_ed25519.pub."))
    present = {key.fingerprint: key.title
               for key in session.scalars(select(SshKey).where(SshKey.member_id == member_id))}
    for key in parsed:
        if key.fingerprint in present:
            problems.add("text", N_("The key %(fingerprint)s is there already, as “%(title)s”."),
                         fingerprint=key.fingerprint, title=present[key.fingerprint])
    if len(present) + len(parsed) > MOST_KEYS:
        problems.add("text", N_("At most %(most)d keys are kept. Remove those that you no longer use."), most=MOST_KEYS)


def _row(member_id: str, key: PublicKey, title: str, now: datetime) -> SshKey:
    return SshKey(
        id=new_id(), member_id=member_id, title=(title or key.comment or key.type)[:MOST_TITLE], type=key.type,
        line=key.line, fingerprint=key.fingerprint, created_at=now,
    )


def _write_into_running(session: Session, member_id: str, now: datetime) -> None:
    """A workspace that is only coming up is included: its files may have been written a moment ago.

    One that rests is locked as well: the agent cannot begin with it before the keys are as they are to be.
    """
    wanted = select(Workspace).where(Workspace.owner_id == member_id, Workspace.desired == Desired.RUNNING)
    held = wanted.order_by(Workspace.id).with_for_update(**locks.ROW).execution_options(populate_existing=True)
    for workspace in session.scalars(held).all():
        if workspace.phase not in RESTING:
            operations.request(session, Actor.house(), OperationKind.WORKSPACE_KEYS, workspace_id=workspace.id,
                               arguments={}, now=now)
