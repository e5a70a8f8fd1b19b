"""Operations: work for the agent that is no phase of a workspace."""

from __future__ import annotations

from enum import StrEnum


class OperationKind(StrEnum):
    WORKSPACE_LOGS = "workspace_logs"       # arguments: tail_lines; result: text
    WORKSPACE_KEYS = "workspace_keys"       # write the owner's present keys into a running workspace


class OperationState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
