"""Workspaces as people want them: launched, started, stopped, removed. The agent makes it so.

Every accepted wish is one more `generation`; the last one wins. What the agent saw is only read here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from webapp.domain import progress
from webapp.domain.actor import Actor
from webapp.domain.house import HouseRules
from webapp.domain.placement import Placement
from webapp.domain.quota import Amounts
from webapp.domain.wordings import WORDINGS
from webapp.domain.workspace import Desired, Health, Phase, Service
from webapp.errors import N_, AppError, Conflict, Forbidden, InvalidInput, NoCapacity
from webapp.services import access, before, events, gpus, hosts, intent, locks, orders, ports, quotas, secrets, wishes
from webapp.services.ids import new_id
from webapp.services.orders import LaunchRequest, Order
from webapp.store.tables import Member, PortClaim, Workspace, WorkspaceMount, WorkspaceSecret


class KeysNotBack(AppError):
    """After a restore from a backup without keys: the agent reads them back from the workspace."""

    code, status, retry = "keys_not_back", 409, True
    title = N_("The keys of this workspace were not in the backup that was restored, and are being read back from it. "
               "Try again in a moment.")


@dataclass(frozen=True, slots=True)
class Connection:
    """What the owner needs to get in. No token without Jupyter."""

    ssh_port: int | None
    jupyter_port: int | None
    jupyter_token: str | None = field(repr=False)
    host_public_key: str


def launch(
    session: Session, actor: Actor, request: LaunchRequest, *, house: HouseRules, now: datetime,
    new_secrets: Callable[[], secrets.Secrets] = secrets.new_secrets,
) -> Workspace:
    """The row, its claims on cards and ports, secrets and mounts, all or nothing.

    Raises:  InvalidInput: everything that is wrong with the request.   NoCapacity: not all of the cards are free.
             QuotaExceeded, NoFreePort, NoHost.
    """
    owner = access.person(session, actor)
    locks.hosts(session)
    order = orders.read(session, owner, request, house)
    quotas.require(session, owner.id, Amounts(1, order.cards.count, order.limits.cpu_millis, order.limits.memory_bytes))
    cuda_version = order.image.cuda_version
    found = _find_cards(session, order)
    workspace = _insert(session, owner, found.host_id or hosts.choose(session, order.image.host_id).id, order, now)
    if found.cards:
        found = gpus.claim(session, workspace, order.cards, found, cuda_version=cuda_version,
                           host_id=order.image.host_id, now=now)
        workspace.host_id = found.host_id or workspace.host_id
    for service in Service if order.image.has_jupyter else (Service.SSH,):
        ports.claim(session, workspace.host_id, workspace.id, service, ports=house.ports, now=now)
    made = new_secrets()
    session.add(WorkspaceSecret(
        workspace_id=workspace.id, jupyter_token=made.jupyter_token, host_private_key=made.host_private_key,
        host_public_key=made.host_public_key))
    _mount(session, workspace, order)
    events.write(session, actor, "workspace.launch", "workspace", workspace.id, now=now, name=workspace.name,
                 image=workspace.image_reference, cpu_millis=workspace.cpu_millis,
                 memory_bytes=workspace.memory_bytes, volumes=[volume.id for volume, _ in order.mounts],
                 gpus=workspace.gpu_uuids)
    intent.ring(session)
    return workspace


def start(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Workspace:
    """Starts what was stopped, and tries again what failed or was stopped outside Berth; else changes nothing.

    It gets the cards that it had, else others like them. Raises NoCapacity, QuotaExceeded.
    """
    locks.owner_and_host(session, workspace_id)
    workspace = access.workspace(session, actor, workspace_id)
    wishes.refuse_removed(workspace)
    if wishes.is_to_run(workspace):
        return workspace
    wishes.refuse_former_owner(session, workspace)
    wishes.refuse_lost_volumes(session, workspace)
    quotas.require_to_run(session, workspace)
    before.no_way_back(workspace)
    if wishes.claim_again(session, workspace, now=now):
        workspace.before_change = None
    return wishes.want(session, actor, workspace, Desired.RUNNING, "workspace.start", now=now)


def stop(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Workspace:
    """Keeps the container and what is in it. Asked twice: nothing new."""
    workspace = access.workspace(session, actor, workspace_id)
    wishes.refuse_removed(workspace)
    if workspace.desired == Desired.STOPPED:
        return workspace
    before.no_way_back(workspace)
    return wishes.want(session, actor, workspace, Desired.STOPPED, "workspace.stop", now=now)


def remove(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Workspace:
    """Final: the container goes, home and volumes stay. Its ports are free once the agent has seen it gone."""
    workspace = access.workspace(session, actor, workspace_id)
    if workspace.desired == Desired.REMOVED:
        return workspace
    workspace.before_change = None
    return wishes.want(session, actor, workspace, Desired.REMOVED, "workspace.remove", now=now)


def reveal(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Connection:
    """For its owner alone; an administrator gets Forbidden, anybody else NotFound. Raises Conflict, KeysNotBack."""
    workspace = access.workspace(session, actor, workspace_id)
    if workspace.owner_id != actor.member_id:
        raise Forbidden()
    if workspace.phase not in (Phase.RUNNING, Phase.UNKNOWN):
        raise Conflict(phase=workspace.phase)
    secret = session.get(WorkspaceSecret, workspace_id)
    if secret is None:
        raise KeysNotBack()
    claims = dict(session.execute(
        select(PortClaim.service, PortClaim.port).where(PortClaim.workspace_id == workspace_id)).all())
    events.write(session, actor, "workspace.open", "workspace", workspace_id, now=now)
    return Connection(
        ssh_port=claims.get(Service.SSH), jupyter_port=claims.get(Service.JUPYTER),
        jupyter_token=secret.jupyter_token if workspace.jupyter else None, host_public_key=secret.host_public_key)


# -- carrying a launch out


def _find_cards(session: Session, order: Order) -> Placement:
    """Raises InvalidInput when it is the image that no driver can run, else NoCapacity."""
    try:
        return gpus.find(session, order.cards, cuda_version=order.image.cuda_version, host_id=order.image.host_id)
    except NoCapacity as error:
        if refusal := gpus.image_refusal(session, order.cards, order.image.cuda_version):
            raise InvalidInput.of("image", WORDINGS[refusal.code].title, **refusal.facts) from error
        raise


def _mount(session: Session, workspace: Workspace, order: Order) -> None:
    mounts = [WorkspaceMount(workspace_id=workspace.id, volume_id=volume.id, read_only=read_only)
              for volume, read_only in order.mounts]
    try:
        with session.begin_nested():
            session.add_all(mounts)
    except IntegrityError as error:
        raise orders.no_such_volume() from error    # it was removed a moment ago (PostgreSQL only)


def _insert(session: Session, owner: Member, host_id: str, order: Order, now: datetime) -> Workspace:
    image, limits, cards = order.image, order.limits, order.cards
    workspace = Workspace(
        id=new_id(), owner_id=owner.id, host_id=host_id, name=order.name, image_id=image.id,
        image_reference=order.reference, cpu_millis=limits.cpu_millis, memory_bytes=limits.memory_bytes,
        shm_bytes=limits.shm_bytes, pids=limits.pids, jupyter=image.has_jupyter, desired=Desired.RUNNING,
        generation=1, created_at=now, phase=Phase.PULLING, phase_at=now, health=Health.UNKNOWN,
        observed_generation=0, revision=0, failures=0,
        progress=progress.fresh(with_jupyter=image.has_jupyter, with_gpus=cards.count > 0),
        gpu_count=cards.count, gpu_model=cards.model, gpu_uuids=list(cards.uuids),
    )
    try:
        with session.begin_nested():
            session.add(workspace)
    except IntegrityError as error:
        raise orders.name_taken(order.name, {order.name}) from error     # somebody was faster (PostgreSQL only)
    return workspace
