"""The berth command on a state folder of the test's own, with no engine to be reached."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from webapp.cli import root

PASSWORD = "correct horse battery"
Berth = Callable[..., SimpleNamespace]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in [name for name in os.environ if name.startswith("BERTH_") or name == "DOCKER_HOST"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BERTH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("BERTH_ENGINE", f"unix://{tmp_path}/no-engine.sock")
    yield tmp_path / "state"
    for name in [name for name in os.environ if name.startswith("BERTH_")]:
        del os.environ[name]    # what `berth demo` has set; monkeypatch knows nothing of it


@pytest.fixture
def berth(state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Berth:
    """berth("user", "list") → its exit code, out and err."""
    def run(*arguments: str, typed: str = "") -> SimpleNamespace:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=lambda: typed))
        code = root.run(list(arguments))
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)
    return run


@pytest.fixture
def house(berth: Berth) -> Berth:
    """The command on a migrated database with alice in it."""
    assert berth("migrate").code == 0
    assert berth("user", "add", "alice", "--name", "Alice", "--password-stdin", typed=f"{PASSWORD}\n").code == 0
    return berth
