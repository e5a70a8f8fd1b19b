"""The steps that bring a workspace up: image, container, files, start, ready."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import structlog

from webapp.agent import gpu_check, keys_back, moving, probes, specs
from webapp.agent.desk import Desk, Failed, Stale
from webapp.agent.policy import (
    may_be_mended,
    refuse_architecture,
    refuse_excess,
    refuse_image,
    refuse_start,
    refuse_workspace,
)
from webapp.domain import progress
from webapp.domain.container import Container, ContainerState, PullProgress
from webapp.domain.images import is_made_here
from webapp.domain.plan import AwaitReady, Create, Seen, Start, own_containers
from webapp.domain.reasons import Reason
from webapp.domain.workspace import Health, Phase, Service, StepName
from webapp.errors import GpusRefused, NoFreePort, PortTaken
from webapp.services import observations, ports
from webapp.services.secrets import new_secrets, put_back
from webapp.store.reads import agent as reads
from webapp.store.reads.agent import SecretsInFull

log = structlog.get_logger(__name__)

READY_SECONDS = 120.0           # SSH and Jupyter must answer within this; cold disks make Jupyter slow
RECHECK_SECONDS = 1.0           # how often a waiting worker looks for a new intent
SETTLED_SECONDS = 0.3           # until the engine's list shows what it has just done
OWN_LOOK_SECONDS = 6.0          # a loop passes every 5 s at least; then a waiting worker looks for itself
PULL_RECORD_SECONDS = 1.0       # how often a pull writes down how far it is
MOST_PORTS = 10                 # taken ones in a row, before it is tried again later

_SERVICE_STEPS = ((Service.SSH, StepName.SSH), (Service.JUPYTER, StepName.JUPYTER))


def ensure_image(desk: Desk, seen: Seen) -> Seen:
    _check_allowed(desk)
    private, reference = desk.wanted.private_image, desk.workspace.image_reference
    if private is not None:
        if desk.engine.image(private) is not None:
            return Seen(seen.containers, image_ready=True)
        desk.record(private_image=None)     # removed by hand, as its container was; no registry has it
    facts = desk.engine.image(reference)
    if facts is None and is_made_here(reference):       # in a registry that name would be somebody else's
        raise Failed(Reason("image_gone", {"image": reference, "host": desk.context.host_name}))
    if facts is None:
        desk.record(phase=Phase.PULLING, progress=_begin(desk, StepName.IMAGE))
        facts = desk.engine.ensure_image(reference, _pull_recorder(desk), digest=desk.workspace.image_digest)
    if refusal := refuse_image(reference, facts) or refuse_architecture(
            reference, facts, host=desk.context.host_name, own=desk.workspace.host_architecture):
        raise Failed(refusal)
    return Seen(seen.containers, image_ready=True)


def create(desk: Desk, seen: Seen, step: Create) -> Seen:
    _check_allowed(desk)
    steps = progress.finish(_begin(desk, StepName.IMAGE), StepName.IMAGE, desk.now())
    desk.record(phase=Phase.MOVING if seen.containers else Phase.STARTING, private_image=step.from_private_image,
                progress=progress.begin(steps, StepName.CREATED, desk.now()), **_note_other_cards(desk, seen))
    spec = specs.container_spec(
        desk.workspace, revision=step.revision, image=step.from_private_image or desk.workspace.image_reference,
        network=desk.context.network, bind_address=desk.context.bind_address,
        gpus=desk.context.cards.access(desk.wanted.gpus),
    )
    container_id = desk.engine.create(spec)
    made = Container(id=container_id, name=spec.name, image_id=spec.image, state=ContainerState.CREATED,
                     labels=spec.labels, created_at=desk.now())
    return seen.with_container(made)


def _note_other_cards(desk: Desk, seen: Seen) -> dict[str, Any]:
    """Its own were taken when it was started again: what it replaces had others, and nobody wished for these."""
    had = seen.containers[0].gpu_uuids if seen.containers else frozenset(desk.wanted.gpus)
    if had == frozenset(desk.wanted.gpus) or desk.workspace.before_change is not None:
        return {}
    cards = ", ".join(card.label for card in desk.workspace.cards)
    return {"note": Reason("gpus_changed", {"gpus": cards}).as_json()}


def start(desk: Desk, seen: Seen, step: Start) -> Seen:
    container = _named(seen, step.name)
    if container is None:
        return Seen(desk.containers())
    _refuse(refuse_start(desk.workspace, desk.context))
    gpu_check.refuse_start(desk)
    if desk.wanted.phase not in (Phase.STARTING, Phase.MOVING):
        desk.record(phase=Phase.STARTING, progress=_steps(desk))
    _put_files(desk, container)
    desk.check_current()                    # the archive may have taken long
    try:
        desk.engine.start(step.name)
    except PortTaken as error:
        return _take_other_port(desk, seen, error)
    except GpusRefused as error:
        raise gpu_check.as_failed(desk, error) from error
    changes: dict[str, Any] = {"observed_generation": desk.wanted.generation, "next_try_at": None, "gpu_check": None}
    if not desk.wanted.is_observed:
        changes["failures"] = 0             # those were the engine's; from here on its own crashes count
    steps = desk.workspace.progress
    for name in (StepName.IMAGE, StepName.CREATED):
        steps = progress.finish(steps, name, desk.now())
    desk.record(**changes, progress=progress.begin(steps, StepName.SSH, desk.now()))
    return seen.with_state(step.name, ContainerState.RUNNING)


def await_ready(desk: Desk, seen: Seen, step: AwaitReady) -> Seen:
    """Wait for SSH, then Jupyter. A container that ends meanwhile is left to the next plan."""
    container = _named(seen, step.name)
    if container is None or _was_ready_before(desk, container):
        if container is not None:
            _record_running(desk, container, desk.workspace.progress)
        return seen
    if desk.wanted.phase is Phase.RUNNING:  # an older agent's, or one that was started by hand
        desk.record(phase=Phase.STARTING, progress=_steps(desk))
    if not desk.wanted.is_observed:         # started by an agent that could not write it down any more
        desk.record(observed_generation=desk.wanted.generation, next_try_at=None)
    steps: progress.Progress = dict(desk.workspace.progress)
    for service, name in _SERVICE_STEPS:
        if service not in desk.wanted.ports:
            continue
        steps = progress.begin(steps, name, desk.now())
        if steps != desk.workspace.progress:
            desk.record(progress=steps)
        seen, answers = _await(desk, seen, step.name, service)
        container = _named(seen, step.name)
        if container is None or not container.is_up:
            return seen
        if service is Service.SSH and not answers:
            raise Failed(Reason("not_ready", {"service": str(service), "seconds": int(READY_SECONDS)}))
        steps = progress.finish(steps, name, desk.now()) if answers else progress.fail(steps, desk.now())
        if service is Service.SSH and desk.wanted.gpus:
            steps = _check_gpus(desk, step.name, steps)
    _record_running(desk, container, steps)
    return seen


def _check_gpus(desk: Desk, name: str, steps: progress.Progress) -> progress.Progress:
    """While Jupyter is coming up, so that nobody waits for it."""
    steps = progress.begin(steps, StepName.GPUS, desk.now())
    desk.record(progress=steps)
    gpu_check.check_inside(desk, name)
    return progress.finish(steps, StepName.GPUS, desk.now())


def write_keys(desk: Desk, name: str) -> None:
    """The owner's present keys, also if they change while they are written."""
    written: tuple[str, ...] | None = None
    while (keys := _keys(desk)) != written:
        desk.engine.put(name, [specs.authorized_keys_file(keys)])
        written = keys


def _check_allowed(desk: Desk) -> None:
    """Asked of the row as it is now: a pull takes minutes, and what it is for may be withdrawn meanwhile."""
    desk.reload()
    _refuse(refuse_workspace(desk.workspace, desk.context) or refuse_excess(desk.workspace, desk.context))


def _refuse(reason: Reason | None) -> None:
    if reason is not None:
        raise Failed(reason, retry=may_be_mended(reason))


def _keys(desk: Desk) -> tuple[str, ...]:
    with desk.context.store.read() as session:
        return reads.authorized_keys(session, desk.workspace.owner_id)


def _put_files(desk: Desk, container: Container) -> None:
    context, workspace = desk.context, desk.workspace
    secrets = _secrets(desk, container)
    with context.store.read() as session:
        keys = reads.authorized_keys(session, workspace.owner_id)
        is_seeded = observations.home_is_seeded(session, context.host_id, workspace.owner_id)
    users = _image_users(desk, container)
    files = specs.workspace_files(workspace, secrets, keys, users=users, new_home=not is_seeded)
    desk.engine.put(container.name, files)
    if _keys(desk) != keys:                 # the operation that writes the new ones may have come before this
        write_keys(desk, container.name)
    if not is_seeded:
        with context.store.write() as session:
            observations.record_home_seeded(session, context.host_id, workspace.owner_id, now=desk.now())


def _secrets(desk: Desk, container: Container) -> SecretsInFull:
    """After a restore from a backup without keys they are read back; with its volume gone new ones are made."""
    context, workspace_id = desk.context, desk.wanted.workspace_id
    for _ in range(2):
        with context.store.read() as session:
            secrets = reads.secrets(session, workspace_id)
        if secrets is not None:
            return secrets
        found = keys_back.in_container(desk.engine, container.name)
        with context.store.write() as session:
            put_back(session, workspace_id, found or new_secrets(), epoch=context.epoch)
        if found is None:
            desk.record(note=Reason("keys_new").as_json())
    raise Stale


def _image_users(desk: Desk, container: Container) -> tuple[str, str]:
    """The image's own passwd and group, read once per image of the catalogue, from a container that never ran.

    One that did, and a private image, have their person in it already: read, but not kept for others.
    """
    is_pristine = not container.was_started and desk.wanted.private_image is None
    cache, key = desk.context.image_users, desk.workspace.image_reference
    if key in cache:
        return cache[key]
    files = (desk.engine.read_file(container.name, path) for path in ("/etc/passwd", "/etc/group"))
    passwd, group = ((content or b"").decode("utf-8", "replace") for content in files)
    if is_pristine:
        cache[key] = (passwd, group)
    return passwd, group


def _take_other_port(desk: Desk, seen: Seen, error: PortTaken) -> Seen:
    """A foreign program listens there. Claim another; the next plan makes the container anew, keeping its layer."""
    services = _services_on(desk, str(error.facts.get("port", "")))
    if not services:
        raise error
    desk.ports_replaced += 1
    context, workspace_id = desk.context, desk.wanted.workspace_id
    with context.store.write() as session:
        for service in services:
            taken = desk.wanted.ports[service]
            new = ports.replace(session, context.host_id, workspace_id, service, taken=taken,
                                ports=context.house.ports, now=desk.now())
            if desk.ports_replaced > MOST_PORTS:
                raise NoFreePort(first=context.house.ports.first, last=context.house.ports.last)
        facts = {"old": taken, "new": new, "service": str(service), "host": context.host_name}
        changes = {"note": Reason("port_replaced", facts).as_json()}
        if not observations.record(session, workspace_id, generation=desk.wanted.generation, epoch=context.epoch,
                                   now=desk.now(), changes=changes):
            raise Stale                     # rolls the claims back
    log.warning("workspace.port_replaced", workspace=workspace_id, taken=taken, port=new)
    desk.reload()
    return Seen(seen.containers)


def _services_on(desk: Desk, ports_named: str) -> list[Service]:
    """Whose ports the engine named. It names all of the container's own when it does not know which one it was."""
    named = {int(number) for number in re.findall(r"\d+", ports_named)}
    return [service for service, port in sorted(desk.wanted.ports.items()) if port in named]


def _await(desk: Desk, seen: Seen, name: str, service: Service) -> tuple[Seen, bool]:
    """Until it answers (True), its container is down, or READY_SECONDS are over (False)."""
    context, port = desk.context, desk.wanted.ports[service]
    began = asked = context.monotonic()
    known = began + SETTLED_SECONDS         # how new is what is known of the containers
    for pause in probes.pauses():
        if context.probe(service, context.probe_address, port):
            return seen, True
        now = context.monotonic()
        if now - asked > RECHECK_SECONDS:
            asked = now
            desk.check_current()
        seen, known = _glance(desk, seen, known)
        container = _named(seen, name)
        if container is None or not container.is_up or now - began > READY_SECONDS:
            break
        context.sleep(pause)
    return seen, False


def _glance(desk: Desk, seen: Seen, known: float) -> tuple[Seen, float]:
    """What the host's loop has seen since `known`, and when; looks itself only when the loop does not come to it."""
    context = desk.context
    sighting = context.sightings.since(known)
    if sighting is not None:
        return Seen(own_containers(desk.wanted, sighting.listed), seen.image_ready), sighting.began
    now = context.monotonic()
    return (Seen(desk.containers(), seen.image_ready), now) if now - known > OWN_LOOK_SECONDS else (seen, known)


def _was_ready_before(desk: Desk, container: Container) -> bool:
    """It was never down: its host fell silent and is back, or its CPU and memory changed. health.py looks after it."""
    wanted = desk.wanted
    return wanted.phase in (Phase.RUNNING, Phase.UNKNOWN) and wanted.container_id == container.id


def _record_running(desk: Desk, container: Container, steps: Any) -> None:
    """Ready. A workspace whose Jupyter never came is used over SSH meanwhile; health.py says that it is degraded."""
    revision, was_up = container.revision or 1, desk.wanted.phase in (Phase.RUNNING, Phase.UNKNOWN)
    changes: dict[str, Any] = {
        "phase": Phase.RUNNING, "reason": None, "next_try_at": None, "before_change": None,
        "observed_generation": desk.wanted.generation, "container_id": container.id, "revision": revision,
        "progress": progress.complete(steps, desk.now()), "log_tail": None,
        "private_image": moving.private_image_of(desk, container),
    }
    if desk.wanted.phase is not Phase.RUNNING:
        changes["health"] = Health.OK
    if not was_up:
        changes["started_at"] = desk.now()
    desk.record(**changes)
    log.info("workspace.running", workspace=desk.wanted.workspace_id, revision=revision)


def _begin(desk: Desk, name: StepName) -> progress.Progress:
    return progress.begin(_steps(desk), name, desk.now())


def _steps(desk: Desk) -> progress.Progress:
    """How far it is. Of one that was up until now the steps are those of its last start."""
    was_up = desk.wanted.phase in (Phase.RUNNING, Phase.UNKNOWN)
    return desk.fresh_progress() if was_up else dict(desk.workspace.progress)


def _named(seen: Seen, name: str) -> Container | None:
    return next((one for one in seen.containers if one.name == name), None)


def _pull_recorder(desk: Desk) -> Callable[[PullProgress], None]:
    """Writes the pull's progress at most once a second; a new intent ends the pull by raising Stale."""
    written: float | None = None

    def record(pulled: PullProgress) -> None:
        nonlocal written
        now = desk.context.monotonic()
        if written is not None and now - written < PULL_RECORD_SECONDS:
            return
        written = now
        desk.check_current()
        desk.record(progress=progress.pulling(desk.workspace.progress, pulled))

    return record
