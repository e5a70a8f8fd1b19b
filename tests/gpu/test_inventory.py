"""The parsers against the real nvidia-smi of this machine."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from webapp.gpus.local import LocalRunner
from webapp.gpus.query import inventory

pytestmark = pytest.mark.gpu


@pytest.fixture
def listed() -> list[str]:
    """What `nvidia-smi -L` prints, a card a line."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA driver on this machine")
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        pytest.skip(f"nvidia-smi ended with {done.returncode}: {done.stdout.strip()[:200]}")
    return [line for line in done.stdout.splitlines() if line.startswith("GPU ")]


def test_every_card_is_found_with_identity_and_memory(listed: list[str]) -> None:
    found = inventory(LocalRunner())

    assert found.trouble is None
    assert len(found.gpus) == len(listed)
    for gpu, line in zip(found.gpus, listed, strict=True):
        assert gpu.uuid is not None and gpu.uuid in line
        assert gpu.name is not None and gpu.name in line
        assert gpu.shares_host_memory or (gpu.memory_total_bytes or 0) > 2**30
    assert found.driver_version and found.cuda_version
