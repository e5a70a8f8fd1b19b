"""Browser sessions: begun at a sign-in, listed for their owner, ended one by one. All of a person's end with an epoch
(services.people).
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import delete, or_, update
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.errors import NotFound
from webapp.services import access, events, passwords
from webapp.services.ids import new_id
from webapp.services.rows import change
from webapp.store.tables import BrowserSession

LIFETIME = timedelta(days=14)       # without a visit
FRESH = timedelta(minutes=15)       # so long after the password dangerous things need no other
SEEN_EVERY = timedelta(minutes=1)
TOKEN_BYTES = 32
MOST_BROWSER = 200                  # characters


def begin(session: Session, member_id: str, *, address: str | None, browser: str, now: datetime) -> str:
    """The token for the cookie: only its hash is kept. Rows of this person that are long over go."""
    member = access.member(session, member_id)
    over = or_(BrowserSession.ended_at.is_not(None), BrowserSession.seen_at < now - LIFETIME,
               BrowserSession.epoch != member.session_epoch)
    session.execute(delete(BrowserSession).where(BrowserSession.member_id == member_id, over))
    token = secrets.token_urlsafe(TOKEN_BYTES)
    session.add(BrowserSession(
        id=new_id(), member_id=member_id, token_hash=hash_of(token), epoch=member.session_epoch, created_at=now,
        seen_at=now, proven_at=now, address=address, browser=browser[:MOST_BROWSER]))
    return token


def end(session: Session, actor: Actor, session_id: str, *, now: datetime) -> None:
    """One of one's own. Raises NotFound."""
    mine = (BrowserSession.id == session_id, BrowserSession.member_id == actor.member_id,
            BrowserSession.ended_at.is_(None))
    if not change(session, update(BrowserSession).where(*mine).values(ended_at=now)):
        raise NotFound()
    events.write(session, actor, "session.end", "session", session_id, now=now)


def end_others(session: Session, actor: Actor, session_id: str, *, now: datetime) -> int:
    """All of one's own but this one; how many."""
    others = (BrowserSession.member_id == actor.member_id, BrowserSession.id != session_id,
              BrowserSession.ended_at.is_(None))
    count = change(session, update(BrowserSession).where(*others).values(ended_at=now))
    events.write(session, actor, "session.end_others", "session", session_id, now=now, count=count)
    return count


def prove(session: Session, actor: Actor, session_id: str, *, password: str, now: datetime) -> bool:
    """Whether that is the person's password; then dangerous things can be done for a while."""
    member = access.person(session, actor)
    if not passwords.matches(member.password_hash, password):
        events.write(session, actor, "session.not_proven", "session", session_id, now=now)
        return False
    session.execute(update(BrowserSession).where(BrowserSession.id == session_id).values(proven_at=now))
    return True


def seen(session: Session, session_id: str, *, now: datetime) -> None:
    session.execute(update(BrowserSession).where(BrowserSession.id == session_id).values(seen_at=now))


def hash_of(token: str) -> str:
    """Plain SHA-256: the token is 256 random bits, nothing to guess."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()
