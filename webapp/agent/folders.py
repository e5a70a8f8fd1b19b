"""Whether a folder of the host may be mounted now. Docker follows symlinks at every start: asked every time."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from webapp.domain.mounts import parse_host_folder
from webapp.errors import InvalidInput, fill

Look = Callable[[str, Sequence[Path]], str | None]

DEADLINE_SECONDS = 10.0         # a network file system that hangs answers no call at all, not even with an error


class _Question:
    """One look at a folder. While it hangs, others who ask for the same folder wait for it too."""

    def __init__(self, look: Look, folder: str, roots: Sequence[Path]) -> None:
        self.answer: str | None = f"{folder} does not answer"
        self._look, self._folder, self._roots = look, folder, roots
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        self.answer = self._look(self._folder, self._roots)


_asking = threading.Lock()
_asked: dict[str, _Question] = {}               # by folder


def refusal_in_time(
    folder: str, roots: Sequence[Path], *, seconds: float = DEADLINE_SECONDS, look: Look | None = None
) -> str | None:
    """`refusal`, or that the folder does not answer. At most one thread hangs on each folder."""
    with _asking:
        question = _asked.get(folder)
        if question is None or not question.thread.is_alive():
            question = _asked[folder] = _Question(look or refusal, folder, roots)
    question.thread.join(seconds)
    return question.answer


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
