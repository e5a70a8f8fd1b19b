"""A registry on loopback that serves one image, well or badly: what it does depends on the repository's name.

    whole    all of it                        private  401, asks for a login
    missing  404                              broken   a layer that is not what its digest says
    slow     a layer at a few KB/s            hung     a layer of which nothing comes
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
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
LABELS = {"berth.image.contract": "1", "berth.image.jupyter": "0"}


@dataclass(frozen=True)
class Served:
    """An image: its layer, its settings, and the manifest that names both."""

    layer: bytes
    config: bytes
    manifest: bytes


@dataclass
class Registry:
    address: str
    end: threading.Event = field(default_factory=threading.Event)
    asked: set[str] = field(default_factory=set)        # repositories of which a layer was asked for

    def reference(self, repository: str) -> str:
        return f"{self.address}/{repository}:1"

    def image(self, repository: str) -> Served:
        """The name is in the layer: an engine would not ask for one that it has from another repository."""
        return _image(self.reference(repository))


@contextlib.contextmanager
def registry() -> Iterator[Registry]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.registry = Registry(f"127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
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
def _image(mark: str) -> Served:
    root = standin.root_file_system(mark)
    layer = gzip.compress(root, compresslevel=1, mtime=0)
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/workspace"], "Labels": LABELS},
        "rootfs": {"type": "layers", "diff_ids": [_digest(root)]},
    }).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "size": len(config), "digest": _digest(config)},
        "layers": [{"mediaType": LAYER, "size": len(layer), "digest": _digest(layer)}],
    }).encode()
    return Served(layer, config, manifest)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """/v2/, /v2/NAME/manifests/TAG, /v2/NAME/blobs/DIGEST"""
        _, _, repository, what, which = (*self.path.split("/", 4), "", "", "")[:5]
        if not what:
            self._send(200, b"{}", "application/json")
        elif repository == "missing":
            self._refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")
        elif repository == "private":
            self._refuse(401, "UNAUTHORIZED", "authentication required")
        elif what == "manifests":
            self._send(200, self._registry.image(repository).manifest, MANIFEST)
        elif which == _digest(self._registry.image(repository).config):
            self._send(200, self._registry.image(repository).config, "application/octet-stream")
        else:
            self._registry.asked.add(repository)
            self._send_layer(repository)

    do_HEAD = do_GET

    @property
    def _registry(self) -> Registry:
        return self.server.registry  # type: ignore[attr-defined,no-any-return]

    def _send_layer(self, repository: str) -> None:
        layer = self._registry.image(repository).layer
        if repository == "broken":
            layer = layer[:-100] + bytes(100)
        if repository not in ("slow", "hung"):
            return self._send(200, layer, "application/octet-stream")
        self._start(200, len(layer), "application/octet-stream")
        self.close_connection = True
        for start in range(0, len(layer) if repository == "slow" else 0, DRIP_BYTES):
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
