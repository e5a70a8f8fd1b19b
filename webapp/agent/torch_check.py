"""Beside a running workspace: PyTorch inside tries its cards. Nobody waits for it, and it changes no phase."""

from __future__ import annotations

from pathlib import Path

import structlog

from webapp.agent import torch_inside
from webapp.agent.context import HostContext
from webapp.agent.desk import Desk
from webapp.domain.gpu_check import CheckState, Finding, judge
from webapp.domain.plan import own_containers
from webapp.domain.sizes import GIB, show_size
from webapp.domain.workspace import Phase
from webapp.errors import EngineError, EngineUnreachable
from webapp.services import observations

log = structlog.get_logger(__name__)

DEADLINE_SECONDS = 300          # a cold disk makes the first `import torch` take minutes
KILL_AFTER_SECONDS = 5
LEAST_MEMORY_BYTES = 3 * GIB    # importing a CUDA build and opening a context takes about two
TIMED_OUT, KILLED = 124, 137      # exit codes of timeout(1)
PYTHON = "/opt/berth/py/bin/python"
_PROGRAM = Path(torch_inside.__file__).read_text("utf-8")


def try_cards(context: HostContext, workspace_id: str) -> None:
    """Once for each start; taken up again by the next agent when this one ends meanwhile."""
    desk = Desk.open(context, workspace_id)
    if desk is None or desk.wanted.phase is not Phase.RUNNING or not desk.workspace.cards:
        return
    if finding := _without_trying(desk):
        desk.record_if_current(gpu_check=finding.as_json(desk.now()))
        return
    running = Finding(CheckState.RUNNING, "torch_running", {"epoch": context.epoch}).as_json(desk.now())
    if not desk.record_if_current(gpu_check=running):
        return
    try:
        found = _try(desk)
    except EngineUnreachable:
        found = None                # asked again once it answers
    except EngineError as error:
        found = Finding(CheckState.FAILED, "torch_broken", {"detail": str(error)})
    with context.store.write() as session:
        observations.record_gpu_check(
            session, workspace_id, epoch=context.epoch, was=running,
            check=found.as_json(desk.now()) if found is not None else None)
    if found is not None:
        log.info("workspace.gpus_checked", workspace=workspace_id, state=str(found.state), code=found.code)


def _without_trying(desk: Desk) -> Finding | None:
    if any(card.simulated for card in desk.workspace.cards):
        return Finding(CheckState.SIMULATED, "torch_simulated")
    memory = desk.workspace.limits.memory_bytes
    if memory < LEAST_MEMORY_BYTES:
        facts = {"least": show_size(LEAST_MEMORY_BYTES), "memory": show_size(memory)}
        return Finding(CheckState.UNAVAILABLE, "torch_little_memory", facts)
    return None


def _try(desk: Desk) -> Finding | None:
    """None = it does not run any more."""
    current = next((one for one in own_containers(desk.wanted, tuple(desk.engine.list()))
                    if one.id == desk.wanted.container_id and one.is_up), None)
    if current is None:
        return None
    argv = ("timeout", "-k", str(KILL_AFTER_SECONDS), str(DEADLINE_SECONDS), "nice", PYTHON, "-c", _PROGRAM)
    answer = desk.engine.exec(current.name, argv, deadline_seconds=DEADLINE_SECONDS + 2 * KILL_AFTER_SECONDS)
    if answer.timed_out or answer.exit_code == TIMED_OUT:
        return Finding(CheckState.FAILED, "torch_late", {"seconds": DEADLINE_SECONDS})
    if answer.exit_code == KILLED:
        return Finding(CheckState.FAILED, "torch_broken", {"detail": "killed, for want of memory or because it hung"})
    slices = any(card.is_slice for card in desk.workspace.cards)
    return judge(answer.output, 1 if slices else len(desk.workspace.cards))     # CUDA takes one MIG slice at most
