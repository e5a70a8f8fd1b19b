"""The look at the cards of a running workspace with PyTorch: what it found, as a value. A badge, never a phase.

A check that could not be made says so; only one that computed on every card and compared has passed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from webapp.domain.reasons import Wording
from webapp.errors import N_

MARK = "BERTH-CHECK "       # begins the one line that counts; libraries print warnings around it
TOLERANCE = 0.01            # largest difference to the CPU, as part of the largest value; TF32 stays below 0.002
MOST_WORDS = 200            # characters of an error that are kept


class CheckState(StrEnum):
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"     # nothing was computed, and that is nobody's fault
    SIMULATED = "simulated"         # there is nothing to compute on


@dataclass(frozen=True, slots=True)
class Finding:
    state: CheckState
    code: str                           # of WORDINGS
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self, at: datetime) -> dict[str, Any]:
        return {"state": str(self.state), "at": at.isoformat(), "code": self.code, "facts": dict(self.facts)}


def judge(output: str, cards: int) -> Finding:
    """What the program inside printed, for a workspace in which PyTorch should see `cards`."""
    said = _line(output)
    if said is None:
        lines = [line for line in output.strip().splitlines() if line.strip()]
        return Finding(CheckState.FAILED, "torch_broken", {"detail": lines[-1][:MOST_WORDS] if lines else "—"})
    if said.get("torch") is None:
        return Finding(CheckState.UNAVAILABLE, "torch_missing")
    facts = {"torch": said["torch"], "cuda": said.get("cuda") or "—", "wanted": cards, "seen": said.get("count", 0)}
    if said.get("cuda") is None:
        return Finding(CheckState.UNAVAILABLE, "torch_without_cuda", facts)
    if not said.get("available"):
        return Finding(CheckState.FAILED, "torch_blind", facts)
    results = list(said.get("cards") or [])
    if said.get("count") != cards or len(results) != cards:
        return Finding(CheckState.FAILED, "torch_other_count", facts)
    for number, result in enumerate(results):
        if "failure" in result:
            return Finding(CheckState.FAILED, "torch_card_failed", {
                "number": number, "detail": str(result["failure"])[:MOST_WORDS]})
        if not float(result["difference"]) <= TOLERANCE:        # NaN as well
            return Finding(CheckState.FAILED, "torch_card_wrong", {"number": number})
    return Finding(CheckState.PASSED, "torch_passed", facts)


def _line(output: str) -> dict[str, Any] | None:
    for line in output.splitlines():
        if line.startswith(MARK):
            try:
                said = json.loads(line.removeprefix(MARK))
            except ValueError:
                return None
            return said if isinstance(said, dict) else None
    return None


WORDINGS: dict[str, Wording] = {
    "torch_passed": Wording(
        N_("PyTorch %(torch)s (CUDA %(cuda)s) computed on each of the %(wanted)s GPUs, and the CPU agrees."),
        "",
    ),
    "torch_running": Wording(
        N_("PyTorch is trying the GPUs."),
        N_("You can work meanwhile."),
    ),
    "torch_missing": Wording(
        N_("Not checked: there is no PyTorch in the image."),
        "",
    ),
    "torch_without_cuda": Wording(
        N_("Not checked: PyTorch %(torch)s in the image was built without CUDA."),
        N_("Choose an image with a CUDA PyTorch, or install one into the workspace."),
    ),
    "torch_simulated": Wording(
        N_("Not checked: these GPUs are simulated, and nothing computes on them."),
        "",
    ),
    "torch_little_memory": Wording(
        N_("Not checked: PyTorch needs %(least)s of memory for it, and the workspace has %(memory)s."),
        "",
    ),
    "torch_adopted": Wording(
        N_("Not checked: it was running already when the database took it over."),
        "",
    ),
    "torch_blind": Wording(
        N_("PyTorch %(torch)s (CUDA %(cuda)s) sees no GPU."),
        N_("Show this to an administrator: mostly the driver of the host is too old for the image."),
    ),
    "torch_other_count": Wording(
        N_("PyTorch sees %(seen)s GPUs instead of %(wanted)s."),
        N_("Show this sentence to an administrator."),
    ),
    "torch_card_failed": Wording(
        N_("PyTorch could not compute on GPU %(number)s: %(detail)s"),
        N_("Stop the workspace and start it on another GPU; tell an administrator."),
    ),
    "torch_card_wrong": Wording(
        N_("GPU %(number)s computes something else than the CPU."),
        N_("Do not trust its results. Stop the workspace and tell an administrator."),
    ),
    "torch_late": Wording(
        N_("PyTorch gave no answer within %(seconds)s seconds."),
        N_("Look whether the GPUs are busy or hang: nvidia-smi in the workspace."),
    ),
    "torch_broken": Wording(
        N_("The check with PyTorch broke off: %(detail)s"),
        N_("Try it by hand in the workspace: python -c \"import torch; print(torch.cuda.is_available())\""),
    ),
}
