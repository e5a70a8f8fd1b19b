"""A stand-in for the workspace image, of one static program and two scripts: it greets like SSH and starts in 0.3 s.

Signals tell its process 1 what to do, sent by a program inside: then the engine has no part in it.

    USR1  uses all memory itself          HUP  lets a child use all memory          USR2  ends with code 3
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import docker

from faults.python_image import with_python

_PROGRAMS = ("cat", "dd", "echo", "env", "id", "kill", "ls", "mkdir", "nc", "rm", "sh", "sleep", "tail", "touch")
_SCRIPTS = {
    "workspace": """#!/bin/sh
trap 'exit 0' TERM
trap 'exec tail -c 2000m /dev/zero' USR1
trap 'tail -c 2000m /dev/zero &' HUP
trap 'echo "the stand-in was told to end"; exit 3' USR2
nc -ll -p 2222 -e /bin/greet &
echo 'the stand-in greets'
while :; do wait; done
""",
    # What is sent comes back: a connection that can be watched.
    "greet": """#!/bin/sh
echo 'SSH-2.0-standin'
exec cat
""",
    "ends-at-once": """#!/bin/sh
echo 'no such file: /opt/model'
exit 7
""",
}

REPOSITORY = "berth-test/standin"
_VERSION = hashlib.sha256(repr((_PROGRAMS, _SCRIPTS)).encode()).hexdigest()[:8]
WORKSPACE = f"{REPOSITORY}:{_VERSION}"
ENDS_AT_ONCE = f"{WORKSPACE}-ends-at-once"      # says why in its log
NO_WORKSPACE = f"{WORKSPACE}-no-workspace"      # lacks the label of the contract
WITH_VOLUME = f"{WORKSPACE}-with-volume"
WITH_PYTHON = f"{WORKSPACE}-with-python"        # nvidia-smi is a Python program there

_LABELS = ("LABEL berth.image.contract=1", "LABEL berth.image.jupyter=0")
_VARIANTS: dict[str, Sequence[str]] = {
    WORKSPACE: ('CMD ["/bin/workspace"]', *_LABELS),
    ENDS_AT_ONCE: ('CMD ["/bin/ends-at-once"]', *_LABELS),
    NO_WORKSPACE: ('CMD ["/bin/workspace"]',),
    WITH_VOLUME: ('CMD ["/bin/workspace"]', *_LABELS, "VOLUME /data"),
}


def make_images(client: docker.DockerClient) -> None:
    """All variants, where they are not there yet: one layer, a name each."""
    there = {tag for row in client.api.images(name=REPOSITORY) for tag in row.get("RepoTags") or ()}
    if there.issuperset(_VARIANTS):
        return
    root = root_file_system()
    for reference, changes in _VARIANTS.items():
        _import(client, root, reference, changes)


def make_image_with_python(client: docker.DockerClient) -> None:
    """WITH_PYTHON, which asks for all cards, as images of NVIDIA do."""
    changes = (*_VARIANTS[WORKSPACE], "ENV NVIDIA_VISIBLE_DEVICES=all", "ENV PATH=/usr/bin:/bin")
    _import(client, with_python(root_file_system()), WITH_PYTHON, changes)


def _import(client: docker.DockerClient, root: bytes, reference: str, changes: Sequence[str]) -> None:
    repository, _, tag = reference.rpartition(":")
    client.api.import_image_from_data(root, repository=repository, tag=tag, changes=list(changes))


def root_file_system(mark: str = "") -> bytes:
    """Same bytes each time, so an engine keeps one layer; another one for another `mark`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("home", 0o755), ("opt", 0o777), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        files = {"bin/busybox": _busybox(), "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
                 "etc/group": b"root:x:0:\n", "etc/mark": mark.encode(),
                 **{f"bin/{name}": text.encode() for name, text in _SCRIPTS.items()}}
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for program in _PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{program}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
    return buffer.getvalue()


def _busybox() -> bytes:
    """Debian's busybox-static. One that needs libraries would not run in an image without any."""
    path = shutil.which("busybox")
    if path is None or subprocess.run(["ldd", path], capture_output=True).returncode == 0:
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", "busybox-static"], check=True,
                       capture_output=True)
        path = shutil.which("busybox")
    assert path is not None
    return Path(path).read_bytes()
