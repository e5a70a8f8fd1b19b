"""Hosts: the machines with an engine. So far one, the server itself."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.errors import NoHost
from webapp.services import events, intent, locks
from webapp.services.ids import new_id
from webapp.store.tables import Host


def ensure_local(session: Session, *, name: str, engine_url: str, now: datetime) -> Host:
    """This server's row, made at the first start. It is known by its name, or by its engine when it was renamed."""
    locks.turn(session, locks.Lock.HOSTS)
    same = select(Host).where(or_(Host.name == name, Host.engine_url == engine_url)).order_by(Host.name != name)
    host = session.scalars(same).first()
    if host is not None and (host.name, host.engine_url) == (name, engine_url):
        return host
    action = "host.add" if host is None else "host.change"
    if host is None:
        host = Host(id=new_id(), created_at=now)
        session.add(host)
    host.name, host.engine_url = name, engine_url
    session.flush()
    events.write(session, Actor.house(), action, "host", host.id, now=now, name=name, engine_url=engine_url)
    intent.ring(session)
    return host


def choose(session: Session, only: str | None = None) -> Host:
    """One that answers, else the first: a silent host takes what is asked for and says so on its page.

    Args:  only: id of the one that will do.   Raises NoHost.
    """
    which = select(Host) if only is None else select(Host).where(Host.id == only)
    host = session.scalars(which.order_by(Host.unreachable_since.is_not(None), Host.created_at, Host.id)).first()
    if host is None:
        raise NoHost(why="none is registered; start the agent once")
    return host
