"""Secrets that a test can recognise, and where they are looked for."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import docker

from webapp.services.secrets import Secrets, new_secrets

CHUNK_BYTES = 4 * 1024 * 1024
SAMPLE_SECONDS = 0.25
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Canaries:
    """A token, and a host key whose private lines are in nothing else."""

    secrets: Secrets

    @classmethod
    def new(cls) -> Canaries:
        made = new_secrets()
        return cls(Secrets(f"canary-{made.jupyter_token}", made.host_private_key, made.host_public_key))

    @property
    def needles(self) -> tuple[bytes, ...]:
        """The private half is in the last full lines of the PEM; the ones before hold the public one, too."""
        lines = self.secrets.host_private_key.split()
        private = [line for line in lines if len(line) > 40][-2:]
        return tuple(text.encode() for text in (self.secrets.jupyter_token, *private))

    def are_in(self, text: str | bytes) -> bool:
        data = text.encode(errors="replace") if isinstance(text, str) else text
        return any(needle in data for needle in self.needles)


class ProcessWatch:
    """Looks at the arguments and the environment of every process of the machine, until it is closed."""

    def __init__(self, canaries: Canaries) -> None:
        self._canaries = canaries
        self._stop = threading.Event()
        self.found: set[str] = set()
        self.looked_at: set[int] = set()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                for what in ("cmdline", "environ"):
                    if self._canaries.are_in(_content(Path(f"/proc/{pid}/{what}"))):
                        self.found.add(f"{what} of {pid}: {_content(Path(f'/proc/{pid}/cmdline'))!r}")
                self.looked_at.add(pid)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:     # it ended
        return b""


@dataclass
class EventWatch:
    """Every event of the engine, as it was sent, until it is closed."""

    client: docker.DockerClient
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stream = self.client.events(decode=True)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def close(self) -> None:
        self._stream.close()
        self._thread.join()

    def _watch(self) -> None:
        for event in self._stream:
            self.lines.append(json.dumps(event))


def saved_bytes_with(client: docker.DockerClient, references: Iterable[str], needles: Iterable[bytes]) -> dict[
    bytes, int
]:
    """How often each needle is in `docker save` of the images: names, settings, and all layers unpacked.

    Layers that two of them share are saved once.
    """
    counts = dict.fromkeys(needles, 0)
    api: Any = client.api
    with api.get(f"{api.base_url}/images/get", params={"names": list(references)}, stream=True) as response:
        response.raise_for_status()
        with tarfile.open(fileobj=response.raw, mode="r|", bufsize=CHUNK_BYTES) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                for piece in _pieces(content) if content else (member.name.encode(),):
                    for needle in counts:
                        counts[needle] += piece.count(needle)
    return counts


def _pieces(content: IO[bytes]) -> Iterator[bytes]:
    """Overlapping, so that nothing is cut in two; a needle in an overlap counts twice, which nobody minds."""
    head = content.read(len(GZIP))
    source: IO[bytes] = _Joined(head, content)  # type: ignore[assignment]
    if head == GZIP:
        source = gzip.GzipFile(fileobj=source)  # type: ignore[assignment]
    kept = b""
    while chunk := source.read(CHUNK_BYTES):
        yield kept + chunk
        kept = chunk[-200:]


class _Joined:
    """What was read already, then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head + self._rest.read(size - len(head) if size > 0 else -1)
