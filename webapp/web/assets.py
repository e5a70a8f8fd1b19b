"""Files of static/: read once, named by their content, kept by browsers for a year.

A request is looked up in a table of what was there at the start: a path never reaches the file system.
"""

from __future__ import annotations

import gzip
import mimetypes
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from flask import Flask, Response, abort, request, url_for

YEAR_SECONDS = 365 * 24 * 3600
PACKED = {".css", ".js", ".svg", ".json"}   # fonts and pictures are packed already


@dataclass(frozen=True)
class Asset:
    content: bytes = field(repr=False)
    mimetype: str
    packs: bool

    @cached_property
    def version(self) -> str:
        return sha256(self.content).hexdigest()[:12]

    @cached_property
    def packed(self) -> bytes:
        """Tabler's stylesheet goes from 620 kB to 75 kB; packed at the first request that wants it."""
        return gzip.compress(self.content, mtime=0)


def install(app: Flask, folder: Path) -> None:
    assets = {str(path.relative_to(folder)): _read(path) for path in sorted(folder.rglob("*")) if path.is_file()}

    def address(name: str) -> str:
        return url_for("static", name=name, v=assets[name].version)

    def static(name: str) -> Response:
        return _answer(assets[name]) if name in assets else abort(404)

    app.add_url_rule("/static/<path:name>", "static", static)
    app.jinja_env.globals["asset"] = address


def _read(path: Path) -> Asset:
    kind = {".js": "text/javascript", ".woff2": "font/woff2"}.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    return Asset(path.read_bytes(), kind or "application/octet-stream", path.suffix in PACKED)


def _answer(asset: Asset) -> Response:
    packed = asset.packs and request.accept_encodings["gzip"] > 0
    response = Response(asset.packed if packed else asset.content, mimetype=asset.mimetype)
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    if asset.packs:
        response.vary.add("Accept-Encoding")
    if request.args.get("v") == asset.version:
        response.headers["Cache-Control"] = f"public, max-age={YEAR_SECONDS}, immutable"
    else:   # fonts are named in the stylesheet without a version
        response.headers["Cache-Control"] = "public, max-age=86400"
        response.set_etag(f"{asset.version}{'-gz' if packed else ''}")
        response.make_conditional(request)
    return response
