"""What workspace images are made of: the files of `images/`, the names that follow from them, and contexts for a build.

One home for it: the agent, `berth image prepare` and `images/build.py` build the same image from here. Its tag is a
hash of what goes in, so an image that is there is the right one.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from webapp.domain.images import WORKSPACE_REPOSITORY
from webapp.errors import N_, AppError

PACKAGE = Path(__file__).resolve().parent.parent
SUITE = "bookworm"
LOCAL_BASE = f"berth-base:{SUITE}"      # as the catalogue has it: its hash changes with the recipe
CA_FILE = "host-ca.crt"                 # the Dockerfile's name for it


class NoRecipe(AppError):
    """Installed without its data: the files that the image is made of are not there."""

    code, status = "no_image_recipe", 500
    title = N_("This installation lacks the files of the workspace image (%(folder)s). Install Berth anew, "
               "or add a ready image: berth image add.")


def default_base() -> str:
    """What `ARG BASE=` in the Dockerfile names. Raises NoRecipe."""
    text = (_folder("workspace") / "Dockerfile").read_text("utf-8")
    found = re.search(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    return found[1] if found else ""


def local_base_reference() -> str:
    """Of the base that is made on a machine where no registry answers."""
    return f"{LOCAL_BASE}-{_content_hash(_folder('base'))}"


def workspace_reference(base: str, *, jupyter: bool) -> str:
    """berth/workspace:<name of the base>[-slim]-<hash of files, base and variant>."""
    name = SUITE if base == local_base_reference() else re.sub(r"[^\w.]+", "-", base.rsplit("/", 1)[-1])
    variant = "" if jupyter else "-slim"
    return f"{WORKSPACE_REPOSITORY}:{name[:80]}{variant}-{_content_hash(_folder('workspace'), base, variant)}"


def workspace_context() -> bytes:
    return _packed(_folder("workspace"), _host_ca())


def workspace_arguments(reference: str, base: str, *, jupyter: bool) -> Mapping[str, str]:
    return {"BASE": base, "JUPYTER": "1" if jupyter else "0", "HASH": reference.rsplit("-", 1)[-1]}


def base_context() -> bytes:
    return _packed(_folder("base"))


def base_packages() -> list[str]:
    """Of Debian, in the local base."""
    lines = (_folder("base") / "packages").read_text("utf-8").split("\n")
    return [line for line in lines if line and line[0] != "#"]


def dockerfile_context(text: str) -> bytes:
    """A Dockerfile and no files."""
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            _add(archive, "Dockerfile", text.encode())
        return buffer.getvalue()


def _folder(name: str) -> Path:
    """In a wheel it lies in the package, in a checkout beside it."""
    inside = PACKAGE / "images" / name
    folder = inside if inside.is_dir() else PACKAGE.parent / "images" / name
    if not (folder / "Dockerfile").is_file():
        raise NoRecipe(folder=str(folder))
    return folder


def _content_hash(folder: Path, *words: str) -> str:
    """12 hex digits over the names, modes and bytes of the files in `folder`, and `words`."""
    digest = hashlib.sha256("\0".join(words).encode())
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"\0{path.relative_to(folder)}\0{path.stat().st_mode & 0o111:o}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _packed(folder: Path, extra: Mapping[str, bytes] | None = None) -> bytes:
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(folder, arcname=".", filter=_as_root)
            for name, content in (extra or {}).items():
                _add(archive, name, content)
        return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same bytes on every machine: Docker's build cache looks at owner and mode."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _host_ca() -> dict[str, bytes]:
    """What this machine trusts, for the image: behind a proxy of its own that is more than Debian's."""
    path = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    return {CA_FILE: path.read_bytes()} if path.is_file() else {}
