"""Work that the agent does, waited for on a terminal: how far it is, and Ctrl-C ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from webapp.cli.failure import AgentSilent
from webapp.cli.house import ACTOR, House, now
from webapp.cli.reasons import advice, sentence
from webapp.cli.signs import agent_lives
from webapp.cli.steps import Steps
from webapp.domain.operation import OperationState
from webapp.domain.sizes import show_size
from webapp.errors import N_, AppError
from webapp.services import operations
from webapp.store.tables import Operation

LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 20.0     # for an agent that is just starting to take it up


class WorkFailed(AppError):
    """The agent did it and it went wrong."""

    code, status = "work_failed", 502
    title = N_("%(why)s %(next)s")


class WorkCancelled(AppError):
    code, status = "work_cancelled", 409
    title = N_("Somebody cancelled it.")


def wait_for(house: House, operation_id: str, title: str) -> Mapping[str, Any]:
    """Its result. Ctrl-C cancels it.

    Raises:  WorkFailed, WorkCancelled; AgentSilent: nobody took it up, and it stays asked for.
    """
    try:
        with Steps().step(title) as say:
            return _until_ended(house, operation_id, say)
    except KeyboardInterrupt:
        with house.store.write() as session:
            operations.cancel(session, ACTOR, operation_id, now=now())
        raise


def _until_ended(house: House, operation_id: str, say: Callable[[str], None]) -> Mapping[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with house.store.read() as session:
            operation = session.get_one(Operation, operation_id)
        match operation.state:
            case OperationState.DONE:
                return operation.result or {}
            case OperationState.CANCELLED:
                raise WorkCancelled
            case OperationState.FAILED:
                reason = operation.reason or {"code": "internal"}
                raise WorkFailed(why=_with_line(reason), next=advice(reason))
            case OperationState.WAITING if time.monotonic() > deadline and not agent_lives(house.store, now()):
                raise AgentSilent
        say(how_far(operation.progress))
        time.sleep(LOOK_SECONDS)


def how_far(progress: Mapping[str, Any] | None) -> str:
    """One line: what it is at, and how much of it is done."""
    if not progress:
        return "waiting for the agent"
    step, parts = str(progress.get("step", "")), list[str]()
    if progress.get("number"):
        parts.append(f"step {progress['number']} of {progress.get('of')}")
    if progress.get("done_bytes") is not None:
        total = progress.get("total_bytes")
        parts.append(show_size(progress["done_bytes"]) + (f" of {show_size(total)}" if total else ""))
    if progress.get("layers_total"):
        parts.append(f"{progress['layers_done']} of {progress['layers_total']} layers")
    return " · ".join([step, *parts])


def _with_line(reason: Mapping[str, Any]) -> str:
    line = (reason.get("facts") or {}).get("line")
    return f"Line {line}: {sentence(reason)}" if line else sentence(reason)
