"""What a launch that finds no cards is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webapp.errors import NoCapacity


def refused(launch: Callable[..., Any], actor: Any, **typed: Any) -> NoCapacity:
    with pytest.raises(NoCapacity) as caught:
        launch(actor, "refused", **typed)
    return caught.value


def why(error: NoCapacity) -> dict[str | None, str]:
    return {each["uuid"]: each["code"] for each in error.facts["why"]}
