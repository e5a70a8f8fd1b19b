"""Why a container is down although it should run. See the table in the README ("When a workspace ends by itself")."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum

from webapp.domain.container import ContainerDetail, EngineEvent

KILLED = 137                            # 128 + SIGKILL
TRIES = 3                               # starts after a crash, before it is called failed
RETRY_SECONDS = (1, 5, 15)              # waits before each of them
STEADY = timedelta(minutes=10)          # running longer than this: earlier crashes are forgotten
LOOK_BACK = timedelta(seconds=90)       # `docker stop -t 60` sends its signal long before the container dies


class Ending(StrEnum):
    BY_HAND = "by_hand"
    ENGINE_RESTARTED = "engine_restarted"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"


def classify(detail: ContainerDetail, events: Sequence[EngineEvent]) -> Ending:
    """`events`: this container's, from LOOK_BACK before its end until now, as the engine remembers them.

    A stop or kill by somebody leaves a `kill` event before `die`. The engine's memory of events ends with its process:
    no `die` in it means that the engine was restarted since (on purpose, by a crash, or with its machine).
    """
    mine = [event for event in events if event.container_id == detail.container.id and _is_of_this_run(detail, event)]
    actions = {event.action for event in mine}
    if actions & {"kill", "stop"}:
        return Ending.BY_HAND
    if "die" not in actions:
        return Ending.ENGINE_RESTARTED
    if detail.exit_code == KILLED and (detail.oom_killed or "oom" in actions):
        return Ending.OUT_OF_MEMORY
    return Ending.CRASHED


def _is_of_this_run(detail: ContainerDetail, event: EngineEvent) -> bool:
    return detail.started_at is None or event.at >= detail.started_at
