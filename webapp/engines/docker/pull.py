"""Pulling an image: one long answer of JSON lines, with the errors inside it."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docker.auth
import docker.errors
from docker.types import CancellableStream
from docker.utils import parse_repository_tag

from webapp.domain.container import PullProgress
from webapp.engines import ProgressCallback
from webapp.engines.docker.connection import Client
from webapp.engines.docker.translation import refusal, short
from webapp.errors import DiskFull, EngineError, EngineRejected, ImageNotFound

TICK_SECONDS = 2.0          # how long a wish waits at most while a registry says nothing
SILENCE_SECONDS = 300.0     # a layer that is unpacked says something every few seconds; after that nobody is there


def pull(client: Client, reference: str, *, host: str, progress: ProgressCallback) -> None:
    """Pull `reference` and report the bytes on the way.

    Raises: ImageNotFound, DiskFull, EngineRejected; what docker-py raises where there is no answer.
    """
    repository, tag = parse_repository_tag(reference)
    parameters = {"fromImage": repository, "tag": tag or "latest"}  # no tag pulled all of them once (docker-py#2151)
    credentials = _credentials(client, repository, host)
    try:
        response = client.open_stream("POST", "/images/create", params=parameters, headers=credentials)
    except docker.errors.APIError as error:
        raise pull_error(error.explanation or error, reference, host=host) from error
    with response:
        stream = CancellableStream(iter(()), response)     # for its close alone, which ends a read in another thread
        try:
            follow(_messages(_ticking(response.iter_lines())), reference, host=host, progress=progress)
        finally:
            stream.close()


def follow(messages: Iterable[Mapping[str, Any]], reference: str, *, host: str, progress: ProgressCallback) -> None:
    """Read the engine's messages to the end. An empty one is a silence: `progress` is told, and may end the pull.

    Raises: ImageNotFound, DiskFull for the error among them.
    """
    layers: dict[str, Layer] = {}
    for message in messages:
        if not message:
            progress(_sum(layers.values()))
            continue
        sentence = message.get("error") or (message.get("errorDetail") or {}).get("message")
        if sentence:
            raise pull_error(sentence, reference, host=host)
        if _note(layers, message):
            progress(_sum(layers.values()))


@dataclass(slots=True)
class Layer:
    """Bytes of one layer. total None = not said yet."""

    done: int = 0
    total: int | None = None


def pull_error(sentence: object, reference: str, *, host: str) -> EngineError:
    """A full disk, or the image cannot be had: unknown, no login, no way to the registry; the sentence says which."""
    error = refusal(sentence, host=host)
    if isinstance(error, DiskFull):
        return error
    return ImageNotFound(host=host, image=reference, detail=short(sentence))


def _credentials(client: Client, repository: str, host: str) -> dict[str, str]:
    """The header for a registry that the agent's docker configuration names; {} = pull without.

    Raises: EngineRejected: that configuration or its credential helper is broken; says so, without its content.
    """
    registry, _ = docker.auth.resolve_repository_name(repository)
    try:
        header = docker.auth.get_config_header(client, registry)
    except Exception as error:      # helpers are programs and the file is anyone's: no list of errors is complete
        raise EngineRejected(host=host, detail=f"the stored login for {registry} cannot be read") from error
    return {"X-Registry-Auth": header.decode()} if header else {}


def _ticking(lines: Iterator[bytes]) -> Iterator[bytes | None]:
    """The lines, and None whenever there was none for TICK_SECONDS: whoever changed their mind is heard even then."""
    spoken: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines, spoken), name="pull", daemon=True).start()
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


def _messages(lines: Iterable[bytes | None]) -> Iterator[Mapping[str, Any]]:
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


def _note(layers: dict[str, Layer], message: Mapping[str, Any]) -> bool:
    """Enter one message; False = it changed nothing that is counted. Unpacking is not counted."""
    status, id_ = message.get("status"), message.get("id") or ""
    if status == "Pulling fs layer":
        layers.setdefault(id_, Layer())
        return False
    if status == "Downloading":
        detail = message.get("progressDetail") or {}
        layer = layers.setdefault(id_, Layer())
        layer.done = int(detail.get("current") or 0)
        layer.total = int(detail["total"]) if detail.get("total") else layer.total
        return True
    if status == "Download complete" and id_ in layers:
        layers[id_].done = layers[id_].total or layers[id_].done
        return True
    return False


def _sum(layers: Iterable[Layer]) -> PullProgress:
    known = [layer for layer in layers if layer.total is not None]
    return PullProgress(
        done_bytes=sum(layer.done for layer in known),
        total_bytes=sum(layer.total or 0 for layer in known) or None,
    )
