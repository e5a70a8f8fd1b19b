"""The hold: since when, what differs, and what was decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain import hold
from webapp.store.tables import AgentState, Event, Gpu, HoldFinding, Host, Member, Volume, Workspace

# Wishes for a workspace: of what somebody asks for while the hold lasts it is known that it is not done yet.
_WISHES = ("workspace.launch", "workspace.start", "workspace.stop", "workspace.remove", "workspace.change")


@dataclass(frozen=True, slots=True)
class Look:
    """The agent's last one at a host."""

    at: datetime
    present: hold.Present


@dataclass(frozen=True, slots=True)
class Hold:
    since: datetime
    why: str                                # "restore", or what an administrator wrote
    made_at: datetime | None                # of the backup that was restored
    instance: str | None                    # that the restored database is of; None = put on by hand
    looks: Mapping[str, Look]               # by host id


@dataclass(frozen=True, slots=True)
class FindingRow:
    host_id: str
    host_name: str
    workspace_id: str
    kind: hold.FindingKind
    facts: Mapping[str, Any]                # domain.hold.Finding
    found_at: datetime
    decision: hold.Decision | None
    decided_before: hold.Decision | None    # something has changed since that was decided
    mark: str
    name: str                               # of the workspace, as its row says, else its container; or its id
    owner: str | None                       # user name; None = nobody knows


def current(session: Session) -> Hold | None:
    """None = Berth is not on hold."""
    written = session.scalar(select(AgentState.hold))
    return None if written is None else as_hold(written)


def is_on(session: Session) -> bool:
    return session.scalar(select(AgentState.id).where(AgentState.hold.is_not(None))) is not None


def as_hold(written: Mapping[str, Any]) -> Hold:
    looks = {host_id: _look(look) for host_id, look in (written.get("looks") or {}).items()}
    made_at = written.get("made_at")
    return Hold(datetime.fromisoformat(written["since"]), str(written.get("why") or ""),
                datetime.fromisoformat(made_at) if made_at else None, written.get("instance"), looks)


def findings(session: Session) -> list[FindingRow]:
    """All, in the order of FindingKind, then by name."""
    rows = session.execute(
        select(HoldFinding, Host.name, Workspace.name, Member.username)
        .join(Host, Host.id == HoldFinding.host_id)
        .outerjoin(Workspace, Workspace.id == HoldFinding.workspace_id)
        .outerjoin(Member, Member.id == Workspace.owner_id)).all()
    members = dict(session.execute(select(Member.id, Member.username)).all())
    found = [_row(row, host, name, owner, members) for row, host, name, owner in rows]
    return sorted(found, key=lambda each: (hold.in_order(each.kind), each.name, each.workspace_id))


@dataclass(frozen=True, slots=True)
class Names:
    """What ids in facts are called."""

    cards: Mapping[str, str]                # UUID → "GPU 0"
    volumes: Mapping[str, str]              # id → name


def names(session: Session) -> Names:
    cards = session.execute(select(Gpu.uuid, Gpu.index).where(Gpu.uuid.is_not(None), Gpu.index.is_not(None)))
    return Names({str(uuid): f"GPU {index}" for uuid, index in cards},
                 dict(session.execute(select(Volume.id, Volume.name)).all()))


def asked_since(session: Session, since: datetime) -> frozenset[str]:
    """Ids of workspaces for which somebody has wished something since."""
    return frozenset(session.scalars(
        select(Event.object_id).where(Event.at >= since, Event.action.in_(_WISHES)).distinct()))


def forgotten(session: Session, host_id: str) -> frozenset[str]:
    """Ids of workspaces whose containers are left alone for ever."""
    return frozenset(session.scalars(select(HoldFinding.workspace_id).where(
        HoldFinding.host_id == host_id, HoldFinding.decision == hold.Decision.FORGET)))


def _look(written: Mapping[str, Any]) -> Look:
    present = hold.Present(frozenset(written["there"]), frozenset(written["up"]))
    return Look(datetime.fromisoformat(written["at"]), present)


def _row(
    row: HoldFinding, host: str, name: str | None, owner: str | None, members: Mapping[str, str],
) -> FindingRow:
    truth = hold.truth_in(row.facts)
    before = row.facts.get("decided_before")
    return FindingRow(
        host_id=row.host_id, host_name=host, workspace_id=row.workspace_id, kind=hold.FindingKind(row.kind),
        facts=row.facts, found_at=row.found_at, decision=hold.Decision(row.decision) if row.decision else None,
        decided_before=hold.Decision(before) if before else None, mark=hold.mark(row.kind, row.facts),
        name=name or (truth.name if truth else "") or row.workspace_id,
        owner=owner or (members.get(truth.home_of or "") if truth else None))
