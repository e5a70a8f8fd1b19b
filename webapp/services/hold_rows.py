"""What a decision writes into the row of a workspace; its claims are services.hold_release's."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from webapp.domain import gpu_check, progress
from webapp.domain.actor import Actor
from webapp.domain.hold import Difference, FindingKind, Truth
from webapp.domain.names import suggest_name
from webapp.domain.workspace import Desired, Health, Phase
from webapp.services import before, hold_origin, wishes
from webapp.services.hold_origin import Origin
from webapp.store.reads.hold import FindingRow
from webapp.store.tables import Workspace, WorkspaceSecret

UNTRIED = gpu_check.Finding(gpu_check.CheckState.UNAVAILABLE, "torch_adopted")    # its programs are at work there
_MADE_ANEW = frozenset({Difference.PORTS, Difference.GPUS, Difference.SHAPE})


def adopt(session: Session, row: Workspace | None, found: FindingRow, truth: Truth, *, now: datetime) -> Workspace:
    """The row follows the container; a new one where there is none. What the agent will see is written down already,
    so that it finds nothing to do: a start that is waited for could fail, and be taken down.
    """
    mounts = hold_origin.volumes(session, truth) or {}
    if row is None:
        row = _new(session, found, truth, now)
    elif row.desired == Desired.REMOVED:
        row.name = _free_name(session, row.owner_id, row.name, but=row.id)
    _take_over(row, truth)
    row.generation += 1
    _answered(row, Desired.RUNNING if truth.is_up else Desired.STOPPED,
              Phase.RUNNING if truth.is_up else Phase.STOPPED, now)
    if truth.is_up:
        row.started_at = datetime.fromisoformat(truth.since) if truth.since else now
        row.gpu_check = UNTRIED.as_json(now) if truth.gpus else None
    session.flush()
    before.set_mounts(session, row.id, mounts.items())
    return row


def keep(
    session: Session, actor: Actor, row: Workspace, found: FindingRow, truth: Truth | None, *, now: datetime,
) -> None:
    """The agent goes on from the row, as domain.hold_words has promised."""
    is_to_run = bool((found.facts.get("was") or {}).get("is_to_run"))
    if truth is not None:
        _limited(row, truth)
    if found.kind == FindingKind.DOWN_BUT_WANTED or (found.kind == FindingKind.GONE and is_to_run):
        row.before_change = None
        wishes.want(session, actor, row, Desired.RUNNING, "workspace.start", now=now)
    elif found.kind == FindingKind.GONE:
        row.container_id = None
    elif truth is not None and found.kind in (FindingKind.MOVED, FindingKind.CARDS):
        _keep_as_it_is(session, actor, row, truth, {Difference(each) for each in found.facts["differs"]}, now)


def forget(session: Session, actor: Actor, row: Workspace, truth: Truth | None, *, now: datetime) -> None:
    """Where nothing is left of it the agent clears away its keys, as after any removal."""
    row.before_change = None
    if truth is None:
        wishes.want(session, actor, row, Desired.REMOVED, "workspace.remove", now=now)
        return
    row.generation += 1
    _answered(row, Desired.REMOVED, Phase.REMOVED, now)
    row.container_id = row.private_image = None
    session.execute(delete(WorkspaceSecret).where(WorkspaceSecret.workspace_id == row.id))
    wishes.note(session, actor, row, "workspace.forget", now=now, container=truth.container_name)


def _keep_as_it_is(
    session: Session, actor: Actor, row: Workspace, truth: Truth, differs: set[Difference], now: datetime,
) -> None:
    """Of one that differs in nothing it must be made anew for, the container is the recorded one from here on."""
    if differs & _MADE_ANEW:
        return
    _recorded(row, truth)
    if truth.is_up and Difference.LIMITS in differs:
        # Like a change that was asked for while it ran: it can be taken back.
        before.keep(session, row, ran=True)
        row.before_change = {**(row.before_change or {}), "cpu_millis": truth.cpu_millis,
                             "memory_bytes": truth.memory_bytes}
        wishes.want(session, actor, row, Desired.RUNNING, "workspace.change", now=now)


def _take_over(row: Workspace, truth: Truth) -> None:
    _recorded(row, truth)
    row.cpu_millis = truth.cpu_millis or row.cpu_millis
    row.memory_bytes = truth.memory_bytes or row.memory_bytes
    row.shm_bytes = truth.shm_bytes or row.shm_bytes
    row.pids = truth.pids or row.pids
    row.jupyter = truth.jupyter
    row.gpu_count, row.gpu_uuids, row.gpu_model = len(truth.gpus), list(truth.gpus), None
    row.before_change = None


def _recorded(row: Workspace, truth: Truth) -> None:
    row.container_id, row.revision = truth.container_id, truth.revision
    row.private_image = truth.image if truth.is_private else None
    _limited(row, truth)


def _limited(row: Workspace, truth: Truth) -> None:
    """What they are: once they were changed while it ran, no label says so."""
    if truth.tells_limits:
        row.applied_limits = {"container": truth.container_id, "limits": truth.limits}


def _answered(row: Workspace, desired: Desired, phase: Phase, now: datetime) -> None:
    """This intent has its outcome: nothing is left to do for it."""
    values: dict[str, Any] = {
        "desired": desired, "phase": phase, "phase_at": now, "health": Health.UNKNOWN, "reason": None, "note": None,
        "attempted_generation": row.generation, "observed_generation": row.generation, "failures": 0,
        "next_try_at": None, "log_tail": None,
    }
    for column, value in values.items():
        setattr(row, column, value)


def _new(session: Session, found: FindingRow, truth: Truth, now: datetime) -> Workspace:
    origin = hold_origin.find(session, truth)
    if not isinstance(origin, Origin):
        raise AssertionError("a container was to be taken over whose origin is not known")
    began = datetime.fromisoformat(truth.since) if truth.since else now
    row = Workspace(
        id=found.workspace_id, owner_id=origin.owner.id, host_id=found.host_id,
        name=_free_name(session, origin.owner.id, truth.name), image_id=origin.image.id,
        image_reference=truth.origin or origin.image.reference or truth.image, cpu_millis=truth.cpu_millis,
        memory_bytes=truth.memory_bytes, shm_bytes=truth.shm_bytes, pids=truth.pids, jupyter=truth.jupyter,
        desired=Desired.STOPPED, generation=0, created_at=began, phase=Phase.STOPPED, phase_at=now,
        health=Health.UNKNOWN, observed_generation=0, revision=truth.revision, failures=0,
        progress=progress.complete(
            progress.fresh(with_jupyter=truth.jupyter, with_gpus=bool(truth.gpus)), now),
    )
    session.add(row)
    return row


def _free_name(session: Session, owner_id: str, name: str, *, but: str = "") -> str:
    """What its container was called, unless its owner has given that name again, or it is none."""
    taken = set(session.scalars(select(Workspace.name).where(
        Workspace.owner_id == owner_id, Workspace.desired != Desired.REMOVED, Workspace.id != but)))
    return suggest_name(taken, name)
