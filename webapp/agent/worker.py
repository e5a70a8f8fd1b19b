"""Work on one workspace: ask the plan for the next step, carry it out, until there is nothing to do.

One worker per workspace at a time. Whatever goes wrong ends here as a record: a reason people can read and, where
another try may help, the time of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from webapp.agent import ending, launching, leaving
from webapp.agent.context import HostContext
from webapp.agent.desk import Desk, Failed, Stale
from webapp.domain import progress
from webapp.domain.container import Container
from webapp.domain.plan import (
    AwaitReady,
    CleanUp,
    Commit,
    Create,
    EnsureImage,
    Examine,
    Record,
    Remove,
    Rest,
    Seen,
    Start,
    Step,
    Stop,
    Wanted,
    own_containers,
    plan,
)
from webapp.domain.reasons import Reason
from webapp.domain.workspace import Desired, Health, Phase
from webapp.errors import AppError, EngineUnreachable

log = structlog.get_logger(__name__)

TRIES = 4                               # of one intent, when the engine fails and trying again may help
RETRY_SECONDS = (2, 5, 15, 30, 60)      # waits before the next try; the last one repeats
MOST_STEPS = 60                         # a plan that goes round in circles is a bug: stop and say so


@dataclass(frozen=True, slots=True)
class Hint:
    """What a pass saw: its list holds for as long as the row still says what it said then."""

    wanted: Wanted
    listed: tuple[Container, ...]


def work_on(context: HostContext, workspace_id: str, hint: Hint | None = None) -> None:
    """Bring one workspace as far as it goes now. `hint` saves a round trip."""
    for _ in range(3):                  # a new intent in the middle: take that one up at once
        desk = Desk.open(context, workspace_id)
        if desk is None:
            return
        try:
            return _carry_out(desk, hint)
        except Stale:
            hint = None
        except Failed as failed:
            return _record_failure(desk, failed.reason, retry=False)
        except EngineUnreachable as error:
            return _record_unreachable(desk, error)
        except AppError as error:
            return _record_failure(desk, Reason(error.code, error.facts), retry=error.retry)


def _carry_out(desk: Desk, hint: Hint | None) -> None:
    still_holds = hint is not None and hint.wanted == desk.wanted
    seen = Seen(own_containers(desk.wanted, hint.listed) if hint and still_holds else desk.containers())
    for _ in range(MOST_STEPS):
        step = plan(desk.wanted, seen, now=desk.now())
        if isinstance(step, Rest):
            return
        _take_up(desk)
        seen = _do(desk, seen, step)
    raise Failed(Reason("internal", {"detail": "the plan did not come to an end"}))


def _take_up(desk: Desk) -> None:
    """First step of a new intent: forget the failures of the one before, show what is being done."""
    if desk.workspace.attempted_generation == desk.wanted.generation:
        return
    changes: dict[str, Any] = {"attempted_generation": desk.wanted.generation, "failures": 0, "next_try_at": None,
                               "reason": None, "note": None, "log_tail": None}
    if desk.wanted.desired is Desired.RUNNING:
        changes |= {"progress": progress.fresh(with_jupyter=desk.workspace.jupyter), "health": Health.UNKNOWN}
    desk.record(**changes)


def _do(desk: Desk, seen: Seen, step: Step) -> Seen:
    match step:
        case EnsureImage():
            return launching.ensure_image(desk, seen)
        case Create():
            return launching.create(desk, seen, step)
        case Start():
            return launching.start(desk, seen, step)
        case AwaitReady():
            return launching.await_ready(desk, seen, step)
        case Commit():
            return launching.commit(desk, seen, step)
        case Examine():
            return ending.examine(desk, seen, step)
        case Stop():
            return leaving.stop(desk, seen, step)
        case Remove():
            return leaving.remove(desk, seen, step)
        case CleanUp():
            return leaving.clean_up(desk, seen)
        case Record():
            return leaving.settle(desk, seen, step)
        case Rest():
            return seen


def _record_unreachable(desk: Desk, error: EngineUnreachable) -> None:
    """What was asked may have happened: look again soon, decide then. The host's own loop says that it is silent."""
    log.warning("workspace.engine_unreachable", workspace=desk.wanted.workspace_id, host=desk.context.host_name)
    failures = desk.workspace.failures + 1
    _try_again(desk, Reason(error.code, {**error.facts, "since": desk.now().isoformat()}), failures)


def _record_failure(desk: Desk, reason: Reason, *, retry: bool) -> None:
    failures = desk.workspace.failures + 1
    gives_up = not retry or failures >= TRIES
    if desk.wanted.desired is not Desired.RUNNING or not gives_up:
        # A stop or a removal is never given up: what it frees is freed only when it is seen done.
        return _try_again(desk, reason, failures)
    log.error("workspace.failed", workspace=desk.wanted.workspace_id, reason=reason.code)
    desk.record_if_current(
        phase=Phase.FAILED, health=Health.UNKNOWN, reason=reason.as_json(), failures=failures, next_try_at=None,
        observed_generation=desk.wanted.generation, log_tail=desk.log_tail(),
        progress=progress.fail(desk.workspace.progress, desk.now()),
    )
    launching.leave_nothing_behind(desk)


def _try_again(desk: Desk, reason: Reason, failures: int) -> None:
    seconds = RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]
    log.warning("workspace.retry", workspace=desk.wanted.workspace_id, reason=reason.code, failures=failures,
                next_try_seconds=seconds)
    desk.record_if_current(reason=reason.as_json(), failures=failures,
                           next_try_at=desk.now() + timedelta(seconds=seconds))
