"""A backup as one file: a tar, compressed, that begins with a manifest of what is in it."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from webapp.errors import AppError, Conflict
from webapp.store.files import fsync_folder

FORMAT = "berth-backup"
VERSION = 1                         # of the format; a newer one is refused
MANIFEST = "manifest.json"
DATABASE, INSTANCE = "database", "instance"     # files in it, beside those with keys
MODE = 0o600                        # there may be keys in it, and the hashes of passwords always
MOST_MANIFEST = 1024 * 1024         # bytes
CHUNK = 1024 * 1024
LEVEL = 6                           # gzip; a dump of PostgreSQL is compressed already


class BackupUnreadable(AppError):
    code, status = "backup_unreadable", 422
    title = "%(file)s is no backup that can be used: %(why)s. Nothing was changed."


class BackupExists(Conflict):
    code, retry = "backup_exists", False
    title = "%(file)s is there already. Give another name, or --force to overwrite it."


class BackupUnderway(Conflict):
    code = "backup_underway"
    title = "Another backup is being written to %(file)s."


class BackupUnwritable(AppError):
    code, status = "backup_unwritable", 500
    title = "%(file)s cannot be written: %(why)s."


@dataclass(frozen=True, slots=True)
class Member:
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    berth: str                      # version of the package
    schema: str                     # revision of the tables
    made_at: datetime               # aware UTC
    instance: str
    database: str                   # "sqlite" or "postgresql"
    product: str                    # "PostgreSQL 15.18"
    with_keys: bool
    members: Mapping[str, Member]   # file name in the archive → what it must be


@contextmanager
def being_written(target: Path, *, force: bool) -> Iterator[Path]:
    """A folder beside `target`, of nobody else's, for what goes into it; gone after the block. What a run that was
    killed has left in it is cleared first.

    Raises:  BackupExists, BackupUnderway, BackupUnwritable.
    """
    if target.exists() and not force:
        raise BackupExists(file=target)
    folder = target.with_name(f".{target.name}.part")
    try:
        with _sole(folder, target):
            yield folder
    except OSError as error:
        raise BackupUnwritable(file=target, why=(error.strerror or str(error)).lower()) from error


@contextmanager
def _sole(folder: Path, target: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupUnderway(file=target) from None
        for left in folder.iterdir():
            left.unlink()
        try:
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def described(folder: Path, **facts: Any) -> Manifest:
    """The manifest of all files in `folder`."""
    members = {path.name: Member(*_digest(path)) for path in sorted(folder.iterdir())}
    return Manifest(members=members, **facts)


def write(target: Path, folder: Path, manifest: Manifest) -> None:
    """All files of `folder`; `target` is there whole or as it was before."""
    scratch = folder / "archive"
    document = {"format": FORMAT, "version": VERSION, **asdict(manifest), "made_at": manifest.made_at.isoformat()}
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as out:
        # Without a name and a time in the header: the same content is the same file.
        with gzip.GzipFile("", "wb", LEVEL, out, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            _add(archive, MANIFEST, io.BytesIO(json.dumps(document, indent=1).encode()))
            for name in manifest.members:
                with (folder / name).open("rb") as file:
                    _add(archive, name, file)
        out.flush()
        os.fsync(out.fileno())
    scratch.replace(target)
    fsync_folder(target.parent)


def read(source: Path) -> Manifest:
    """What a backup says of itself. Raises BackupUnreadable."""
    with _opened(source) as archive:
        first = archive.next()
        if first is None or first.name != MANIFEST or not first.isfile() or first.size > MOST_MANIFEST:
            raise BackupUnreadable(file=source, why="it does not begin with a manifest")
        file = archive.extractfile(first)
        document = json.loads(file.read()) if file else {}
    if document.get("format") != FORMAT:
        raise BackupUnreadable(file=source, why="its manifest is another program's")
    if document.get("version") != VERSION:
        raise BackupUnreadable(file=source, why=f"its format is {document.get('version')}, of a newer Berth")
    try:
        members = {name: Member(**member) for name, member in document.pop("members").items()}
        made_at = datetime.fromisoformat(document.pop("made_at"))
        if not {DATABASE, INSTANCE} <= members.keys() or made_at.tzinfo is None:
            raise ValueError("without these it is no backup")
        return Manifest(members=members, made_at=made_at, **{
            name: document[name] for name in ("berth", "schema", "instance", "database", "product", "with_keys")})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackupUnreadable(file=source, why="its manifest lacks something") from error


def unpack(source: Path, manifest: Manifest, folder: Path) -> None:
    """Every file of the manifest into `folder`, checked. Raises BackupUnreadable, OSError."""
    missing = dict(manifest.members)
    with _opened(source) as archive:
        for entry in archive:
            if entry.name not in missing or not entry.isfile():
                continue
            file = archive.extractfile(entry)
            path = folder / Path(entry.name).name
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as out:
                if file is not None:
                    shutil.copyfileobj(file, out, CHUNK)
                out.flush()
                os.fsync(out.fileno())
            if Member(*_digest(path)) != missing.pop(entry.name):
                raise BackupUnreadable(file=source, why=f"{entry.name} in it is damaged")
    if missing:
        raise BackupUnreadable(file=source, why=f"{', '.join(sorted(missing))} is missing from it")


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    """What gzip, tar and JSON find wrong, as BackupUnreadable."""
    try:
        with tarfile.open(source, "r:gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError) as error:
        raise BackupUnreadable(file=source, why=f"it is damaged or cut short ({error})") from error
    except FileNotFoundError as error:
        raise BackupUnreadable(file=source, why="there is no such file") from error


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    file.seek(0, os.SEEK_END)
    entry.size, entry.mode = file.tell(), MODE
    file.seek(0)
    archive.addfile(entry, file)


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
