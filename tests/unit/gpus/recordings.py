"""Recorded outputs and their right answers: our own, and those of real machines where their folder exists.

The folder of real ones lies beside the repository (or BERTH_TEST_RECORDINGS names it) and is not part of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
OWN = ROOT / "tests" / "recordings" / "nvidia-smi"
REAL = Path(os.environ.get("BERTH_TEST_RECORDINGS") or ROOT.parent / "shared" / "data" / "nvidia-smi")
KINDS = ("xml", "csv", "list", "topo", "apps", "errors")       # the table for people is not read


@dataclass(frozen=True, slots=True)
class Recording:
    path: Path
    answer: dict[str, Any]

    @property
    def output(self) -> bytes:
        return self.path.read_bytes()


def recordings(folder: Path, *kinds: str) -> list[Recording]:
    answers = folder / "expected.json"
    if not answers.is_file():
        return []
    return [Recording(folder / name, answer) for name, answer in json.loads(answers.read_text("utf-8")).items()
            if answer["kind"] in kinds]


def params(*kinds: str) -> list[Any]:
    """One parameter for each recording; one that is skipped, with the reason, for the folder that is not there."""
    found = [pytest.param(recording, id=f"{origin}-{recording.path.parent.name}-{recording.path.stem}")
             for origin, folder in (("own", OWN), ("real", REAL)) for recording in recordings(folder, *kinds)]
    if not recordings(REAL, *KINDS):
        why = f"no recordings of real machines at {REAL}"
        found.append(pytest.param(None, id="real-none", marks=pytest.mark.skip(reason=why)))
    return found
