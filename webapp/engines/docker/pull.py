"""Pulling an image: one long answer of JSON lines, with the errors inside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docker.errors
import structlog

from webapp.domain.container import PullProgress
from webapp.domain.references import ImageReference, parse_reference
from webapp.engines import ProgressCallback
from webapp.engines.docker.connection import Client
from webapp.engines.docker.logins import login_for
from webapp.engines.docker.stream import error_in, messages
from webapp.engines.docker.translation import refusal, short
from webapp.engines.registries import RegistryAccess
from webapp.errors import DiskFull, EngineError, EngineUnreachable, ImageNotFound, PullFailed, RegistryRefused

log = structlog.get_logger(__name__)

SILENCE_SECONDS = 300.0     # a layer that is unpacked says something every few seconds; after that nobody is there

# What registries and engines write when another try would end the same way; all else may pass. Seen with Docker Hub,
# distribution 2.8, GitHub's and Quay's registry.
_NO_LOGIN = ("unauthorized", "authentication required", "no basic auth credentials", "incorrect username or password",
             "requested access to the resource is denied", "403 forbidden", "denied: ")
_NOT_THERE = ("manifest unknown", "not found", "name unknown", "repository does not exist", "no matching manifest",
              "does not match the specified platform", "no such image", "invalid reference format", "mediatype",
              "unsupported manifest", "unknown manifest")


def pull(
    client: Client, reference: str, *, digest: str | None, host: str, access: RegistryAccess,
    progress: ProgressCallback,
) -> str:
    """Pull `reference`; with `digest` the very image that had its tag once. Returns the name it was pulled by.

    An image of Docker Hub is asked of the house's mirror first; the engine has it under the mirror's name then.

    Raises: ImageNotFound, RegistryRefused, PullFailed, DiskFull; what docker-py raises where there is no answer.
    """
    parsed = parse_reference(reference)
    for source in _mirrored(parsed, access):
        try:
            return _pull(client, source, digest, host=host, access=access, progress=progress)
        except (DiskFull, EngineUnreachable):
            raise
        except EngineError as error:
            log.warning("image.mirror_failed", host=host, image=reference, mirror=access.mirror, detail=str(error))
    return _pull(client, parsed, digest, host=host, access=access, progress=progress)


def _mirrored(parsed: ImageReference, access: RegistryAccess) -> Iterator[ImageReference]:
    """Without a tag there is no familiar name that could be put on it afterwards."""
    if access.mirror is not None and parsed.registry is None and parsed.tag is not None:
        tag = parsed.tag if parsed.digest is None else f"{parsed.tag}@{parsed.digest}"
        yield parse_reference(f"{access.mirror}/{parsed.repository}:{tag}")


def _pull(
    client: Client, source: ImageReference, digest: str | None, *, host: str, access: RegistryAccess,
    progress: ProgressCallback,
) -> str:
    version = digest or source.digest or source.tag or "latest"     # no tag pulled all of them once (docker-py#2151)
    name = f"{source.name}{'@' if version.startswith('sha256:') else ':'}{version}"
    header = login_for(client, source, access, host=host)
    try:
        response = client.open_stream("POST", "/images/create", {"fromImage": source.name, "tag": version}, header)
    except docker.errors.APIError as error:
        raise pull_error(error.explanation or error, name, host=host) from error
    with messages(response) as heard:
        follow(heard, name, host=host, progress=progress)
    return name


def follow(heard: Iterable[Mapping[str, Any]], reference: str, *, host: str, progress: ProgressCallback) -> None:
    """Read the engine's messages to the end. An empty one is a silence: `progress` is told, and may end the pull.

    Raises: as pull_error, for the error among them.
    """
    layers: dict[str, Layer] = {}
    for message in heard:
        if not message:
            progress(_sum(layers.values()))
            continue
        if sentence := error_in(message):
            raise pull_error(sentence, reference, host=host)
        if _note(layers, message):
            progress(_sum(layers.values()))


@dataclass(slots=True)
class Layer:
    """Bytes of one layer. total None = not said yet."""

    done: int = 0
    total: int | None = None
    is_done: bool = False       # unpacked, or there before


def pull_error(sentence: object, reference: str, *, host: str) -> EngineError:
    """A full disk; no such image; no login for it; else something on the way, which may pass."""
    error = refusal(sentence, host=host)
    if isinstance(error, DiskFull):
        return error
    detail = short(sentence)
    lower = detail.lower()
    facts = {"host": host, "image": parse_reference(reference).familiar, "detail": detail}
    if any(words in lower for words in _NOT_THERE):
        return ImageNotFound(**facts)       # also "repository does not exist or may require 'docker login'"
    if any(words in lower for words in _NO_LOGIN):
        return RegistryRefused(**facts)
    return PullFailed(**facts)


def _note(layers: dict[str, Layer], message: Mapping[str, Any]) -> bool:
    """Enter one message; False = it changed nothing that is shown. Bytes count when they have come, not unpacked."""
    status, id_ = message.get("status"), message.get("id") or ""
    match status:
        case "Pulling fs layer":
            layers.setdefault(id_, Layer())
            return False
        case "Already exists":
            layers[id_] = Layer(is_done=True)
        case "Downloading":
            detail = message.get("progressDetail") or {}
            layer = layers.setdefault(id_, Layer())
            layer.done = int(detail.get("current") or 0)
            layer.total = int(detail["total"]) if detail.get("total") else layer.total
        case "Download complete" if id_ in layers:
            layers[id_].done = layers[id_].total or layers[id_].done
        case "Pull complete" if id_ in layers:
            layers[id_].is_done = True
        case _:
            return False
    return True


def _sum(layers: Iterable[Layer]) -> PullProgress:
    layers = list(layers)
    known = [layer for layer in layers if layer.total is not None]
    return PullProgress(
        done_bytes=sum(layer.done for layer in known),
        total_bytes=sum(layer.total or 0 for layer in known) or None,
        layers_done=sum(layer.is_done for layer in layers),
        layers_total=len(layers),
    )
