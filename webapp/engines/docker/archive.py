"""Tar archives, as PUT and GET /containers/NAME/archive take and give them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence

from webapp.domain.container import File

TAR_OVERHEAD = 64 * 1024    # bytes around one file: headers (pax ones too) and padding


def packed(files: Sequence[File], *, mtime: float) -> bytes:
    """One archive with root `/`. An entry for a folder that exists sets its owner and mode."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            archive.addfile(_entry(file, mtime), io.BytesIO(file.content or b""))
    return buffer.getvalue()


def _entry(file: File, mtime: float) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(file.path.lstrip("/"))
    entry.type = tarfile.DIRTYPE if file.content is None else tarfile.REGTYPE
    entry.size = len(file.content or b"")
    entry.mode, entry.uid, entry.gid, entry.mtime = file.mode, file.uid, file.gid, int(mtime)
    return entry


def only_file(archive: bytes) -> bytes | None:
    """Content of the first entry; None when that is no regular file."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        first = opened.next()
        content = opened.extractfile(first) if first is not None and first.isfile() else None
        return content.read() if content is not None else None


def gathered(chunks: Iterable[bytes], most_bytes: int) -> bytes | None:
    """The whole stream; None when it is longer than `most_bytes`."""
    taken = bytearray()
    for chunk in chunks:
        taken += chunk
        if len(taken) > most_bytes:
            return None
    return bytes(taken)
