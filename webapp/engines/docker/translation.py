"""Errors of docker-py, requests and the engine's own sentences → the errors that Berth names.

The engine says most things only in prose, so its sentences are matched; each pattern cites where it was met.
"""

from __future__ import annotations

import re

import docker.errors

from webapp.errors import (
    DiskFull,
    EngineError,
    EngineRejected,
    EngineUnreachable,
    GpusRefused,
    ImageHeld,
    ImageNotFound,
    PortTaken,
)

MOST_DETAIL = 500   # characters of the engine's prose that are kept

_PORT_TAKEN = ("port is already allocated", "address already in use")
# The toolkit's hook and its CLI; an engine without the toolkit; CDI names that the engine does not know.
_GPUS_REFUSED = ("nvidia-container-cli", "nvidia-container-runtime", "could not select device driver",
                 "unresolvable cdi devices", "cdi device injection failed", "/dev/nvidia")
# "conflict: unable to remove repository reference "x:1" (must force) - container 1f is using its referenced image 2e",
# "unable to delete 2e (cannot be forced) - image is being used by running container 1f"
_IMAGE_HELD = ("is using its referenced image", "image is being used by")
# 20.10: "listen tcp4 127.0.0.1:2201: bind: address already in use", "Bind for 127.0.0.1:2201 failed: port is already
# allocated"; 28: "failed to bind host port for 0.0.0.0:2201:172.18.0.2:22/tcp: address already in use" and
# "failed to bind host port 127.0.0.1:2201/tcp: address already in use".
_PORT = re.compile(r"(?:for|tcp[46]?|port) (?:\[[0-9a-fA-F:.]+\]|[0-9.]+):(\d{1,5})")
# Registries put tokens and names of accounts into the addresses of their error messages.
_USER_IN_URL = re.compile(r"(://)[^/\s@\"]+@")
_QUERY = re.compile(r"\?(?=[^\s\"']*=)[^\s\"']+")


def translated(error: BaseException, *, host: str, image: str = "") -> EngineError:
    """The EngineError that `error` stands for. An APIError is an answer, all else is none."""
    if isinstance(error, docker.errors.APIError):
        return refusal(error.explanation or error.status_code, host=host, image=image, status=error.status_code)
    return EngineUnreachable(host=host, detail=short(_cause(error)))


def refusal(sentence: object, *, host: str, image: str = "", status: int | None = None) -> EngineError:
    """What the engine means by its sentence; `image` is the reference that was asked for."""
    detail = short(sentence)
    lower = detail.lower()
    if any(words in lower for words in _PORT_TAKEN):
        return PortTaken(host=host, port=port_in(detail), detail=detail)
    if "no space left on device" in lower or "disk quota exceeded" in lower:
        return DiskFull(host=host, detail=detail)
    if any(words in lower for words in _GPUS_REFUSED):
        return GpusRefused(host=host, detail=detail)
    if any(words in lower for words in _IMAGE_HELD):
        return ImageHeld(host=host, detail=detail)
    if status == 404 and (image or "no such image" in lower):
        return ImageNotFound(host=host, image=image, detail=detail)
    return EngineRejected(host=host, detail=detail)


def port_in(detail: str) -> int | None:
    """The host port in "port is already allocated" and its kin; None = it names none."""
    found = _PORT.search(detail)
    return int(found[1]) if found else None


def is_version_mismatch(error: BaseException) -> bool:
    """Whether the engine was replaced by one that does not speak the version agreed on."""
    if not isinstance(error, docker.errors.APIError) or error.status_code != 400:
        return False
    sentence = str(error.explanation or "").lower()
    return "client version" in sentence and ("too old" in sentence or "too new" in sentence)


def short(sentence: object) -> str:
    """One line of the engine's prose, without credentials in addresses, cut to what a person reads."""
    text = " ".join(str(sentence).split())
    text = _QUERY.sub("", _USER_IN_URL.sub(r"\1", text))
    return text if len(text) <= MOST_DETAIL else f"{text[:MOST_DETAIL]}…"


def _cause(error: BaseException) -> str:
    """The innermost words: "Connection refused" says more than three wrappers around it."""
    inner = error
    for _ in range(10):     # requests puts the cause into args, others chain it; a chain may be a ring
        below = inner.__cause__ or inner.__context__ or next((a for a in inner.args if isinstance(a, Exception)), None)
        if below is None:
            break
        inner = below
    words = inner.strerror if isinstance(inner, OSError) else None
    return words or str(inner) or type(inner).__name__
