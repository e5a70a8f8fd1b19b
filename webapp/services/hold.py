"""The hold: put on by a restore or by hand, what the agent found meanwhile, and what is decided about it.

It ends by services.hold_release alone. The agent looks whether there is one in every pass (agent.reconciler) and before
every step (store.reads.agent).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain import hold
from webapp.domain.actor import Actor
from webapp.domain.hold import Decision, Finding, FindingKind, Present
from webapp.domain.hold_errors import AlreadyOnHold, FindingChanged, NoFinding, NotADecision, NotOnHold, OnHold
from webapp.errors import N_, InvalidInput
from webapp.services import access, events, hold_origin, intent, locks
from webapp.store.reads import hold as reads
from webapp.store.reads.hold import FindingRow
from webapp.store.tables import AgentState, HoldFinding

RESTORE = "restore"
MOST_WHY = 500                                  # characters
LOOKED_EVERY = timedelta(seconds=5)             # how often a look is written down while nothing else changes
NOT_FOR_THIS_KIND = N_("That is no way out here: choose another one.")


def put_on(session: Session, actor: Actor, *, why: str, now: datetime, made_at: datetime | None = None) -> None:
    """From the commit on the agent takes nothing up; what it is at ends before its next step.

    Args:    made_at: of the backup that was restored.
    Raises:  AlreadyOnHold, InvalidInput.
    """
    access.require_admin(actor)
    why = why.strip()
    if not why or len(why) > MOST_WHY:
        raise InvalidInput.of("why", N_("Say in a few words why: everybody reads it. At most %(most)s characters."),
                              most=MOST_WHY)
    state = lock(session)
    if state.hold is not None:
        raise AlreadyOnHold()
    state.hold = {"since": now.isoformat(), "why": why, "made_at": made_at.isoformat() if made_at else None}
    events.write(session, actor, "hold.put_on", "hold", str(state.id), now=now, why=why)
    intent.ring(session)


def lock(session: Session) -> AgentState:
    """The agent's row: waits for the end of every transaction that has asked whether the agent may act."""
    row = session.get(AgentState, 1, with_for_update=True)
    if row is None:
        row = AgentState(id=1, epoch=0)
        session.add(row)
        session.flush()
    return row


def refuse_cards(session: Session) -> None:
    """Before a GPU is claimed. Raises OnHold: what is free by the rows may be in use in truth."""
    if reads.is_on(session):
        raise OnHold()


def record(
    session: Session, host_id: str, findings: Sequence[Finding], present: Present, *, epoch: int, now: datetime,
) -> bool:
    """What the agent found on a host, all of it; what no longer differs goes. A decision about something that has
    changed since is undone, and said to have been. False = a newer agent runs, or the hold is over.
    """
    state = session.scalar(select(AgentState).where(AgentState.epoch == epoch, AgentState.hold.is_not(None))
                           .with_for_update(**locks.ROW))
    if state is None or state.hold is None:
        return False
    current = reads.as_hold(state.hold)
    there = {row.workspace_id: row for row in session.scalars(
        select(HoldFinding).where(HoldFinding.host_id == host_id).order_by(HoldFinding.workspace_id))}
    changed = False
    for finding in findings:
        changed |= _write(session, host_id, there.pop(finding.workspace_id, None), finding, current.since, now)
    for row in there.values():
        session.delete(row)
    seen = {"there": sorted(present.there), "up": sorted(present.up)}
    look = current.looks.get(host_id)
    if changed or there or look is None or look.present != present or now - look.at >= LOOKED_EVERY:
        looks = {**(state.hold.get("looks") or {}), host_id: {"at": now.isoformat(), **seen}}
        state.hold = {**state.hold, "looks": looks}
    return True


def decide(
    session: Session, actor: Actor, workspace_id: str, decision: str, *, seen: str | None = None, now: datetime,
) -> None:
    """What is to become of one difference at the release; nothing happens before that.

    Args:    seen: the mark of the finding as it was when somebody looked; None = as it is now.
    Raises:  NotOnHold, NoFinding, NotADecision, FindingChanged.
    """
    access.require_admin(actor)
    _require_hold(session)
    found = next((row for row in reads.findings(session) if row.workspace_id == workspace_id), None)
    if found is None:
        raise NoFinding(name=workspace_id)
    if seen is not None and seen != found.mark:
        raise FindingChanged(name=found.name)
    chosen = _read(session, found, decision)
    row = session.get_one(HoldFinding, (found.host_id, workspace_id), with_for_update=locks.ROW)
    if row.decision == chosen:
        return
    row.decision = chosen
    events.write(session, actor, "hold.decide", "workspace", workspace_id, now=now, kind=str(found.kind),
                 decision=str(chosen))


def decide_all(session: Session, actor: Actor, kind: str, decision: str, *, now: datetime) -> tuple[str, ...]:
    """The same about all of a kind; those for which it is no way out stay undecided: their names."""
    _require_hold(session)
    left = []
    for found in reads.findings(session):
        if found.kind != kind:
            continue
        try:
            decide(session, actor, found.workspace_id, decision, now=now)
        except NotADecision:
            left.append(found.name)
    return tuple(left)


def _require_hold(session: Session) -> None:
    """Locked: nothing is found, decided or ended beside this transaction."""
    on = select(AgentState.id).where(AgentState.hold.is_not(None)).with_for_update(**locks.ROW)
    if session.scalar(on) is None:
        raise NotOnHold()


def _read(session: Session, found: FindingRow, decision: str) -> Decision:
    if decision not in hold.choices(found.kind, found.facts):
        raise NotADecision(decision=decision, name=found.name, why=NOT_FOR_THIS_KIND)
    if decision == Decision.ADOPT and (refusal := hold_origin.refusal(session, found.kind, found.facts)):
        raise NotADecision(decision=decision, name=found.name, why=refusal)
    return Decision(decision)


def _write(
    session: Session, host_id: str, row: HoldFinding | None, finding: Finding, since: datetime, now: datetime,
) -> bool:
    """Whether anything is different from before."""
    if row is None:
        session.add(HoldFinding(host_id=host_id, workspace_id=finding.workspace_id, kind=finding.kind,
                                facts=dict(finding.facts), found_at=now))
        return True
    if hold.mark(row.kind, row.facts) == finding.mark:
        return False
    stays_forgotten = (row.decision == Decision.FORGET and row.found_at < since
                       and finding.kind is FindingKind.UNKNOWN_CONTAINER)
    facts: dict[str, Any] = dict(finding.facts)
    if not stays_forgotten and (before := row.decision or row.facts.get("decided_before")):
        facts["decided_before"] = before
    row.kind, row.facts, row.found_at = finding.kind, facts, now
    row.decision = Decision.FORGET if stays_forgotten else None
    return True
