"""The program that is handed into workspaces, run as it is there: by a bare Python, with a PyTorch that is made up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from webapp.agent import torch_inside
from webapp.domain import gpu_check
from webapp.domain.gpu_check import CheckState, judge

# Two cards; `wrong` makes the second one compute something else, `raises` makes it fail.
TORCH = """
__version__ = "2.8.0"
class version: cuda = {cuda!r}
class cuda:
    is_available = staticmethod(lambda: {available})
    device_count = staticmethod(lambda: 2)
    get_device_name = staticmethod(lambda number: f"card {{number}}")
device = lambda kind, number: number
manual_seed = lambda seed: None
class Tensor:
    def __init__(self, value, at=None): self.value, self.at = value, at
    def to(self, at):
        if at == 1 and {raises}: raise RuntimeError("CUDA error: out of memory")
        return Tensor(self.value, at)
    def __matmul__(self, other): return Tensor(self.value * other.value + (1 if self.at == 1 and {wrong} else 0))
    def __sub__(self, other): return Tensor(self.value - other.value)
    def __truediv__(self, other): return Tensor(self.value / other.value)
    def cpu(self): return self
    def abs(self): return Tensor(abs(self.value))
    def max(self): return self
    def item(self): return self.value
rand = lambda *sides: Tensor(3.0)
"""


@pytest.mark.parametrize(("changes", "state", "code"), [
    ({}, CheckState.PASSED, "torch_passed"),
    ({"wrong": True}, CheckState.FAILED, "torch_card_wrong"),
    ({"raises": True}, CheckState.FAILED, "torch_card_failed"),
    ({"available": False}, CheckState.FAILED, "torch_blind"),
    ({"available": False, "cuda": None}, CheckState.UNAVAILABLE, "torch_without_cuda"),
])
def test_program(tmp_path: Path, changes: dict[str, object], state: CheckState, code: str) -> None:
    knobs = {"cuda": "12.8", "available": True, "wrong": False, "raises": False, **changes}
    (tmp_path / "torch.py").write_text(TORCH.format(**knobs))
    finding = judge(_run(tmp_path), 2)
    assert (finding.state, finding.code) == (state, code)


def test_without_pytorch(tmp_path: Path) -> None:
    assert judge(_run(tmp_path), 1).code == "torch_missing"


def test_both_sides_mean_the_same_line() -> None:
    assert torch_inside.MARK == gpu_check.MARK


def _run(folder: Path) -> str:
    text = Path(torch_inside.__file__).read_text("utf-8")
    done = subprocess.run([sys.executable, "-S", "-c", text], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout
