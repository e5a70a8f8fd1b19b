"""What the wishes for a workspace have in common: their number, who may still have it, and its cards."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.placement import CardRequest
from webapp.domain.workspace import RESTING, Desired, Phase
from webapp.errors import Conflict, Forbidden, NoCapacity
from webapp.services import access, events, gpus, intent, orders
from webapp.store.tables import Image, TeamMember, Volume, Workspace, WorkspaceMount


def want(
    session: Session, actor: Actor, workspace: Workspace, desired: Desired, action: str, *, now: datetime,
    **details: Any,
) -> Workspace:
    """One more intent; the agent hears of it at the commit."""
    workspace.desired = desired
    workspace.generation += 1
    session.flush()
    events.write(session, actor, action, "workspace", workspace.id, now=now, generation=workspace.generation, **details)
    intent.ring(session)
    return workspace


def note(
    session: Session, actor: Actor, workspace: Workspace, action: str, *, now: datetime, **details: Any,
) -> None:
    """A line of its history; no intent."""
    session.flush()
    events.write(session, actor, action, "workspace", workspace.id, now=now, **details)


def is_to_run(workspace: Workspace) -> bool:
    """Somebody wants it running, and it has not failed at that, nor was it stopped outside Berth."""
    settled = workspace.phase in RESTING and workspace.observed_generation == workspace.generation
    return workspace.desired == Desired.RUNNING and not settled


def refuse_removed(workspace: Workspace) -> None:
    if workspace.desired == Desired.REMOVED:
        gone = workspace.phase == Phase.REMOVED
        raise Conflict(phase=Phase.REMOVED if gone else Phase.REMOVING)


def refuse_former_owner(session: Session, workspace: Workspace) -> None:
    if access.member(session, workspace.owner_id).deactivated_at is not None:
        raise Forbidden()


def refuse_lost_volumes(session: Session, workspace: Workspace) -> None:
    """Its owner may have left the teams whose volumes it mounts."""
    in_team = exists().where(TeamMember.team_id == Volume.team_id, TeamMember.member_id == workspace.owner_id)
    lost = session.scalars(
        select(Volume.name).join(WorkspaceMount, WorkspaceMount.volume_id == Volume.id)
        .where(WorkspaceMount.workspace_id == workspace.id, ~in_team).order_by(Volume.name)).all()
    if lost:
        raise orders.lost_volumes(lost)


def claim_again(session: Session, workspace: Workspace, *, now: datetime) -> bool:
    """The cards that its row names, which it may hold still, else others like them: True if these were taken instead.

    On other cards than its container was made with it moves (domain.plan). Raises NoCapacity.
    """
    held = set(gpus.held(session, workspace.id))
    if workspace.gpu_count == len(workspace.gpu_uuids) and held >= set(workspace.gpu_uuids):
        return False
    cuda_version = session.get_one(Image, workspace.image_id).cuda_version
    requests = _requests(session, workspace)
    for request in requests:
        try:
            gpus.claim_for(session, workspace, request, cuda_version=cuda_version, now=now)
            return not request.uuids and bool(requests[0].uuids)
        except NoCapacity:
            if request is requests[-1]:
                raise
    return False


def _requests(session: Session, workspace: Workspace) -> list[CardRequest]:
    """Its own cards; as many of their model; as many of any, where no model was asked for."""
    count, models = workspace.gpu_count, gpus.models_of(session, workspace.host_id, workspace.gpu_uuids)
    requests = [CardRequest.these(workspace.gpu_uuids)] if len(workspace.gpu_uuids) == count else []
    if workspace.gpu_model is None and len(models) == 1:
        requests.append(CardRequest(count, model=models[0]))
    return [*requests, CardRequest(count, model=workspace.gpu_model)]
