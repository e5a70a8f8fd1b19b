"""The check with PyTorch beside a running workspace: once for each start, changing nothing but its badge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agent.stage import Stage
from webapp.agent import torch_check
from webapp.agent.desk import Desk
from webapp.domain.gpu import Gpu, Inventory
from webapp.domain.gpu_check import MARK
from webapp.domain.workspace import Phase
from webapp.engines import ExecResult
from webapp.errors import EngineUnreachable
from webapp.services import inventory

CARD = "GPU-11111111-2222-3333-4444-555555555555"
SAID = {"torch": "2.8.0", "cuda": "12.8", "available": True, "count": 1, "cards": [{"name": "A100", "difference": 0.0}]}


def see_card(stage: Stage, *, simulated: bool = False) -> None:
    look = inventory.Look(Inventory((Gpu(CARD, 0, "NVIDIA A100"),), driver_version="580.65"), {}, simulated)
    with stage.store.write() as session:
        assert inventory.record(
            session, stage.cast.host_id, look, epoch=stage.context.epoch, now=stage.clock.now())
    stage.context.cards.was_read.set()


def answer(stage: Stage, said: dict[str, Any] | None = None, exit_code: int = 0) -> list[Sequence[str]]:
    """What PyTorch inside prints; gives the command lines of the checks."""
    asked: list[Sequence[str]] = []

    def on_exec(_name: str, argv: Sequence[str]) -> ExecResult | None:
        if argv[0] != "timeout":
            return None
        asked.append(argv)
        return ExecResult(exit_code, f"{MARK}{json.dumps(said or SAID)}\n")

    stage.engine.on_exec = on_exec
    return asked


def badge(stage: Stage, workspace: Any) -> tuple[str, str] | None:
    check = stage.row(workspace).gpu_check
    return (check["state"], check["code"]) if check else None


def test_passes_once_for_each_start(stage: Stage) -> None:
    see_card(stage)
    asked = answer(stage)
    workspace = stage.launch(gpus="1")
    stage.live(30)
    assert badge(stage, workspace) == ("passed", "torch_passed") and len(asked) == 1
    stage.stop(workspace)
    stage.live(10)
    assert badge(stage, workspace) is None, "it said something of cards that it gave back"
    stage.start(workspace)
    stage.live(30)
    assert badge(stage, workspace) == ("passed", "torch_passed") and len(asked) == 2


def test_without_cards_nothing_is_asked(stage: Stage) -> None:
    asked = answer(stage)
    workspace = stage.launch()
    stage.live(30)
    assert (stage.row(workspace).phase, asked, badge(stage, workspace)) == (Phase.RUNNING, [], None)


def test_what_it_finds_changes_no_phase(stage: Stage) -> None:
    see_card(stage)
    answer(stage, {**SAID, "available": False})
    workspace = stage.launch(gpus="1")
    stage.live(30)
    assert badge(stage, workspace) == ("failed", "torch_blind")
    assert stage.row(workspace).phase == Phase.RUNNING


def test_simulated_cards_are_not_called_checked(stage: Stage) -> None:
    see_card(stage, simulated=True)
    asked = answer(stage)
    workspace = stage.launch(gpus="1")
    stage.live(30)
    assert (badge(stage, workspace), asked) == (("simulated", "torch_simulated"), [])


def test_little_memory_is_not_spent_on_it(stage: Stage) -> None:
    see_card(stage)
    asked = answer(stage)
    workspace = stage.launch(gpus="1", memory="2GiB")
    stage.live(30)
    assert (badge(stage, workspace), asked) == (("unavailable", "torch_little_memory"), [])


@pytest.mark.parametrize(("exit_code", "code"), [(124, "torch_late"), (137, "torch_broken")])
def test_one_that_hangs_or_is_killed(stage: Stage, exit_code: int, code: str) -> None:
    see_card(stage)
    answer(stage, exit_code=exit_code)
    workspace = stage.launch(gpus="1")
    stage.live(30)
    assert badge(stage, workspace) == ("failed", code)


def test_silent_engine_is_asked_again(stage: Stage) -> None:
    see_card(stage)
    silences = 2

    def on_exec(_name: str, argv: Sequence[str]) -> ExecResult | None:
        nonlocal silences
        if argv[0] != "timeout":
            return None
        silences -= 1
        if silences >= 0:
            raise EngineUnreachable(host="gpu1", detail="timed out")
        return ExecResult(0, f"{MARK}{json.dumps(SAID)}")

    stage.engine.on_exec = on_exec
    workspace = stage.launch(gpus="1")
    stage.live(30)
    assert (silences, badge(stage, workspace)) == (-1, ("passed", "torch_passed"))


def test_answer_of_the_run_before_is_thrown_away(stage: Stage) -> None:
    """Its container crashed and was started again while the check was at it."""
    see_card(stage)
    answer(stage)
    workspace = stage.launch(gpus="1")
    stage.live(30)

    def started_anew(_name: str, argv: Sequence[str]) -> ExecResult | None:
        desk = Desk.open(stage.context, workspace.id)
        assert desk is not None and argv[0] == "timeout"
        desk.record(gpu_check=None)
        return ExecResult(1, "Traceback")

    stage.engine.on_exec = started_anew
    with stage.store.write() as session:
        session.get_one(type(workspace), workspace.id).gpu_check = None
    torch_check.try_cards(stage.context, workspace.id)
    assert badge(stage, workspace) is None


def test_next_agent_takes_it_up_again(stage: Stage) -> None:
    see_card(stage)
    asked = answer(stage)
    workspace = stage.launch(gpus="1")
    stage.live(30)
    desk = Desk.open(stage.context, workspace.id)
    assert desk is not None
    facts = {"epoch": desk.context.epoch}
    desk.record(gpu_check={"state": "running", "at": "", "code": "torch_running", "facts": facts})
    stage.live(10)
    assert len(asked) == 1, "the same agent is at it already"
    stage.take_over()
    stage.context.cards.was_read.set()
    stage.live(10)
    assert len(asked) == 2 and badge(stage, workspace) == ("passed", "torch_passed")
