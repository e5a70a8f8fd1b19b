"""Files that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path


def fsync_folder(folder: Path) -> None:
    """After a rename: the name itself is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unused(path: Path) -> Path:
    """`path`, or where that is taken already the same with a number."""
    names = (path if number == 1 else path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def as_owner_of(like: Path, path: Path) -> None:
    """`path` belongs to whom `like` belongs, with the same rights; who is not root keeps what is theirs."""
    found = like.stat()
    with suppress(PermissionError):
        os.chown(path, found.st_uid, found.st_gid)
    path.chmod(found.st_mode & 0o777)
