"""A registry on loopback that serves one image, well or badly: what it does depends on the repository's last name.

    missing  404                              private  401, whoever asks
    slow     a layer at a few KB/s            hung     a layer of which nothing comes
    halves   two layers, the second as hung   broken   a layer that is not what its digest says
    away     503                              …        all of it, at once
`move` gives a tag another image; the former one stays, by its digest. With a `login` nobody gets anything without it.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from faults import standin

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DRIP_BYTES, DRIP_SECONDS = 512, 0.1
_PATH = re.compile(r"/v2/(.+)/(manifests|blobs)/([^/]+)")
LABELS = {"berth.image.contract": "1", "berth.image.jupyter": "0"}


@dataclass(frozen=True)
class Served:
    """An image: its layers, its settings, and the manifest that names them."""

    layers: tuple[bytes, ...]
    config: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        return _digest(self.manifest)

    @property
    def size(self) -> int:
        return sum(map(len, self.layers))


@dataclass
class Registry:
    address: str
    login: tuple[str, str] | None = None
    end: threading.Event = field(default_factory=threading.Event)
    asked: set[str] = field(default_factory=set)        # repositories of which a layer was asked for
    given: list[str] = field(default_factory=list)      # digests of layers that were sent whole, once for each time
    versions: dict[str, int] = field(default_factory=dict)

    def reference(self, repository: str) -> str:
        return f"{self.address}/{repository}:1"

    def image(self, repository: str, version: int | None = None) -> Served:
        """The name is in the layer: an engine would not ask for one that it has from another repository."""
        mark = f"{self.reference(repository)} {self.versions.get(repository, 0) if version is None else version}"
        return _image(mark, layers=2 if repository.endswith("halves") else 1)

    def move(self, repository: str) -> None:
        self.versions[repository] = self.versions.get(repository, 0) + 1

    def find(self, repository: str, digest: str) -> tuple[Served, int] | None:
        """Whose manifest, settings (-1) or layer that is, and which layer; of any version."""
        for version in range(self.versions.get(repository, 0) + 1):
            image = self.image(repository, version)
            if digest in (image.digest, _digest(image.config)):
                return image, -1
            for number, layer in enumerate(image.layers):
                if digest == _digest(layer):
                    return image, number
        return None


@contextlib.contextmanager
def registry(login: tuple[str, str] | None = None) -> Iterator[Registry]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.registry = Registry(f"127.0.0.1:{server.server_port}", login)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.registry  # type: ignore[attr-defined]
    finally:
        server.registry.end.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


@functools.cache
def _image(mark: str, layers: int) -> Served:
    roots = [_one_file(f"{mark} {number}") for number in range(1, layers)] + [standin.root_file_system(mark)]
    packed = tuple(gzip.compress(root, compresslevel=1, mtime=0) for root in roots)
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/workspace"], "Labels": LABELS},
        "rootfs": {"type": "layers", "diff_ids": [_digest(root) for root in roots]},
    }).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "size": len(config), "digest": _digest(config)},
        "layers": [{"mediaType": LAYER, "size": len(layer), "digest": _digest(layer)} for layer in packed],
    }).encode()
    return Served(packed, config, manifest)


def _one_file(content: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("mark")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content.encode()))
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """/v2/, /v2/NAME/manifests/TAG or DIGEST, /v2/NAME/blobs/DIGEST"""
        match = _PATH.fullmatch(self.path)
        if not self._may_come_in():
            self._refuse(401, "UNAUTHORIZED", "authentication required")
        elif match is None:
            self._send(200, b"{}", "application/json")
        else:
            self._answer(*match.groups())

    do_HEAD = do_GET

    def _may_come_in(self) -> bool:
        login = self._registry.login
        basic = base64.b64encode(":".join(login).encode()).decode() if login else ""
        return login is None or self.headers.get("Authorization") == f"Basic {basic}"

    def _answer(self, repository: str, what: str, which: str) -> None:
        kind = repository.rpartition("/")[2]
        is_digest = which.startswith("sha256:")
        found = self._registry.find(repository, which) if is_digest else (self._registry.image(repository), -1)
        if kind == "missing" or found is None:
            self._refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")
        elif kind == "private":
            self._refuse(401, "UNAUTHORIZED", "authentication required")
        elif kind == "away":
            self._refuse(503, "UNAVAILABLE", "try again later")
        elif what == "manifests":
            self._send(200, found[0].manifest, MANIFEST, {"Docker-Content-Digest": found[0].digest})
        elif found[1] < 0:
            self._send(200, found[0].config, "application/octet-stream")
        else:
            self._registry.asked.add(repository)
            image, number = found
            self._send_layer(kind, image.layers[number], which, is_last=number == len(image.layers) - 1)

    @property
    def _registry(self) -> Registry:
        return self.server.registry  # type: ignore[attr-defined,no-any-return]

    def _send_layer(self, kind: str, layer: bytes, digest: str, *, is_last: bool) -> None:
        if kind == "broken":
            layer = layer[:-100] + bytes(100)
        if kind not in ("slow", "hung") and not (kind == "halves" and is_last):
            self._send(200, layer, "application/octet-stream")
            return self._registry.given.append(digest)
        self._start(200, len(layer), "application/octet-stream")
        self.close_connection = True
        for start in range(0, len(layer) if kind == "slow" else 0, DRIP_BYTES):
            self.wfile.write(layer[start:start + DRIP_BYTES])
            if self._registry.end.wait(DRIP_SECONDS):
                return
        self._registry.end.wait()

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        login = {"WWW-Authenticate": 'Basic realm="test"'}
        self._send(status, body, "application/json", login if status == 401 else {})

    def _send(self, status: int, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self._start(status, len(body), kind, more)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _start(self, status: int, size: int, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(size), "Docker-Distribution-Api-Version": "registry/2.0"}
        for name, value in {**headers, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def handle(self) -> None:
        """An engine that hangs up, or that tries TLS first, is no error."""
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass
