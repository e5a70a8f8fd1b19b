"""What is written down when a step goes wrong: why, and when to try again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import structlog

from webapp.agent import going_back
from webapp.agent.desk import TRIES, Desk, Stale
from webapp.domain import progress
from webapp.domain.reasons import Reason
from webapp.domain.wordings import WORDINGS
from webapp.domain.workspace import Desired, Health, Phase
from webapp.errors import AppError, EngineError, EngineUnreachable

log = structlog.get_logger(__name__)

RETRY_SECONDS = (2, 5, 15, 30, 60)      # waits before the next try; the last one repeats
LOOK_AGAIN_SECONDS = 5                  # after a silence, and when only tidying up failed


def first_attempt(desk: Desk) -> dict[str, Any]:
    """What to record with the first deed for a new intent: forget the one before, show what is being done."""
    if desk.wanted.attempted_generation == desk.wanted.generation:
        return {}
    changes: dict[str, Any] = {"attempted_generation": desk.wanted.generation, "failures": 0, "next_try_at": None,
                               "reason": None, "note": None, "log_tail": None}
    if desk.wanted.desired is Desired.RUNNING and desk.wanted.phase not in (Phase.RUNNING, Phase.UNKNOWN):
        changes |= {"progress": desk.fresh_progress(), "health": Health.UNKNOWN}
    return changes


def reason_of(error: AppError, host: str) -> Reason:
    """The error as people read it beside a phase."""
    facts = {"host": host, **error.facts}
    if error.code in WORDINGS:
        return Reason(error.code, facts)
    if isinstance(error, EngineError):
        return Reason("engine_rejected", {"host": host, "detail": facts.get("detail") or str(error)})
    return Reason("internal", {"detail": str(error)})


def record_silence(desk: Desk, error: EngineUnreachable) -> None:
    """What was asked may have happened: look again soon, decide then. No number of silences makes a failure."""
    log.warning("workspace.engine_unreachable", workspace=desk.wanted.workspace_id, host=desk.context.host_name)
    facts = {"host": desk.context.host_name, **error.facts, "since": desk.now().isoformat()}
    changes = first_attempt(desk) | _next_try(desk, LOOK_AGAIN_SECONDS)
    if not desk.wanted.is_answered:
        changes["reason"] = Reason("engine_unreachable", facts).as_json()
    desk.record_if_current(**changes)


def record_failure(desk: Desk, reason: Reason, *, retry: bool, tries: int = TRIES) -> None:
    """Failed for good, unless another try may help; `tries` of them at most."""
    wanted = desk.wanted
    if wanted.is_answered:
        log.warning("workspace.not_tidy", workspace=wanted.workspace_id, reason=reason.code, facts=dict(reason.facts))
        desk.record_if_current(**_next_try(desk, LOOK_AGAIN_SECONDS))
        return
    attempt = first_attempt(desk)
    failures = 1 if attempt else desk.workspace.failures + 1
    if wanted.desired is not Desired.RUNNING or (retry and failures < tries):
        # A stop or a removal is never given up: what it frees is freed only when it is seen done.
        seconds = RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]
        log.warning("workspace.retry", workspace=wanted.workspace_id, reason=reason.code, failures=failures,
                    next_try_seconds=seconds)
        attempt |= {"reason": reason.as_json(), "failures": failures, **_next_try(desk, seconds)}
        desk.record_if_current(**attempt)
        return
    if _went_back(desk, reason):
        return
    log.error("workspace.failed", workspace=wanted.workspace_id, reason=reason.code)
    desk.record_if_current(**attempt | _failed(desk, reason, failures))


def _went_back(desk: Desk, reason: Reason) -> bool:
    """Also True when there is nothing more to say now: a newer word holds, or the engine is silent in the middle."""
    try:
        return going_back.go_back(desk, reason)
    except Stale:
        return True
    except EngineUnreachable as error:
        record_silence(desk, error)
        return True
    except EngineError as error:
        log.error("workspace.change_not_undone", workspace=desk.wanted.workspace_id, detail=str(error))
        return False


def _failed(desk: Desk, reason: Reason, failures: int) -> dict[str, Any]:
    """The next plan takes down what is up, and throws away what never ran."""
    return {
        "phase": Phase.FAILED, "health": Health.UNKNOWN, "reason": reason.as_json(), "failures": failures,
        "next_try_at": None, "observed_generation": desk.wanted.generation, "log_tail": desk.log_tail(),
        "progress": progress.fail(desk.workspace.progress, desk.now()),
    }


def _next_try(desk: Desk, seconds: float) -> dict[str, Any]:
    return {"next_try_at": desk.now() + timedelta(seconds=seconds)}
