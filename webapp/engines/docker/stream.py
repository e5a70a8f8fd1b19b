"""Long answers of the engine: a JSON object a line, for minutes or hours, which whoever reads may break off."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from docker.types import CancellableStream

TICK_SECONDS = 1.0          # how long a wish waits at most while the engine says nothing


@contextmanager
def messages(response: requests.Response) -> Iterator[Iterator[Mapping[str, Any]]]:
    """The objects in the answer; {} whenever there was none for TICK_SECONDS. At the end of the block the connection
    is closed, and the engine breaks off what it was at. It is a connection of its own (Connection.newly_connected).
    """
    with response:
        stream = CancellableStream(iter(()), response)     # for its close alone, which ends a read in another thread
        try:
            yield parsed(_ticking(response.iter_lines()))
        finally:
            stream.close()


def parsed(lines: Iterable[bytes | None]) -> Iterator[Mapping[str, Any]]:
    """One JSON object a line, {} for a silence; blank lines and lines that are no object are passed over."""
    for line in lines:
        if line is None:
            yield {}
            continue
        try:
            message = json.loads(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(message, dict):
            yield message       # {} from the engine would be one more tick: no harm


def error_in(message: Mapping[str, Any]) -> str | None:
    """The engine's sentence when it says inside of an answer that it failed."""
    sentence = message.get("error") or (message.get("errorDetail") or {}).get("message")
    return str(sentence) if sentence else None


def _ticking(lines: Iterator[bytes]) -> Iterator[bytes | None]:
    """The lines, and None whenever there was none for TICK_SECONDS: whoever changed their mind is heard even then."""
    spoken: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines, spoken), name="stream", daemon=True).start()
    while True:
        try:
            line = spoken.get(timeout=TICK_SECONDS)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        yield line


def _read(lines: Iterator[bytes], spoken: queue.SimpleQueue[bytes | Exception | None]) -> None:
    """None = the end. An error is raised where the lines are wanted."""
    try:
        for line in lines:
            spoken.put(line)
    except Exception as error:
        spoken.put(error)
    else:
        spoken.put(None)
