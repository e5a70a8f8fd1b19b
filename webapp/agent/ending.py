"""A container that should run is down. Find out why, and do what the house's table says."""

from __future__ import annotations

from datetime import timedelta

import structlog

from webapp.agent.desk import Desk
from webapp.domain.container import ContainerDetail
from webapp.domain.endings import LOOK_BACK, RETRY_SECONDS, STEADY, TRIES, Ending, classify
from webapp.domain.plan import Examine, Seen
from webapp.domain.reasons import Reason
from webapp.domain.sizes import show_size
from webapp.domain.workspace import Health, Phase

log = structlog.get_logger(__name__)


def examine(desk: Desk, seen: Seen, step: Examine) -> Seen:
    detail = desk.engine.inspect(step.name)
    if detail is None:
        return seen.without(step.name)
    if detail.container.is_up:              # the list was older than the start
        return seen.with_container(detail.container)
    now = desk.now()
    since = (detail.finished_at or now) - LOOK_BACK
    events = list(desk.engine.events(since, until=now))
    ending = classify(detail, events, engine_began=desk.engine.started_at())
    log.info("workspace.ended", workspace=desk.wanted.workspace_id, ending=str(ending), exit_code=detail.exit_code)
    match ending:
        case Ending.BY_HAND:
            _settle(desk, Phase.STOPPED, Reason("stopped_outside", {"host": desk.context.host_name}))
        case Ending.ENGINE_RESTARTED:
            note = Reason("restarted_engine", {"host": desk.context.host_name}).as_json()
            desk.record(phase=Phase.STARTING, health=Health.UNKNOWN, next_try_at=now, reason=None, note=note,
                        progress=desk.fresh_progress())
        case Ending.OUT_OF_MEMORY:
            memory = show_size(desk.workspace.limits.memory_bytes)
            _settle(desk, Phase.FAILED, Reason("out_of_memory", {"memory": memory}))
        case Ending.CRASHED:
            _crashed(desk, detail)
    return seen


def _crashed(desk: Desk, detail: ContainerDetail) -> None:
    started, ended = detail.started_at, detail.finished_at
    was_steady = started is not None and ended is not None and ended - started > STEADY
    failures = 1 if was_steady else desk.workspace.failures + 1
    facts = {"exit_code": detail.exit_code, "tries": failures, "limit": TRIES}
    if failures > TRIES:
        _settle(desk, Phase.FAILED, Reason("crashed", facts))
        return
    desk.record(phase=Phase.STARTING, health=Health.UNKNOWN, failures=failures,
                reason=Reason("crashed_retry", facts).as_json(), progress=desk.fresh_progress(),
                next_try_at=desk.now() + timedelta(seconds=RETRY_SECONDS[failures - 1]))


def _settle(desk: Desk, phase: Phase, reason: Reason) -> None:
    """This intent has ended. What it held beyond its ports is free once the container is seen down, and it is."""
    log_tail = desk.log_tail() if phase is Phase.FAILED else None
    desk.record(phase=phase, health=Health.UNKNOWN, reason=reason.as_json(), next_try_at=None, log_tail=log_tail,
                observed_generation=desk.wanted.generation)
