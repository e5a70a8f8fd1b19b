#!/usr/bin/env python3
"""Make the workspace image, once: its tag is a hash of what goes in.

    python images/build.py [--base REFERENCE] [--slim] [--engine URL]

The last line printed is the image's reference. Without --base the image builds on the default in
workspace/Dockerfile; where no registry answers, on a Debian base made here by debootstrap (as root).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests

HERE = Path(__file__).resolve().parent
WORKSPACE = HERE / "workspace"
BASE = HERE / "base"
SUITE = "bookworm"
REPOSITORY = "berth/workspace"
BUILD_SECONDS = 3600  # of silence from the engine; the base image has gigabytes
PROGRESS_SECONDS = 5.0
CA_FILE = "host-ca.crt"  # the Dockerfile's name for it

Progress = Callable[[str], None]


class ImageBuildFailed(RuntimeError):
    """The workspace image could not be made; the last lines of the build say why."""


def ensure_workspace_image(
    engine_url: str | None, base: str | None = None, *, jupyter: bool = True, progress: Progress = print
) -> str:
    """The reference of the workspace image, which is built first if the engine lacks it.

    Args:    engine_url: as in DOCKER_HOST; None = from the environment.
             base: None = the Dockerfile's default, or the local base where no registry answers.
    Raises:  ImageBuildFailed.
    """
    with closing(_connect(engine_url)) as client:
        candidates = [base] if base else [default_base(), local_base_reference()]
        for candidate in candidates:
            reference = workspace_reference(candidate, jupyter=jupyter)
            if _present(client, reference):
                return reference
        chosen = _obtain_base(client, base, progress)
        reference = workspace_reference(chosen, jupyter=jupyter)
        if not _present(client, reference):
            _build_workspace(client, reference, chosen, jupyter, progress)
        return reference


def default_base() -> str:
    """What `ARG BASE=` in the Dockerfile names."""
    found = re.search(r"^ARG BASE=(\S+)$", (WORKSPACE / "Dockerfile").read_text(), re.MULTILINE)
    if found is None:
        raise ImageBuildFailed("workspace/Dockerfile has no line ARG BASE=…")
    return found[1]


def local_base_reference() -> str:
    return f"berth-base:{SUITE}-{_content_hash(BASE)}"


def workspace_reference(base: str, *, jupyter: bool) -> str:
    """berth/workspace:<name of the base>[-slim]-<hash of files, base and variant>."""
    name = SUITE if base == local_base_reference() else re.sub(r"[^\w.]+", "-", base.rsplit("/", 1)[-1])
    variant = "" if jupyter else "-slim"
    return f"{REPOSITORY}:{name[:80]}{variant}-{_content_hash(WORKSPACE, base, variant)}"


def _content_hash(folder: Path, *words: str) -> str:
    """12 hex digits over the names, modes and bytes of the files in `folder`, and `words`."""
    digest = hashlib.sha256("\0".join(words).encode())
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"\0{path.relative_to(folder)}\0{path.stat().st_mode & 0o111:o}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _connect(engine_url: str | None) -> docker.DockerClient:
    if engine_url is None:
        return docker.from_env(timeout=BUILD_SECONDS)
    return docker.DockerClient(base_url=engine_url, timeout=BUILD_SECONDS)


def _present(client: docker.DockerClient, reference: str) -> bool:
    try:
        client.images.get(reference)
    except docker.errors.ImageNotFound:
        return False
    return True


# -- the base


def _obtain_base(client: docker.DockerClient, wanted: str | None, progress: Progress) -> str:
    base = wanted or default_base()
    if _present(client, base):
        return base
    try:
        _pull(client, base, progress)
    except ImageBuildFailed as error:
        if wanted:
            raise
        progress(f"{error}; taking a Debian base made here instead")
        return _ensure_local_base(client, progress)
    return base


def _pull(client: docker.DockerClient, reference: str, progress: Progress) -> None:
    progress(f"pulling {reference}")
    repository, _, tag = reference.partition("@") if "@" in reference else reference.rpartition(":")
    if "/" in tag or not repository:  # a registry's port, or no tag at all
        repository, tag = reference, "latest"
    sizes: dict[str, tuple[int, int]] = {}
    last = time.monotonic()
    try:
        for event in client.api.pull(repository, tag=tag, stream=True, decode=True):
            if "error" in event:
                raise ImageBuildFailed(f"cannot pull {reference}: {event['error']}")
            detail = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and detail.get("total"):
                sizes[event["id"]] = (detail["current"], detail["total"])
            if sizes and time.monotonic() - last > PROGRESS_SECONDS:
                last = time.monotonic()
                done, total = (sum(size[i] for size in sizes.values()) / 1e9 for i in (0, 1))
                progress(f"pulling {reference}: {done:.1f} of {total:.1f} GB")
    except (docker.errors.APIError, requests.RequestException) as error:
        raise ImageBuildFailed(f"cannot pull {reference}: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error)


def _ensure_local_base(client: docker.DockerClient, progress: Progress) -> str:
    reference = local_base_reference()
    if _present(client, reference):
        return reference
    imported = f"berth-base:{SUITE}-root"
    with tempfile.TemporaryDirectory(prefix="berth-base-") as scratch:
        root = Path(scratch, "root")
        _debootstrap(root, progress)
        progress("importing the root file system")
        _import(client, root, imported)
    _run_build(client, _tar(BASE), reference, {"IMPORTED": imported}, progress)
    client.api.remove_image(imported, noprune=True)
    return reference


def _debootstrap(root: Path, progress: Progress) -> None:
    packages = [line for line in (BASE / "packages").read_text().split("\n") if line and line[0] != "#"]
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", SUITE, str(root)]
    progress(f"debootstrap {SUITE} with {len(packages)} packages (a minute)")
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ImageBuildFailed("no registry answers, and debootstrap is not installed") from error
    except subprocess.CalledProcessError as error:
        raise ImageBuildFailed(_tail(error.stdout.splitlines() + error.stderr.splitlines())) from error
    for archive in (root / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()


def _import(client: docker.DockerClient, root: Path, reference: str) -> None:
    command = ["tar", "--create", "--numeric-owner", "--directory", str(root), "."]
    repository, tag = reference.split(":")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
        client.api.import_image_from_stream(tar.stdout, repository=repository, tag=tag, changes=['CMD ["/bin/bash"]'])
    if tar.returncode:
        raise ImageBuildFailed(f"tar ended with {tar.returncode}")


# -- builds


def _build_workspace(client: docker.DockerClient, reference: str, base: str, jupyter: bool, progress: Progress) -> None:
    arguments = {"BASE": base, "JUPYTER": "1" if jupyter else "0", "HASH": reference.rsplit("-", 1)[-1]}
    _run_build(client, _tar(WORKSPACE, _host_ca()), reference, arguments, progress)


def _host_ca() -> dict[str, bytes]:
    """What this machine trusts, for the image: behind a proxy of its own that is more than Debian's."""
    path = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    return {CA_FILE: path.read_bytes()} if path.is_file() else {}


def _tar(folder: Path, extra: dict[str, bytes] | None = None) -> io.BytesIO:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(folder, arcname=".", filter=_as_root)
        for name, content in (extra or {}).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    context.seek(0)
    return context


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same bytes on every machine: Docker's build cache looks at owner and mode."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _run_build(
    client: docker.DockerClient, context: io.BytesIO, reference: str, arguments: dict[str, str], progress: Progress
) -> None:
    """The classic builder by its API: no docker command, no BuildKit needed, the same from 20.10 to 29."""
    progress(f"building {reference}")
    lines: list[str] = []
    try:
        events: Iterable[dict[str, Any]] = client.api.build(
            fileobj=context,
            custom_context=True,
            tag=reference,
            buildargs=arguments,
            network_mode="host",  # where only the machine's own network gets out
            rm=True,
            forcerm=True,
            decode=True,
        )
        for event in events:
            if "error" in event:
                raise ImageBuildFailed(f"{reference}: {event['error']}\n{_tail(lines)}")
            for line in filter(None, map(str.strip, str(event.get("stream", "")).splitlines())):
                lines.append(line)
                if line.startswith("Step "):
                    progress(line[:100])
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ImageBuildFailed(f"{reference}: {_sentence(error)}\n{_tail(lines)}") from error


def _tail(lines: list[str]) -> str:
    return "\n".join(lines[-30:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="build on this image instead of the default")
    parser.add_argument("--slim", action="store_true", help="without JupyterLab")
    parser.add_argument("--engine", help="address of the Docker Engine (default: DOCKER_HOST)")
    arguments = parser.parse_args()
    try:
        reference = ensure_workspace_image(
            arguments.engine,
            arguments.base,
            jupyter=not arguments.slim,
            progress=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except (ImageBuildFailed, docker.errors.DockerException) as error:
        print(error, file=sys.stderr)
        return 1
    print(reference)
    return 0


if __name__ == "__main__":
    sys.exit(main())
