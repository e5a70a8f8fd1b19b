"""What the host's loop saw last, for workers that wait: they need no list of their own.

Measured with 20 launches at once: a list by each waiting worker every half second cost 40 ms of CPU a launch here and
150 ms in the engine, of the 1.3 s that a launch takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from webapp.domain.container import Container


@dataclass(frozen=True, slots=True)
class Sighting:
    """The engine's list in one pass."""

    began: float                        # monotonic; the list is not older
    listed: tuple[Container, ...]


class Sightings:
    """The loop writes, any thread reads: one reference is swapped."""

    def __init__(self) -> None:
        self._last: Sighting | None = None

    def note(self, sighting: Sighting) -> None:
        self._last = sighting

    def since(self, moment: float) -> Sighting | None:
        """The last one, if it began after `moment`."""
        last = self._last
        return last if last is not None and last.began > moment else None
