"""What every part of the agent needs for one host, put together once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from webapp.agent import probes
from webapp.agent.cards import Cards
from webapp.agent.outage import Outage
from webapp.agent.sightings import Sightings
from webapp.domain.house import HouseRules
from webapp.domain.workspace import Service
from webapp.engines import Engine
from webapp.store.session import Store

Probe = Callable[[Service, str, int], bool]


def utc_now() -> datetime:
    return datetime.now(UTC)


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class HostContext:
    """One host and the means to work on it. Shared by its threads; nothing in it changes but the caches."""

    host_id: str
    host_name: str
    engine: Engine
    store: Store
    instance: str
    epoch: int
    house: HouseRules
    volume_roots: tuple[Path, ...]
    bind_address: str               # address that published ports bind
    now: Callable[[], datetime] = utc_now               # what people read, and next tries
    monotonic: Callable[[], float] = time.monotonic     # deadlines: a clock that is set does not end them
    sleep: Callable[[float], None] = time.sleep
    probe: Probe = probes.answers
    stopping: Callable[[], bool] = _never               # True: take up nothing more
    outage: Outage = field(default_factory=Outage)      # of the database, for all hosts of the agent
    image_users: dict[str, tuple[str, str]] = field(default_factory=dict)   # image reference → its passwd and group
    image_tries: dict[str, int] = field(default_factory=dict)               # operation on an image → tries so far
    sightings: Sightings = field(default_factory=Sightings)                 # by the host's loop
    cards: Cards = field(default_factory=Cards)                             # its GPUs

    @property
    def network(self) -> str:
        return f"berth-{self.instance}"

    @property
    def probe_address(self) -> str:
        """Where the agent itself reaches published ports."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.bind_address, self.bind_address)
