"""Where folders may come from and where they may appear: rules about paths as text.

Text is the first half of the defence. Docker follows symlinks at every start, so whoever starts a container also checks
on the host that no parent can be written by others and that the real path is still the approved one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from webapp.domain.names import excerpt
from webapp.errors import N_, FieldProblem, InvalidInput

MOST_CONTAINER_PATH = 255  # bytes in UTF-8
MOST_HOST_PATH = 1024  # bytes in UTF-8

_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin"),
    *("/sys", "/usr", "/var/run"),
)
# What an image, its sshd or Berth needs in place. Nothing is mounted on, below or above one of these.
_CONTAINER_RESERVED = (
    *_SYSTEM,
    "/opt/berth",
    "/tmp",  # noqa: S108 - a name that is refused, no file that is opened
)
# What gives a container the host. Refused even where a root was set too wide.
_HOST_DENIED = (*_SYSTEM, "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet")


def parse_container_path(text: str, field: str = "container_path") -> str:
    """An absolute, normalised path inside a workspace where a volume may appear; at most 255 bytes.

    Refused: system folders, `/tmp`, what lies below or would hide them; a home (`/home/NAME`; below it is fine);
    and `:`, at which the short form of a bind is cut (docker-py#2041).
    """
    path = _normal_path(text, field, MOST_CONTAINER_PATH)
    if ":" in path:
        raise InvalidInput.of(
            field, N_("“%(given)s” has a colon, at which Docker cuts paths. Leave it out."), given=excerpt(path)
        )
    other = next((known for known in _CONTAINER_RESERVED if _touch(path, known)), None)
    if other:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” would hide %(other)s, which the workspace needs. Choose a path such as /data/images."),
            given=excerpt(path),
            other=other,
        )
    if path == "/home" or (path.startswith("/home/") and path.count("/") == 2):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is kept for home folders. Choose a path such as /data/images."),
            given=excerpt(path),
        )
    return path


def team_volume_path(name: str) -> str:
    """Where a team's volume appears unless someone chose another path. `name`: checked already."""
    return f"/data/{name}"


def parse_host_folder(text: str, roots: Collection[str], field: str = "host_folder") -> str:
    """An absolute, normalised path strictly below one of `roots` (absolute, set by the administrator); ≤ 1,024 bytes.

    A root that is not absolute allows nothing. System folders, what lies below them and what holds them are refused
    under every root.
    """
    path = _normal_path(text, field, MOST_HOST_PATH)
    other = next((denied for denied in _HOST_DENIED if _touch(path, denied)), None)
    if other:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” would open %(other)s of the host to a workspace. Choose a folder made for data."),
            given=excerpt(path),
            other=other,
        )
    if any(root.startswith("/") and _is_below(path, root.rstrip("/")) for root in roots):
        return path
    if not roots:
        raise InvalidInput.of(
            field, N_("No folder of a host may be used. Use a volume, or ask an administrator to allow a folder.")
        )
    raise InvalidInput.of(
        field,
        N_("“%(given)s” is not inside a folder that may be used. Choose one inside: %(roots)s"),
        given=excerpt(path),
        roots=", ".join(sorted(roots)),
    )


def refuse_nesting(existing: Mapping[str, str], new_path: str, field: str) -> None:
    """Make sure that `new_path` is not one of the existing paths, nor inside or around one.

    For folders of hosts (two volumes would own the same files) and for places in a workspace (one hides the other).

    Args:    existing: what people call it → its normalised path.   new_path: normalised.
    Raises:  InvalidInput: one problem for each path in the way, naming it.
    """
    problems = [problem for name, path in existing.items() for problem in _overlap(name, path, new_path, field)]
    if problems:
        raise InvalidInput(*problems)


def _overlap(name: str, path: str, new_path: str, field: str) -> tuple[FieldProblem, ...]:
    facts = {"given": excerpt(new_path), "other": excerpt(name), "path": excerpt(path)}
    if new_path == path:
        return (FieldProblem(field, N_("“%(given)s” is used by %(other)s already. Choose another path."), facts),)
    if _is_below(new_path, path):
        message = N_("“%(given)s” is inside %(path)s, which %(other)s uses. Choose a path beside it.")
        return (FieldProblem(field, message, facts),)
    if _is_below(path, new_path):
        message = N_("“%(given)s” holds %(path)s, which %(other)s uses. Choose a path beside it.")
        return (FieldProblem(field, message, facts),)
    return ()


def _normal_path(text: str, field: str, most_bytes: int) -> str:
    if not text.startswith("/"):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is not a whole path. Begin it with /, for example /data/images."),
            given=excerpt(text),
        )
    if not text.isprintable() or text != text.strip():
        raise InvalidInput.of(
            field,
            N_("“%(given)s” holds an invisible character or ends in a space. Type the path instead of pasting it."),
            given=excerpt(text),
        )
    if len(text.encode()) > most_bytes:
        raise InvalidInput.of(
            field, N_("The path is longer than %(most)d bytes. Choose a shorter one."), most=most_bytes
        )
    parts = text.split("/")[1:]
    if ".." in parts:
        raise InvalidInput.of(field, N_("“%(given)s” goes up by “..”. Write the path without it."), given=excerpt(text))
    normal = "/" + "/".join(part for part in parts if part not in ("", "."))
    if normal == "/":
        raise InvalidInput.of(field, N_("The root folder cannot be used. Choose a folder in it, such as /data/images."))
    if normal != text:
        raise InvalidInput.of(
            field, N_("“%(given)s” is not in its shortest form. Write %(normal)s."), given=excerpt(text), normal=normal
        )
    return text


def _touch(path: str, other: str) -> bool:
    """Whether one of the two is the other, or lies inside it."""
    return path == other or _is_below(path, other) or _is_below(other, path)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/") and path != folder
