"""Whether a folder of the host may be mounted now. Docker follows symlinks at every start: asked every time."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from webapp.domain.mounts import parse_host_folder
from webapp.errors import InvalidInput, fill


def refusal(folder: str, roots: Sequence[Path]) -> str | None:
    """Why `folder` may not be mounted; None = it may.

    As text it must still pass the rules for such paths and lie below one of `roots`. On the host, everything down to
    its parent must be root's own and writable by nobody else: then no member can swap a part of the path for a symlink
    between this check and the mount.
    """
    try:
        path = Path(parse_host_folder(folder, [str(root) for root in roots]))
    except InvalidInput as error:
        return "; ".join(fill(problem.message, problem.facts) for problem in error.problems)
    root = next(root for root in roots if root in path.parents)
    for part in reversed([path, *path.parents]):
        trouble = _no_folder(part)
        if trouble is None and part != path:
            trouble = _unsafe_parent(part, may_be_sticky=part in root.parents)
        if trouble is not None:
            return trouble
    return None


def _no_folder(part: Path) -> str | None:
    try:
        mode = part.lstat().st_mode
    except OSError:
        return f"{part} does not exist"
    return None if stat.S_ISDIR(mode) else f"{part} is no folder (a symlink is none)"


def _unsafe_parent(part: Path, *, may_be_sticky: bool) -> str | None:
    """In a sticky folder (/tmp) nobody can rename what is root's; good enough above a root, not below it."""
    status = part.lstat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if others_write and may_be_sticky and status.st_mode & stat.S_ISVTX:
        others_write = 0
    return f"{part} is not root's own, or others may write in it" if status.st_uid != 0 or others_write else None
