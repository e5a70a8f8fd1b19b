"""The end of a hold: what was decided becomes what the rows say, all of it or nothing.

First everything is given back, then everything is claimed; two who would have the same are named and nothing is
changed. A container that is up has a claim on its cards afterwards whatever was decided, so that nobody else gets them
before the agent has seen it down. This is the one place beside the agent that writes what the agent saw: it writes
nothing itself while the hold lasts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain import hold as rules
from webapp.domain.actor import Actor
from webapp.domain.hold import Decision, FindingKind, Truth
from webapp.domain.hold_errors import HoldBlind, HoldClash, NotADecision, NotOnHold, Undecided
from webapp.domain.workspace import Desired, Phase
from webapp.services import access, events, gpus, hold, hold_origin, hold_rows, intent, locks, numbers, ports, wishes
from webapp.services.operations import requeue_running
from webapp.store.reads import hold as reads
from webapp.store.reads.hold import FindingRow, Hold
from webapp.store.tables import Gpu, GpuClaim, HoldFinding, Host, Member, PortClaim, Workspace

FRESH = timedelta(seconds=30)       # a look that is older is no look


@dataclass(frozen=True, slots=True)
class _Case:
    """A finding, what was decided about it, and what the workspace has afterwards."""

    found: FindingRow
    decision: Decision
    truth: Truth | None
    cards: frozenset[str]
    ports: Mapping[str, int]

    @property
    def is_left_alone(self) -> bool:
        """A container that stays, and that Berth never touches."""
        return self.decision is Decision.FORGET and self.truth is not None


def release(session: Session, actor: Actor, *, keep_rest: bool = False, now: datetime) -> int:
    """How many differences were decided on.

    Args:    keep_rest: about what is not decided on the database is right; unknown containers are left alone.
    Raises:  NotOnHold, HoldBlind, Undecided, HoldClash, NotADecision.
    """
    access.require_admin(actor)
    state = hold.lock(session)
    if state.hold is None:
        raise NotOnHold()
    on = reads.as_hold(state.hold)
    _refuse_blind(session, on, now)
    locks.hosts(session)
    list(session.scalars(select(Workspace.id).order_by(Workspace.id).with_for_update(**locks.ROW)))
    cases = [_case(session, found, _decision(found, keep_rest=keep_rest)) for found in _decided(session, keep_rest)]
    _free_what_is_down(session, on, {case.found.workspace_id for case in cases}, now)
    _refuse_clashes(session, cases)
    for case in cases:
        _give_back(session, case, now)
    for case in cases:
        _write(session, actor, case, now)
    for row in session.scalars(select(HoldFinding)):
        if row.workspace_id not in {case.found.workspace_id for case in cases if case.is_left_alone}:
            session.delete(row)
    state.hold = None
    requeue_running(session)        # what the agent was at when the hold began
    events.write(session, actor, "hold.release", "hold", str(state.id), now=now, decided={
        case.found.workspace_id: str(case.decision) for case in cases}, **{
        numbers.HIGHEST_UID: max((case.truth.uid or 0 for case in cases if case.truth), default=0)})
    intent.ring(session)
    return len(cases)


# -- may it end?


def _refuse_blind(session: Session, on: Hold, now: datetime) -> None:
    for host in session.scalars(select(Host).order_by(Host.name)):
        look = on.looks.get(host.id)
        if look is None or now - look.at > FRESH or host.unreachable_since is not None:
            raise HoldBlind(host=host.name)


def _decided(session: Session, keep_rest: bool) -> list[FindingRow]:
    found = reads.findings(session)
    undecided = [each.name for each in found if each.decision is None]
    if undecided and not keep_rest:
        raise Undecided(names=", ".join(undecided))
    for each in found:
        decision = _decision(each, keep_rest=keep_rest)
        if decision == Decision.ADOPT and (why := hold_origin.refusal(session, each.kind, each.facts)):
            raise NotADecision(decision=decision, name=each.name, why=why)
    return found


def _decision(found: FindingRow, *, keep_rest: bool) -> Decision:
    if found.decision is None and not keep_rest:
        raise Undecided(names=found.name)
    return found.decision or rules.by_default(found.kind)


# -- what everybody has afterwards


def _case(session: Session, found: FindingRow, decision: Decision) -> _Case:
    truth = rules.truth_in(found.facts)
    row = session.get(Workspace, found.workspace_id)
    held = frozenset(gpus.held(session, found.workspace_id))
    claims = dict(session.execute(
        select(PortClaim.service, PortClaim.port).where(PortClaim.workspace_id == found.workspace_id)).all())
    in_use = frozenset(truth.gpus) if truth is not None and truth.is_up else frozenset()
    match decision:
        case Decision.ADOPT:
            return _Case(found, decision, truth, in_use, dict(truth.ports) if truth else {})
        case Decision.FORGET:
            return _Case(found, decision, truth, in_use, {})
        case _:
            return _Case(found, decision, truth, in_use | held | _wanted(found, row), claims)


def _wanted(found: FindingRow, row: Workspace | None) -> frozenset[str]:
    """Cards with which it will be started again or made anew."""
    is_started = found.kind in (FindingKind.DOWN_BUT_WANTED, FindingKind.GONE, FindingKind.CARDS, FindingKind.MOVED)
    is_to_run = bool((found.facts.get("was") or {}).get("is_to_run"))
    return frozenset(row.gpu_uuids) if row is not None and is_started and is_to_run else frozenset()


def _refuse_clashes(session: Session, cases: Sequence[_Case]) -> None:
    """Against each other, and against the claims of those about whom there was nothing to decide."""
    concerned = {case.found.workspace_id for case in cases}
    names = _names(session)
    cards = {claim.gpu_uuid: names.get(claim.workspace_id, claim.workspace_id) for claim in session.scalars(
        select(GpuClaim)) if claim.workspace_id not in concerned}
    taken = {(claim.host_id, claim.port): names.get(claim.workspace_id, claim.workspace_id)
             for claim in session.scalars(select(PortClaim)) if claim.workspace_id not in concerned}
    for case in cases:
        name = _named(case.found)
        for uuid in sorted(case.cards):
            if (other := cards.setdefault(uuid, name)) != name:
                raise HoldClash(one=other, other=name, what=_card(session, uuid))
        for port in sorted(case.ports.values()):
            if (other := taken.setdefault((case.found.host_id, port), name)) != name:
                raise HoldClash(one=other, other=name, what=f"port {port}")


def _free_what_is_down(session: Session, on: Hold, concerned: Collection[str], now: datetime) -> None:
    """Of workspaces about which there is nothing to decide: those that are not to run and were seen down hold no cards,
    and those that were to be removed and have nothing left hold no ports either. The agent would give them back after
    its next look; who has them by now is asked before that.
    """
    for row in session.scalars(select(Workspace).where(Workspace.phase != Phase.REMOVED)):
        look = on.looks.get(row.host_id)
        if look is None or row.id in concerned or wishes.is_to_run(row) or row.id in look.present.up:
            continue
        gpus.release(session, row.id)
        if row.desired == Desired.REMOVED and row.id not in look.present.there:
            ports.release_all(session, row.id, now)


def _names(session: Session) -> dict[str, str]:
    rows = session.execute(select(Workspace.id, Workspace.name, Member.username)
                           .join(Member, Member.id == Workspace.owner_id))
    return {id_: f"{owner}/{name}" for id_, name, owner in rows}


def _named(found: FindingRow) -> str:
    return f"{found.owner}/{found.name}" if found.owner else found.name


def _card(session: Session, uuid: str) -> str:
    row = session.scalar(select(Gpu).where(Gpu.uuid == uuid).limit(1))
    return f"GPU {row.index} ({uuid})" if row is not None and row.index is not None else uuid


# -- making it so


def _give_back(session: Session, case: _Case, now: datetime) -> None:
    gpus.release(session, case.found.workspace_id)
    ports.release_all(session, case.found.workspace_id, now)
    session.flush()


def _write(session: Session, actor: Actor, case: _Case, now: datetime) -> None:
    found, truth = case.found, case.truth
    row = session.get(Workspace, found.workspace_id)
    if case.decision is Decision.ADOPT and truth is not None:
        row = hold_rows.adopt(session, row, found, truth, now=now)
    elif row is None:
        return
    elif case.decision is Decision.KEEP:
        hold_rows.keep(session, actor, row, found, truth, now=now)
    else:
        hold_rows.forget(session, actor, row, truth, now=now)
        return
    gpus.assign(session, row.id, row.host_id, case.cards, now=now)
    ports.assign(session, row.host_id, row.id, case.ports, now=now)
    events.write(session, actor, f"workspace.{case.decision}", "workspace", row.id, now=now, kind=str(found.kind),
                 container=truth.container_name if truth else None, gpus=sorted(case.cards))


