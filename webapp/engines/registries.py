"""How this house reaches registries: with which logins, and by which mirror."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    auth_file: Path | None = None   # a config.json as `docker login` writes it; None = that of this account
    mirror: str | None = None       # host[:port][/path] that is asked first for images of Docker Hub


DIRECT = RegistryAccess()
