"""What PyTorch printed inside → what is said of the cards. Only what was computed and compared has passed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webapp.domain.gpu_check import MARK, WORDINGS, CheckState, judge
from webapp.errors import fill

GOOD = {"name": "NVIDIA A100", "difference": 2e-7}
FOUND = {"torch": "2.8.0", "cuda": "12.8", "available": True, "count": 2, "cards": [GOOD, GOOD]}


def printed(**changes: Any) -> str:
    return f"UserWarning: something\n{MARK}{json.dumps({**FOUND, **changes})}\nbye\n"


def test_computed_on_every_card() -> None:
    finding = judge(printed(), 2)
    assert finding.state is CheckState.PASSED
    assert fill(WORDINGS[finding.code].title, finding.facts).startswith("PyTorch 2.8.0 (CUDA 12.8) computed on each of")


@pytest.mark.parametrize(("output", "state", "code"), [
    (printed(torch=None), CheckState.UNAVAILABLE, "torch_missing"),
    (printed(cuda=None, available=False), CheckState.UNAVAILABLE, "torch_without_cuda"),
    (printed(available=False), CheckState.FAILED, "torch_blind"),
    (printed(count=1, cards=[GOOD]), CheckState.FAILED, "torch_other_count"),
    (printed(count=3, cards=[GOOD] * 3), CheckState.FAILED, "torch_other_count"),
    (printed(cards=[GOOD]), CheckState.FAILED, "torch_other_count"),
    (printed(cards=[GOOD, {"failure": "RuntimeError: CUDA error"}]), CheckState.FAILED, "torch_card_failed"),
    (printed(cards=[GOOD, {"difference": 0.4}]), CheckState.FAILED, "torch_card_wrong"),
    (printed(cards=[{"difference": float("nan")}, GOOD]), CheckState.FAILED, "torch_card_wrong"),
    ("", CheckState.FAILED, "torch_broken"),
    (f"{MARK}not json", CheckState.FAILED, "torch_broken"),
    (f"{MARK}[]", CheckState.FAILED, "torch_broken"),
    ("Traceback …\nMemoryError", CheckState.FAILED, "torch_broken"),
])
def test_everything_else_has_not_passed(output: str, state: CheckState, code: str) -> None:
    finding = judge(output, 2)
    assert (finding.state, finding.code) == (state, code)
    assert fill(WORDINGS[code].title, finding.facts)
