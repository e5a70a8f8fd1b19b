"""What the agent saw, written down. Every write is guarded: it holds only if the intent it answers is the last.

0 rows changed means that somebody asked for something else meanwhile, or that a newer agent runs: look again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from sqlalchemy import case, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.workspace import Desired, Health, Phase
from webapp.services import before, events, gpus, locks, ports
from webapp.store.reads import hold
from webapp.store.tables import AgentState, Host, HostHome, Workspace, WorkspaceSecret


def next_epoch(session: Session, *, now: datetime) -> int:
    """Take over as the agent: everything recorded under an older epoch is refused from here on."""
    state = _locked_state(session)
    state.epoch += 1
    state.started_at = state.alive_at = now
    return state.epoch


def _locked_state(session: Session) -> AgentState:
    """FOR UPDATE: waits for the end of every transaction that has asked which agent is the newest."""
    with suppress(IntegrityError), session.begin_nested():      # it is there already, but at the first start
        if session.get(AgentState, 1) is None:
            session.add(AgentState(id=1, epoch=0))
    return session.get_one(AgentState, 1, with_for_update=True)


def still_alive(session: Session, *, epoch: int, now: datetime) -> bool:
    """The agent's sign of life. False = a newer agent has taken over."""
    done = session.execute(update(AgentState).where(AgentState.epoch == epoch).values(alive_at=now))
    return bool(done.rowcount)  # type: ignore[attr-defined]


def record(
    session: Session, workspace_id: str, *, generation: int, epoch: int, now: datetime, changes: Mapping[str, Any]
) -> bool:
    """Write `changes` of agent-owned columns. False = stale, nothing was written."""
    values = {"generation": generation, **changes}     # so that there is something to write
    if "phase" in values:
        values["phase_at"] = case((Workspace.phase != values["phase"], now), else_=Workspace.phase_at)
    done = session.execute(
        update(Workspace)
        .where(Workspace.id == workspace_id, Workspace.generation == generation, locks.by_acting_agent(epoch))
        .values(**values)
    )
    return bool(done.rowcount)  # type: ignore[attr-defined]


def release_gpus(
    session: Session, workspace_id: str, *, generation: int, epoch: int, keep: Collection[str] = (), now: datetime,
) -> bool:
    """Containers with cards that it is not to `keep` were seen down: these are free. False = stale, start anew."""
    changes = {} if keep else {"gpu_check": None}
    if not record(session, workspace_id, generation=generation, epoch=epoch, now=now, changes=changes):
        return False
    released = gpus.release(session, workspace_id, keep=keep)
    events.write(session, Actor.house(), "workspace.release_gpus", "workspace", workspace_id, now=now,
                 gpus=list(released))
    return True


def undo_change(
    session: Session, workspace_id: str, *, generation: int, epoch: int, now: datetime, changes: Mapping[str, Any],
    why: str,
) -> bool:
    """A change could not be made, and its container of before is whole: all is as it was. False = stale.

    With proof that no other container of it is up: of the cards it keeps those that it had.
    """
    if not record(session, workspace_id, generation=generation, epoch=epoch, now=now, changes=changes):
        return False
    workspace = session.get_one(Workspace, workspace_id, populate_existing=True)
    before.restore(session, workspace)
    given_back = gpus.release(session, workspace_id, keep=workspace.gpu_uuids)
    events.write(session, Actor.house(), "workspace.undo_change", "workspace", workspace_id, now=now, why=why,
                 gpus=list(given_back))
    return True


def record_gpu_check(
    session: Session, workspace_id: str, *, epoch: int, was: Mapping[str, Any], check: Mapping[str, Any] | None
) -> None:
    """What the check found that wrote `was` when it began; nothing when the workspace was started anew meanwhile."""
    row = session.scalar(
        select(Workspace).where(Workspace.id == workspace_id, locks.by_acting_agent(epoch))
        .with_for_update(**locks.ROW))
    if row is not None and row.gpu_check == was:
        row.gpu_check = None if check is None else dict(check)


def record_removed(session: Session, workspace_id: str, *, generation: int, epoch: int, now: datetime) -> bool:
    """Nothing of it is left on its host: give its ports back and forget its secrets. The row stays, for history."""
    changes = {"phase": Phase.REMOVED, "observed_generation": generation, "health": Health.UNKNOWN, "reason": None,
               "note": None, "container_id": None, "private_image": None, "next_try_at": None}
    if not record(session, workspace_id, generation=generation, epoch=epoch, now=now, changes=changes):
        return False
    gpus.release(session, workspace_id)
    ports.release_all(session, workspace_id, now)
    session.execute(delete(WorkspaceSecret).where(WorkspaceSecret.workspace_id == workspace_id))
    events.write(session, Actor.house(), "workspace.removed", "workspace", workspace_id, now=now)
    return True


def record_host_seen(
    session: Session, host_id: str, *, capabilities: Mapping[str, Any] | None, epoch: int, now: datetime
) -> None:
    """The engine answered. `capabilities` None = keep what is known."""
    values: dict[str, Any] = {"seen_at": now, "unreachable_since": None, "trouble": None}
    if capabilities is not None:
        values["capabilities"] = dict(capabilities)
    session.execute(update(Host).where(Host.id == host_id, locks.by_newest_agent(epoch)).values(**values))


def record_host_silent(session: Session, host_id: str, *, trouble: str, epoch: int, now: datetime) -> None:
    """The engine does not answer: what runs there is unknown, and nothing is freed (promises.md P6). On hold the rows
    stay as they are.
    """
    host = session.scalar(
        select(Host).where(Host.id == host_id, locks.by_newest_agent(epoch)).with_for_update(**locks.ROW))
    if host is None:
        return
    if host.unreachable_since is None:
        host.unreachable_since = now
    host.trouble = trouble
    if hold.is_on(session):
        return
    reason = {"code": "engine_unreachable", "facts": {"host": host.name, "since": host.unreachable_since.isoformat()}}
    running = (Workspace.host_id == host_id, Workspace.phase == Phase.RUNNING, Workspace.desired == Desired.RUNNING)
    ids = session.scalars(select(Workspace.id).where(*running).order_by(Workspace.id).with_for_update(**locks.ROW))
    session.execute(
        update(Workspace).where(Workspace.id.in_(ids.all()))
        .values(phase=Phase.UNKNOWN, phase_at=now, health=Health.UNKNOWN, reason=reason)
    )


def home_is_seeded(session: Session, host_id: str, member_id: str) -> bool:
    return session.get(HostHome, (host_id, member_id)) is not None


def record_home_seeded(session: Session, host_id: str, member_id: str, *, now: datetime) -> None:
    with suppress(IntegrityError), session.begin_nested():      # another worker of the same person was faster
        if session.get(HostHome, (host_id, member_id)) is None:
            session.add(HostHome(host_id=host_id, member_id=member_id, seeded_at=now))
