"""The key that tests without settings seal secrets with."""

from __future__ import annotations

from webapp.store.sealing import Seal

KEY = "d" * 64
SEAL = Seal(lambda: (KEY,))
