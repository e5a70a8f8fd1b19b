from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from agent.image_room import offer_in_registry
from agent.room import Room
from agent.stage import Stage, make_fast
from webapp.domain.container import ImageFacts
from webapp.domain.house import HouseRules
from webapp.store.session import Store


@pytest.fixture
def log() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, one dictionary a line."""
    capture = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.format_exc_info, capture], cache_logger_on_first_use=False)
    yield capture.entries
    structlog.configure(**before)


@pytest.fixture
def stage(
    store: Store, cast: Any, house: HouseRules, now: datetime, log: list[MutableMapping[str, Any]],
) -> Iterator[Stage]:
    yield Stage(make_fast(store), cast, house, now)
    unforeseen = [entry["exception"] for entry in log if "exception" in entry]
    assert not unforeseen, unforeseen[0]


@pytest.fixture
def room(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> Room:
    """Of the preset four, or the one that a test names; looked at once."""
    room = Room(stage, tmp_path, getattr(request, "param", "four"))
    room.watch.look()
    return room


@pytest.fixture
def registry(stage: Stage) -> dict[str, ImageFacts]:
    return offer_in_registry(stage)
