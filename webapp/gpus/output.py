"""What running nvidia-smi once came to. Whoever runs it, here or over SSH, hands this to the parsers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class NoAnswer(StrEnum):
    """Why there is no whole output. The values are codes of domain/gpu.py."""

    MISSING = "smi_missing"         # no such program
    LATE = "smi_hangs"              # still running at its deadline, or an earlier one is
    UNREADABLE = "smi_unreadable"   # more text than any host has cards for, or it could not be started


@dataclass(frozen=True, slots=True)
class Output:
    exit_code: int | None           # None = it did not end by itself
    stdout: str                     # decoded with replacement; may be cut
    stderr: str = ""
    no_answer: NoAnswer | None = None
    seconds: float = 0.0            # how long it was waited for

    @property
    def text(self) -> str:
        """Both streams: versions differ in where they put messages."""
        return f"{self.stdout}\n{self.stderr}" if self.stderr else self.stdout


Run = Callable[[Sequence[str]], Output]
