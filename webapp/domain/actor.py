"""Who asks. Every service takes one, decides by it, and writes it into the event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    member_id: str | None       # None = the house itself: the agent, or the command line on the server
    is_admin: bool
    address: str | None = None  # client address, when there is one

    @classmethod
    def house(cls) -> Actor:
        return cls(member_id=None, is_admin=True)
