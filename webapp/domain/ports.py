"""The range that published ports are taken from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortRange:
    """Both ends included; 1024 ≤ first ≤ last ≤ 65535."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1024 <= self.first <= self.last <= 65535:
            raise ValueError(f"no port range: {self.first}-{self.last}")

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and self.first <= port <= self.last
