"""Workspaces as people want them: launched, started, stopped, removed. The agent makes it so.

Every accepted wish is one more `generation`; the last one wins. What the agent saw is only read here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import exists, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from webapp.domain import progress
from webapp.domain.actor import Actor
from webapp.domain.house import MIN_MEMORY_BYTES, MIN_SHM_BYTES, SHM_SHARE_OF_MEMORY, HouseRules
from webapp.domain.mounts import refuse_nesting
from webapp.domain.names import parse_workspace_name, suggest_name
from webapp.domain.sizes import MIB, parse_cpus, parse_size
from webapp.domain.workspace import RESTING, Desired, Health, Limits, Phase, Service
from webapp.errors import N_, Conflict, Forbidden, InvalidInput, NoHost
from webapp.services import access, events, intent, ports, secrets, volumes
from webapp.services.ids import new_id
from webapp.services.problems import Problems
from webapp.store.tables import (
    Host,
    Image,
    Member,
    PortClaim,
    SshKey,
    TeamMember,
    Volume,
    Workspace,
    WorkspaceMount,
    WorkspaceSecret,
)


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What a person typed and ticked, unread. Problems name the field as here, but `image` for `image_id`."""

    name: str
    image_id: str
    cpus: str = ""                                  # domain.sizes; "" = the house's default
    memory: str = ""                                # the same
    shm: str = ""                                   # "" = a quarter of memory
    mounts: tuple[tuple[str, bool], ...] = ()       # (volume id, read only)


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
    """The row, its port claims, secrets and mounts, all or nothing.

    Raises:  InvalidInput: everything that is wrong with the request.   NoFreePort, NoHost.
    """
    owner = access.person(session, actor)
    order = _read(session, owner, request, house)
    workspace = _insert(session, owner, _choose_host(session), order, now)
    for service in Service if order.image.has_jupyter else (Service.SSH,):
        ports.claim(session, workspace.host_id, workspace.id, service, ports=house.ports, now=now)
    made = new_secrets()
    session.add(WorkspaceSecret(
        workspace_id=workspace.id, jupyter_token=made.jupyter_token, host_private_key=made.host_private_key,
        host_public_key=made.host_public_key))
    session.add_all(WorkspaceMount(workspace_id=workspace.id, volume_id=volume.id, read_only=read_only)
                    for volume, read_only in order.mounts)
    events.write(session, actor, "workspace.launch", "workspace", workspace.id, now=now, name=workspace.name,
                 image=workspace.image_reference, cpu_millis=workspace.cpu_millis,
                 memory_bytes=workspace.memory_bytes, volumes=[volume.id for volume, _ in order.mounts])
    intent.ring(session)
    return workspace


def start(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Workspace:
    """Starts what was stopped, and tries again what failed or was stopped outside Berth; else changes nothing."""
    workspace = access.workspace(session, actor, workspace_id)
    _refuse_removed(workspace)
    settled = workspace.phase in RESTING and workspace.observed_generation == workspace.generation
    if workspace.desired == Desired.RUNNING and not settled:
        return workspace
    _refuse_former_rights(session, workspace)
    return _want(session, actor, workspace, Desired.RUNNING, "workspace.start", now)


def stop(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Workspace:
    """Keeps the container and what is in it. Asked twice: nothing new."""
    workspace = access.workspace(session, actor, workspace_id)
    _refuse_removed(workspace)
    if workspace.desired == Desired.STOPPED:
        return workspace
    return _want(session, actor, workspace, Desired.STOPPED, "workspace.stop", now)


def remove(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Workspace:
    """Final: the container goes, home and volumes stay. Its ports are free once the agent has seen it gone."""
    workspace = access.workspace(session, actor, workspace_id)
    if workspace.desired == Desired.REMOVED:
        return workspace
    return _want(session, actor, workspace, Desired.REMOVED, "workspace.remove", now)


def reveal(session: Session, actor: Actor, workspace_id: str, *, now: datetime) -> Connection:
    """For its owner alone; an administrator gets Forbidden, anybody else NotFound."""
    workspace = access.workspace(session, actor, workspace_id)
    if workspace.owner_id != actor.member_id:
        raise Forbidden()
    if workspace.phase not in (Phase.RUNNING, Phase.UNKNOWN):
        raise Conflict(phase=workspace.phase)
    secret = session.get_one(WorkspaceSecret, workspace_id)
    claims = dict(session.execute(
        select(PortClaim.service, PortClaim.port).where(PortClaim.workspace_id == workspace_id)).all())
    events.write(session, actor, "workspace.open", "workspace", workspace_id, now=now)
    return Connection(
        ssh_port=claims.get(Service.SSH), jupyter_port=claims.get(Service.JUPYTER),
        jupyter_token=secret.jupyter_token if workspace.jupyter else None, host_public_key=secret.host_public_key)


def _want(
    session: Session, actor: Actor, workspace: Workspace, desired: Desired, action: str, now: datetime,
) -> Workspace:
    workspace.desired = desired
    workspace.generation += 1
    session.flush()
    events.write(session, actor, action, "workspace", workspace.id, now=now, generation=workspace.generation)
    intent.ring(session)
    return workspace


def _refuse_removed(workspace: Workspace) -> None:
    if workspace.desired == Desired.REMOVED:
        gone = workspace.phase == Phase.REMOVED
        raise Conflict(phase=Phase.REMOVED if gone else Phase.REMOVING)


def _refuse_former_rights(session: Session, workspace: Workspace) -> None:
    """What its owner had at launch may be over: the account, or the teams whose volumes it mounts."""
    if access.member(session, workspace.owner_id).deactivated_at is not None:
        raise Forbidden()
    in_team = exists().where(TeamMember.team_id == Volume.team_id, TeamMember.member_id == workspace.owner_id)
    lost = session.scalars(
        select(Volume.name).join(WorkspaceMount, WorkspaceMount.volume_id == Volume.id)
        .where(WorkspaceMount.workspace_id == workspace.id, ~in_team).order_by(Volume.name)).all()
    if lost:
        raise InvalidInput.of(
            "mounts", N_("It mounts %(volumes)s of a team that its owner has left. Launch a new one without it."),
            volumes=", ".join(lost))


# -- reading a launch


@dataclass(frozen=True, slots=True)
class _Order:
    """A request that was read and can be carried out."""

    name: str
    image: Image
    reference: str
    limits: Limits
    mounts: tuple[tuple[Volume, bool], ...]


def _read(session: Session, owner: Member, request: LaunchRequest, house: HouseRules) -> _Order:
    problems = Problems()
    with problems.gather():
        _check_name(session, owner, request.name)
    image = session.get(Image, request.image_id)
    with problems.gather():
        _check_image(session, owner, image)
    limits = _read_limits(request, house, problems)
    mounts = _read_mounts(session, owner, request, problems)
    problems.raise_if_any()
    if image is None or image.reference is None or limits is None:
        raise AssertionError("a launch was read without problems, but not whole")
    return _Order(request.name, image, image.reference, limits, mounts)


def _check_name(session: Session, owner: Member, name: str) -> None:
    parse_workspace_name(name, "name")
    live = select(Workspace.name).where(Workspace.owner_id == owner.id, Workspace.desired != Desired.REMOVED)
    taken = set(session.scalars(live))
    if name in taken:
        raise _name_taken(name, taken)


def _name_taken(name: str, taken: set[str]) -> InvalidInput:
    return InvalidInput.of("name", N_("You have a workspace named %(given)s already. Try %(suggestion)s."),
                           given=name, suggestion=suggest_name(taken, name))


def _check_image(session: Session, owner: Member, image: Image | None) -> None:
    if image is None:
        raise InvalidInput.of("image", N_("There is no such image. Choose one from the list."))
    if image.withdrawn_at is not None:
        raise InvalidInput.of("image", N_("%(title)s is no longer offered. Choose another image."), title=image.title)
    if image.reference is None:
        raise InvalidInput.of(
            "image",
            N_("%(title)s is not prepared yet. An administrator prepares it with: berth image prepare %(base)s"),
            title=image.title, base=image.base)
    if not image.has_jupyter and session.scalar(select(SshKey.id).where(SshKey.member_id == owner.id).limit(1)) is None:
        raise InvalidInput.of(
            "ssh_keys", N_("%(title)s has no JupyterLab, so SSH is the only way in. Add an SSH key first."),
            title=image.title)


def _read_limits(request: LaunchRequest, house: HouseRules, problems: Problems) -> Limits | None:
    """None when CPU or memory cannot be read; shm is judged against memory, so only with it."""
    cpu_millis, memory_bytes = house.default_cpu_millis, house.default_memory_bytes
    with problems.gather():
        if request.cpus:
            cpu_millis = parse_cpus(request.cpus, field="cpus", maximum=house.max_cpu_millis)
    with problems.gather():
        if request.memory:
            memory_bytes = parse_size(
                request.memory, field="memory", minimum=MIN_MEMORY_BYTES, maximum=house.max_memory_bytes)
    if problems.has("memory"):
        return None
    with problems.gather():
        return Limits(cpu_millis, memory_bytes, _read_shm(request.shm, memory_bytes))
    return None


def _read_shm(text: str, memory_bytes: int) -> int:
    """Whole MiB. The kernel counts /dev/shm inside memory, so it is never more."""
    if text:
        return parse_size(text, field="shm", minimum=MIN_SHM_BYTES, maximum=memory_bytes)
    return max(MIN_SHM_BYTES, memory_bytes // SHM_SHARE_OF_MEMORY // MIB * MIB)


def _read_mounts(
    session: Session, owner: Member, request: LaunchRequest, problems: Problems,
) -> tuple[tuple[Volume, bool], ...]:
    available = {volume.id: volume for volume in volumes.available_to(session, owner.id)}
    mounts: dict[str, tuple[Volume, bool]] = {}
    for volume_id, read_only in request.mounts:
        volume = available.get(volume_id)
        with problems.gather():
            if volume is None or volume_id in mounts:
                raise InvalidInput.of("mounts", N_("One of the volumes is not yours. Choose from the list, each once."))
            if volume.read_only and not read_only:
                raise InvalidInput.of("mounts", N_("%(volume)s can only be mounted read-only."), volume=volume.name)
            refuse_nesting({other.name: other.target for other, _ in mounts.values()}, volume.target, "mounts")
            mounts[volume_id] = (volume, read_only)
    return tuple(mounts.values())


# -- carrying it out


def _choose_host(session: Session) -> Host:
    """One that answers, else the first: a silent host takes the launch and says so on the workspace's page."""
    host = session.scalars(
        select(Host).order_by(Host.unreachable_since.is_not(None), Host.created_at, Host.id).limit(1)).first()
    if host is None:
        raise NoHost(why="none is registered; start the agent once")
    return host


def _insert(session: Session, owner: Member, host: Host, order: _Order, now: datetime) -> Workspace:
    image, limits = order.image, order.limits
    workspace = Workspace(
        id=new_id(), owner_id=owner.id, host_id=host.id, name=order.name, image_id=image.id,
        image_reference=order.reference, cpu_millis=limits.cpu_millis, memory_bytes=limits.memory_bytes,
        shm_bytes=limits.shm_bytes, pids=limits.pids, jupyter=image.has_jupyter, desired=Desired.RUNNING,
        generation=1, created_at=now, phase=Phase.PULLING, phase_at=now, health=Health.UNKNOWN,
        observed_generation=0, revision=0, progress=progress.fresh(with_jupyter=image.has_jupyter), failures=0,
    )
    try:
        with session.begin_nested():
            session.add(workspace)
    except IntegrityError as error:
        raise _name_taken(order.name, {order.name}) from error     # somebody was faster (PostgreSQL only)
    return workspace
