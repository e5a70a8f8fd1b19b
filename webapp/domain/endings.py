"""Why a container is down although it should run. See the table in the README ("When a workspace ends by itself")."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from webapp.domain.container import ContainerDetail, EngineEvent

KILLED = 137                            # 128 + SIGKILL
ENDED_BY_SIGNAL = frozenset({130, 137, 143})    # INT, KILL, TERM: what a stop leaves behind
TRIES = 3                               # starts after a crash, before it is called failed
RETRY_SECONDS = (1, 5, 15)              # waits before each of them
STEADY = timedelta(minutes=10)          # running longer than this: earlier crashes are forgotten
LOOK_BACK = timedelta(seconds=90)       # `docker stop -t 60` sends its signal long before the container dies


class Ending(StrEnum):
    BY_HAND = "by_hand"
    ENGINE_RESTARTED = "engine_restarted"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"


def classify(detail: ContainerDetail, events: Sequence[EngineEvent], *, engine_began: datetime | None) -> Ending:
    """Why it ended.

    Args:  events: from LOOK_BACK before its end until now, as the engine remembers them: the last 256, of its present
           process.   engine_began: when that process began; None = the engine does not tell.
    A stop or kill by somebody leaves a `kill` event before `die`. A dockerd that was killed leaves the same when it
    starts again and ends what it finds, so that the time decides before the events do.
    """
    if engine_began is not None and detail.finished_at is not None and detail.finished_at <= engine_began:
        return Ending.ENGINE_RESTARTED
    actions = {event.action for event in events if _is_of_this_run(detail, event)}
    if actions & {"kill", "stop"}:
        return Ending.BY_HAND
    if "die" not in actions:
        return _without_events(detail, engine_began)
    if detail.exit_code == KILLED and (detail.oom_killed or "oom" in actions):
        return Ending.OUT_OF_MEMORY
    return Ending.CRASHED


def _without_events(detail: ContainerDetail, engine_began: datetime | None) -> Ending:
    """The engine has forgotten: it was restarted, or 256 others came since. Nobody's stop is undone on a guess."""
    if engine_began is None:
        return Ending.ENGINE_RESTARTED
    if detail.exit_code == KILLED and detail.oom_killed:
        return Ending.OUT_OF_MEMORY
    return Ending.BY_HAND if detail.exit_code in ENDED_BY_SIGNAL else Ending.CRASHED


def _is_of_this_run(detail: ContainerDetail, event: EngineEvent) -> bool:
    if event.container_id != detail.container.id:
        return False
    return detail.started_at is None or event.at >= detail.started_at
