"""The engine's events, followed across silence, and ended from another thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import requests
import urllib3.exceptions
from docker.types import CancellableStream

from webapp.domain.container import LABEL_INSTANCE, EngineEvent
from webapp.engines.docker.connection import Connection
from webapp.engines.docker.observed import engine_event

# An idle stream looks like a dead one (go-dockerclient#163): after so long without a word it is asked for anew, from
# the last event on, so nothing is missed and a dead connection is found out.
SILENCE_SECONDS = 60.0
_TICK = timedelta(microseconds=1)


class EventStream:
    """Container events of one instance on one engine."""

    def __init__(self, connection: Connection, instance: str) -> None:
        self._connection = connection
        self._filters = json.dumps({"type": ["container"], "label": [f"{LABEL_INSTANCE}={instance}"]})
        self._open: set[CancellableStream[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def between(self, since: datetime, until: datetime | None) -> Iterator[EngineEvent]:
        """Events from `since` on; without `until` until the engine goes or `close` is called.

        Raises: EngineUnreachable: it could not be asked at all.
        """
        while not self._closed:
            try:
                for event in self._ask(since, until):
                    since = event.at + _TICK
                    yield event
            except _Silent:
                continue
            return

    def _ask(self, since: datetime, until: datetime | None) -> Iterator[EngineEvent]:
        parameters = {"filters": self._filters, "since": _stamp(since)}
        if until is not None:
            parameters["until"] = _stamp(until)
        with self._connection.api(SILENCE_SECONDS) as api:
            response = api.open_stream("GET", "/events", parameters)
        with self._cancellable(response) as lines:
            yield from self._read(lines)

    def _read(self, lines: Iterator[bytes]) -> Iterator[EngineEvent]:
        """A line cut short by the end of the stream is no event."""
        while True:
            try:
                line = next(lines)
                event = engine_event(json.loads(line)) if line.strip() else None
            except (StopIteration, ValueError):
                return
            except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
                if "timed out" in str(error).lower():
                    raise _Silent from error
                return
            if event is not None:
                yield event

    @contextmanager
    def _cancellable(self, response: requests.Response) -> Iterator[Iterator[bytes]]:
        # One byte at a time: a larger chunk would be waited for, and the last event with it.
        stream = CancellableStream(response.iter_lines(chunk_size=1), response)
        with self._lock:
            self._open.add(stream)
        try:
            yield stream
        finally:
            with self._lock:
                self._open.discard(stream)
            response.close()

    def close(self) -> None:
        """End every iteration, from any thread."""
        self._closed = True
        with self._lock:
            streams = list(self._open)
        for stream in streams:
            stream.close()


class _Silent(Exception):
    """Nothing came for SILENCE_SECONDS."""


def _stamp(moment: datetime) -> str:
    """Seconds since 1970 with microseconds, as the engine takes them; a float would lose digits."""
    microseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _TICK
    return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06d}"
