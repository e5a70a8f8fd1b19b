"""The steps that take a workspace down: stop, remove, clean up."""

from __future__ import annotations

import structlog

from webapp.agent import moving, specs
from webapp.agent.desk import Desk, Failed, Stale
from webapp.domain.container import Container, ContainerState
from webapp.domain.plan import Record, ReleaseGpus, Remove, Seen, Stop, own_containers
from webapp.domain.reasons import Reason
from webapp.domain.workspace import Desired, Health, Phase
from webapp.services import observations

log = structlog.get_logger(__name__)

GRACE_SECONDS = 10              # TERM first: notebooks are saved by Jupyter, training scripts may catch it

_PHASE_WHILE_STOPPING = {Desired.STOPPED: Phase.STOPPING, Desired.REMOVED: Phase.REMOVING}


def stop(desk: Desk, seen: Seen, step: Stop) -> Seen:
    _show(desk)
    if desk.wanted.desired is Desired.RUNNING:
        moving.show(desk)
    desk.engine.stop(step.name, GRACE_SECONDS)
    return seen.with_state(step.name, ContainerState.EXITED)


def remove(desk: Desk, seen: Seen, step: Remove) -> Seen:
    _show(desk)
    desk.engine.remove(step.name)
    left = seen.without(step.name)
    if desk.wanted.phase is Phase.RUNNING:
        moving.sweep_images(desk, left.containers)
    return left


def settle(desk: Desk, seen: Seen, step: Record) -> Seen:
    if step.reason == "removed_outside" and _is_there_after_all(desk):
        return Seen(desk.containers())
    reason = Reason(step.reason, {"host": desk.context.host_name}).as_json() if step.reason else None
    desk.record(phase=step.phase, health=Health.UNKNOWN, reason=reason, observed_generation=desk.wanted.generation,
                next_try_at=None, failures=0)
    log.info("workspace.settled", workspace=desk.wanted.workspace_id, phase=str(step.phase))
    return seen


def _is_there_after_all(desk: Desk) -> bool:
    """The list lags behind by milliseconds; nobody's workspace is called gone on that alone."""
    recorded = desk.wanted.container_id
    return recorded is not None and desk.engine.inspect(recorded) is not None


def release_gpus(desk: Desk, seen: Seen, step: ReleaseGpus) -> Seen:
    """The cards are free from here on: containers with them are down, as the engine itself said of each."""
    given_back = frozenset(desk.wanted.claimed) - frozenset(step.keep)
    there = inspected(desk)
    with_them = [one for one in there if one.gpu_uuids & given_back]
    if any(one.is_up for one in with_them):
        return Seen(there, seen.image_ready)
    for one in with_them:
        if not one.is_down:
            detail = f"{one.name} is being removed and not gone yet"
            raise Failed(Reason("engine_rejected", {"host": desk.context.host_name, "detail": detail}), retry=True)
    with desk.context.store.write() as session:
        done = observations.release_gpus(session, desk.wanted.workspace_id, generation=desk.wanted.generation,
                                         epoch=desk.context.epoch, keep=step.keep, now=desk.now())
    if not done:
        raise Stale
    log.info("workspace.gpus_released", workspace=desk.wanted.workspace_id, gpus=sorted(given_back))
    desk.context.cards.look_again.set()     # somebody else may have been on them all the while
    desk.cards_are_free(step.keep)
    return seen


def inspected(desk: Desk) -> tuple[Container, ...]:
    """Its containers, newest first, each as an inspect shows it now.

    The list may lag behind, and of a container whose start is under way it shows what was before; an inspect waits for
    the end of that start (measured on 20.10: `created` after 65 ms, and `running` when the start was answered).
    """
    names = [container.id for container in desk.containers()]
    if desk.wanted.container_id is not None:
        names.append(desk.wanted.container_id)
    details = (desk.engine.inspect(name) for name in dict.fromkeys(names))
    return own_containers(desk.wanted, tuple(detail.container for detail in details if detail is not None))


def clean_up(desk: Desk, seen: Seen) -> Seen:
    """Its containers are gone: remove its private volume and images, then give the ports back. Home and data stay."""
    _show(desk)
    wanted = desk.wanted
    desk.engine.remove_volume(specs.private_volume(wanted.instance, wanted.workspace_id))
    moving.sweep_images(desk, ())
    with desk.context.store.write() as session:
        done = observations.record_removed(session, wanted.workspace_id, generation=wanted.generation,
                                           epoch=desk.context.epoch, now=desk.now())
    if not done:
        raise Stale
    desk.workspace_is_gone()
    log.info("workspace.removed", workspace=wanted.workspace_id)
    return seen


def _show(desk: Desk) -> None:
    phase = _PHASE_WHILE_STOPPING.get(desk.wanted.desired)
    if phase is not None and desk.wanted.phase is not phase:
        desk.record(phase=phase)
