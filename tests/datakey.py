"""The key that tests without settings seal secrets with."""

from __future__ import annotations

from pathlib import Path

from webapp.store.sealing import Seal

KEY = "d" * 64
SEAL = Seal(lambda: (KEY,))


def put_into(state: Path) -> None:
    """For an agent with settings of its own, on a database of these tests."""
    (state / "data_key").write_text(f"{KEY}\n")
    (state / "data_key").chmod(0o640)
