"""Work on one workspace: ask the plan for the next step, carry it out, until there is nothing to do.

One worker per workspace at a time. Whatever goes wrong ends as a record (trouble.py): a reason that people can read,
and where another try may help, the time of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from webapp.agent import ending, launching, leaving, moving, trouble
from webapp.agent.context import HostContext
from webapp.agent.desk import Desk, Failed, Stale
from webapp.domain.container import Container
from webapp.domain.plan import (
    AwaitReady,
    CleanUp,
    Commit,
    Create,
    EnsureImage,
    Examine,
    Record,
    ReleaseGpus,
    Remove,
    Rest,
    Seen,
    Start,
    Step,
    Stop,
    Update,
    Wanted,
    Weigh,
    own_containers,
    plan,
)
from webapp.domain.reasons import Reason
from webapp.errors import AppError, EngineRejected, EngineUnreachable
from webapp.store.failures import CommitUnknown, is_unavailable
from webapp.store.revisions import OtherVersion

log = structlog.get_logger(__name__)

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
            return trouble.record_failure(desk, failed.reason, retry=failed.retry, tries=failed.tries)
        except EngineUnreachable as error:
            return trouble.record_silence(desk, error)
        except (OtherVersion, CommitUnknown):
            raise                       # no failure of the workspace: the next pass looks again, or there is none
        except AppError as error:
            return trouble.record_failure(desk, trouble.reason_of(error, context.host_name), retry=error.retry)
        except Exception as error:      # a bug in the work on this one must not be silent, nor a hot loop
            if is_unavailable(error):
                raise
            log.exception("worker.failed", workspace=workspace_id, host=context.host_name)
            return trouble.record_failure(desk, Reason("internal", {"detail": type(error).__name__}), retry=True)


def _carry_out(desk: Desk, hint: Hint | None) -> None:
    still_holds = hint is not None and hint.wanted == desk.wanted
    seen = Seen(own_containers(desk.wanted, hint.listed) if hint and still_holds else desk.containers())
    for _ in range(MOST_STEPS):
        step = plan(desk.wanted, seen, now=desk.now())
        if isinstance(step, Rest):
            return
        desk.check_current()
        _take_up(desk)
        seen = _do_or_look_again(desk, seen, step)
    raise Failed(Reason("internal", {"detail": "the plan did not come to an end"}))


def _take_up(desk: Desk) -> None:
    if changes := trouble.first_attempt(desk):
        desk.record(**changes)


def _do_or_look_again(desk: Desk, seen: Seen, step: Step) -> Seen:
    """A refusal is no failure when the world has changed under the plan: somebody removed, started or stopped it."""
    try:
        return _do(desk, seen, step)
    except EngineRejected:
        fresh = Seen(desk.containers(), seen.image_ready, seen.is_weighed)
        if plan(desk.wanted, fresh, now=desk.now()) == step:
            raise
        return fresh


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
            return moving.commit(desk, seen, step)
        case Weigh():
            return moving.weigh(desk, seen, step)
        case Update():
            return moving.update(desk, seen, step)
        case Examine():
            return ending.examine(desk, seen, step)
        case Stop():
            return leaving.stop(desk, seen, step)
        case Remove():
            return leaving.remove(desk, seen, step)
        case ReleaseGpus():
            return leaving.release_gpus(desk, seen, step)
        case CleanUp():
            return leaving.clean_up(desk, seen)
        case Record():
            return leaving.settle(desk, seen, step)
        case Rest():
            return seen
