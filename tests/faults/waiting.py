"""Waiting for something to become true: asked often, never longer than a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

EVERY_SECONDS = 0.03


def until(ask: Callable[[], T], *, seconds: float = 60.0, what: Callable[[], str] | str = "that") -> T:
    """The first answer that is true.

    Raises: AssertionError: at the deadline; `what` says what was waited for, and how things stand.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(EVERY_SECONDS)
