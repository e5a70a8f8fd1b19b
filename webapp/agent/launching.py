"""The steps that bring a workspace up: image, container, files, start, ready."""

from __future__ import annotations

import re
import time
from typing import Any

import structlog

from webapp.agent import probes, specs
from webapp.agent.desk import Desk, Failed
from webapp.agent.policy import refuse_image, refuse_mounts, refuse_workspace
from webapp.domain import progress
from webapp.domain.container import Container, ContainerState, PullProgress
from webapp.domain.plan import (
    AwaitReady,
    Commit,
    Create,
    Seen,
    Start,
    private_image,
)
from webapp.domain.reasons import Reason
from webapp.domain.workspace import Health, Phase, Service, StepName
from webapp.errors import EngineError, PortTaken
from webapp.services import observations, ports
from webapp.store.reads import agent as reads

log = structlog.get_logger(__name__)

READY_SECONDS = 120.0           # SSH and Jupyter must answer within this; cold disks make Jupyter slow
RECHECK_SECONDS = 0.5           # how often a waiting worker looks for a new intent or an ended container
PULL_RECORD_SECONDS = 1.0       # how often a pull writes down how far it is


def ensure_image(desk: Desk, seen: Seen) -> Seen:
    _check_allowed(desk)
    reference = desk.wanted.private_image or desk.workspace.image_reference
    if desk.engine.image(reference) is None:
        desk.record(phase=Phase.PULLING, progress=_begin(desk, StepName.IMAGE))
    facts = desk.engine.ensure_image(reference, _pull_recorder(desk))
    if desk.wanted.private_image is None and (refusal := refuse_image(reference, facts)):
        raise Failed(refusal)
    return Seen(seen.containers, image_ready=True)


def create(desk: Desk, seen: Seen, step: Create) -> Seen:
    _check_allowed(desk)
    steps = progress.finish(_begin(desk, StepName.IMAGE), StepName.IMAGE, desk.now())
    desk.record(phase=Phase.MOVING if seen.containers else Phase.STARTING,
                progress=progress.begin(steps, StepName.CREATED, desk.now()))
    spec = specs.container_spec(
        desk.workspace, revision=step.revision, image=step.from_private_image or desk.workspace.image_reference,
        network=desk.context.network, bind_address=desk.context.bind_address,
    )
    container_id = desk.engine.create(spec)
    made = Container(id=container_id, name=spec.name, image_id=spec.image, state=ContainerState.CREATED,
                     labels=spec.labels, created_at=desk.now())
    return seen.with_container(made)


def start(desk: Desk, seen: Seen, step: Start) -> Seen:
    reason = refuse_mounts(desk.workspace, desk.context)
    if reason is not None:
        raise Failed(reason)
    if desk.wanted.phase not in (Phase.STARTING, Phase.MOVING):
        desk.record(phase=Phase.STARTING)
    _put_files(desk, step.name)
    try:
        desk.engine.start(step.name)
    except PortTaken as error:
        return _take_other_port(desk, seen, error)
    steps = desk.workspace.progress
    for name in (StepName.IMAGE, StepName.CREATED):
        steps = progress.finish(steps, name, desk.now())
    desk.record(observed_generation=desk.wanted.generation, next_try_at=None,
                progress=progress.begin(steps, StepName.SSH, desk.now()))
    return seen.with_state(step.name, ContainerState.RUNNING)


def await_ready(desk: Desk, seen: Seen, step: AwaitReady) -> Seen:
    """Wait for SSH, then Jupyter. A container that ends meanwhile is left to the next plan."""
    container = _named(seen, step.name)
    if container is not None and desk.wanted.phase is Phase.UNKNOWN and desk.wanted.container_id == container.id:
        _record_running(desk, container)    # it was ready before its host fell silent; health.py looks after it
        return seen
    for service, name in ((Service.SSH, StepName.SSH), (Service.JUPYTER, StepName.JUPYTER)):
        if service not in desk.wanted.ports:
            continue
        desk.record(progress=_begin(desk, name))
        seen, answers = _await(desk, seen, step.name, service)
        container = _named(seen, step.name)
        if container is None or not container.is_up:
            return seen
        if answers:
            desk.record(progress=progress.finish(desk.workspace.progress, name, desk.now()))
        elif service is Service.SSH:
            raise Failed(Reason("not_ready", {"service": str(service), "seconds": int(READY_SECONDS)}))
    if container is not None:
        _record_running(desk, container)
    return seen


def commit(desk: Desk, seen: Seen, step: Commit) -> Seen:
    desk.record(phase=Phase.MOVING)
    if desk.engine.image(step.reference) is None:       # made already by a worker that did not get further
        desk.engine.commit(step.name, step.reference)
    return Seen(seen.containers, image_ready=True)


def leave_nothing_behind(desk: Desk) -> None:
    """After a launch that failed: a container that never ran holds nothing of anybody's."""
    try:
        for container in desk.containers():
            if not container.was_started:
                desk.engine.remove(container.name)
    except EngineError as error:
        log.warning("workspace.left_behind", workspace=desk.wanted.workspace_id, detail=str(error))


def write_keys(desk: Desk, name: str) -> None:
    """The owner's present keys into a running workspace."""
    with desk.context.store.read() as session:
        keys = reads.authorized_keys(session, desk.workspace.owner_id)
    desk.engine.put(name, [specs.authorized_keys_file(keys)])


def _check_allowed(desk: Desk) -> None:
    reason = refuse_workspace(desk.workspace, desk.context)
    if reason is not None:
        raise Failed(reason)


def _put_files(desk: Desk, name: str) -> None:
    context, workspace = desk.context, desk.workspace
    with context.store.read() as session:
        secrets = reads.secrets(session, desk.wanted.workspace_id)
        keys = reads.authorized_keys(session, workspace.owner_id)
        is_seeded = observations.home_is_seeded(session, context.host_id, workspace.owner_id)
    if secrets is None:
        raise Failed(Reason("internal", {"detail": "the workspace has no keys of its own"}))
    users = _image_users(desk, name)
    desk.engine.put(name, specs.workspace_files(workspace, secrets, keys, users=users, new_home=not is_seeded))
    if not is_seeded:
        with context.store.write() as session:
            observations.record_home_seeded(session, context.host_id, workspace.owner_id, now=desk.now())


def _image_users(desk: Desk, name: str) -> tuple[str, str]:
    """The image's own passwd and group, read once per catalogue image.

    A container that was started before has the person in it already; `passwd_for` replaces those lines.
    """
    cache, key = desk.context.image_users, desk.workspace.image_reference
    if key not in cache:
        files = (desk.engine.read_file(name, path) for path in ("/etc/passwd", "/etc/group"))
        passwd, group = ((content or b"").decode("utf-8", "replace") for content in files)
        cache[key] = (passwd, group)
    return cache[key]


def _take_other_port(desk: Desk, seen: Seen, error: PortTaken) -> Seen:
    """A foreign program listens there. Claim another; the next plan makes the container anew, keeping its layer."""
    services = _services_on(desk, str(error.facts.get("port", "")))
    if not services:
        raise error
    for service in services:
        _replace_port(desk, service)
    return Seen(seen.containers)


def _services_on(desk: Desk, ports_named: str) -> list[Service]:
    """Whose ports the engine named. It names all of the container's own when it does not know which one it was."""
    named = {int(number) for number in re.findall(r"\d+", ports_named)}
    return [service for service, port in sorted(desk.wanted.ports.items()) if port in named]


def _replace_port(desk: Desk, service: Service) -> None:
    context, taken = desk.context, desk.wanted.ports[service]
    with context.store.write() as session:
        new = ports.replace(session, context.host_id, desk.wanted.workspace_id, service, taken=taken,
                            ports=context.house.ports, now=desk.now())
    log.warning("workspace.port_replaced", workspace=desk.wanted.workspace_id, taken=taken, port=new)
    desk.reload()
    facts = {"old": taken, "new": new, "service": str(service), "host": context.host_name}
    desk.record(note=Reason("port_replaced", facts).as_json())


def _await(desk: Desk, seen: Seen, name: str, service: Service) -> tuple[Seen, bool]:
    """Until it answers (True), its container is down, or READY_SECONDS are over (False)."""
    port, address = desk.wanted.ports[service], desk.context.probe_address
    began = looked = time.monotonic()
    for pause in probes.pauses():
        if probes.answers(service, address, port):
            return seen, True
        if time.monotonic() - looked > RECHECK_SECONDS:
            looked = time.monotonic()
            desk.check_current()
            seen = Seen(desk.containers(), seen.image_ready)
            container = _named(seen, name)
            if container is None or not container.is_up:
                break
        if looked - began > READY_SECONDS:
            break
        time.sleep(pause)
    return seen, False


def _record_running(desk: Desk, container: Container) -> None:
    """Ready. A workspace whose Jupyter never came is used over SSH meanwhile; health.py says that it is degraded."""
    revision = container.revision or 1
    steps = progress.finish(desk.workspace.progress, StepName.READY, desk.now())
    changes: dict[str, Any] = {
        "phase": Phase.RUNNING, "health": Health.OK, "reason": None, "next_try_at": None,
        "observed_generation": desk.wanted.generation, "container_id": container.id, "revision": revision,
        "progress": steps, "log_tail": None, "private_image": _private_image_of(desk, container, revision),
    }
    if desk.wanted.phase is not Phase.UNKNOWN:
        changes["started_at"] = desk.now()
    desk.record(**changes)
    log.info("workspace.running", workspace=desk.wanted.workspace_id, revision=revision)


def _private_image_of(desk: Desk, container: Container, revision: int) -> str | None:
    """Kept while it is the same container; a container of a later revision was made by a move (or from scratch)."""
    if desk.wanted.container_id == container.id:
        return desk.wanted.private_image
    reference = private_image(desk.wanted.instance, desk.wanted.workspace_id, revision)
    return reference if revision > 1 and desk.engine.image(reference) else desk.wanted.private_image


def _begin(desk: Desk, name: StepName) -> progress.Progress:
    return progress.begin(desk.workspace.progress, name, desk.now())


def _named(seen: Seen, name: str) -> Container | None:
    return next((one for one in seen.containers if one.name == name), None)


def _pull_recorder(desk: Desk) -> Any:
    """Writes the pull's progress at most once a second; a new intent ends the pull by raising Stale."""
    written = 0.0

    def record(pulled: PullProgress) -> None:
        nonlocal written
        if time.monotonic() - written < PULL_RECORD_SECONDS:
            return
        written = time.monotonic()
        desk.record(progress=progress.pulling(desk.workspace.progress, pulled))

    return record
