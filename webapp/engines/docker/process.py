"""A program run in a container, with a deadline that holds.

docker-py's own readers wait in poll() without an end (docker-py 7.2, utils/socket.py), so the socket is read here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from webapp.engines import ExecResult
from webapp.engines.docker.connection import Client
from webapp.engines.docker.output import Frames

EXIT_TIMED_OUT = 124        # as timeout(1) says it
MOST_OUTPUT_BYTES = 64 * 1024


def run_in_container(
    api: Client, name: str, argv: Sequence[str], *, deadline_seconds: float, user: str
) -> ExecResult:
    """The engine has no way to end an exec: a program that is late goes on, and the result says so."""
    deadline = time.monotonic() + deadline_seconds
    id_ = api.exec_create(name, list(argv), stdout=True, stderr=True, user=user)["Id"]
    connection = api.exec_start(id_, socket=True)
    output = bytearray()
    try:
        for piece in _pieces(connection, deadline):
            output += piece[: MOST_OUTPUT_BYTES - len(output)]
    except TimeoutError:
        return ExecResult(EXIT_TIMED_OUT, _text(output), timed_out=True)
    finally:
        _close(connection)
    exit_code = _exit_code(api, id_, deadline)
    if exit_code is None:
        return ExecResult(EXIT_TIMED_OUT, _text(output), timed_out=True)
    return ExecResult(exit_code, _text(output))


def _pieces(connection: Any, deadline: float) -> Iterator[bytes]:
    """Payloads until the program closes its output.

    Read through the response's own buffer: it may hold the first bytes already, which reading the socket would lose.

    Raises: TimeoutError: at the deadline.
    """
    reader, frames = connection._response.raw._fp.fp, Frames()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection._sock.settimeout(left)
        chunk = reader.read1(64 * 1024)
        if not chunk:
            return
        yield from frames.feed(chunk)


def _exit_code(api: Client, id_: str, deadline: float) -> int | None:
    """The output ends a moment before the engine has noted the exit code; also when a program closed it and goes on."""
    while True:
        found = api.exec_inspect(id_)
        if not found.get("Running") and found.get("ExitCode") is not None:
            return int(found["ExitCode"])
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)


def _text(output: bytearray) -> str:
    return output.decode("utf-8", errors="replace")


def _close(connection: Any) -> None:
    with contextlib.suppress(OSError):
        connection._response.close()
        connection.close()
