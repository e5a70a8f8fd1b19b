"""A tiny image for a real engine. No registry is needed: it is made of one static program."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import parts
import pytest

pytest.register_assert_rewrite(
    "contract", "contract_changes", "contract_endings", "contract_gpus", "contract_images", "contract_lab")

# What a test tells it by files under /tmp: end with a code, use up all memory, print something.
WORK = b"""#!/bin/sh
trap 'exit 143' TERM
echo ready
while :; do
  if [ -f /tmp/exit ]; then exit "$(cat /tmp/exit)"; fi
  if [ -f /tmp/oom ]; then exec tail -c 500m /dev/zero; fi
  if [ -f /tmp/oom-child ]; then rm -f /tmp/oom-child; tail -c 500m /dev/zero; fi
  if [ -f /tmp/say ]; then cat /tmp/say; rm -f /tmp/say; fi
  sleep 0.05
done
"""
PROGRAMS = ("sh", "cat", "rm", "sleep", "tail", "ls", "id", "env", "nc", "ln", "dd", "nslookup", "yes")
CHANGES = ['CMD ["/bin/work"]', "ENV NVIDIA_VISIBLE_DEVICES=all", "ENV FROM_IMAGE=yes", "ENV PATH=/bin"]

_VERSION = hashlib.sha256(repr((WORK, PROGRAMS, CHANGES)).encode()).hexdigest()[:12]
TINY = f"berth-test/tiny:{_VERSION}"
TINY_WITH_VOLUME = f"berth-test/tiny-with-volume:{_VERSION}"


@pytest.fixture
def spec(lab: Any) -> Any:
    """Builds specs for the contract's lab, on a network that is there."""
    from contract_lab import Spec  # not above: pytest has to see it first, to show what its assertions compared

    lab.engine.prepare()
    return Spec(lab)


@pytest.fixture(scope="session")
def docker_api(engine_url: str) -> Iterator[docker.APIClient]:
    """The engine without Berth between: what somebody does by hand."""
    client = docker.APIClient(base_url=engine_url, version="auto")
    yield client
    client.close()


@pytest.fixture(scope="session")
def tiny_image(docker_api: docker.APIClient) -> str:
    """TINY, and TINY_WITH_VOLUME beside it; made once."""
    with parts.locked("tiny-image"):
        for reference, more in ((TINY, []), (TINY_WITH_VOLUME, ["VOLUME /data"])):
            if not docker_api.images(reference):
                repository, _, tag = reference.partition(":")
                root = _root_file_system(_busybox())
                docker_api.import_image_from_data(root, repository=repository, tag=tag, changes=[*CHANGES, *more])
    return TINY


def _busybox() -> bytes:
    path = shutil.which("busybox")
    if path is None or subprocess.run(["ldd", path], capture_output=True).returncode == 0:     # 0: it is not static
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "busybox-static"], check=True)
        path = shutil.which("busybox")
    assert path is not None
    return Path(path).read_bytes()


def _root_file_system(busybox: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("home", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        files = {
            "bin/busybox": busybox,
            "bin/work": WORK,
            "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
            "only-in-image": b"here",
        }
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for program in PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{program}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
    return buffer.getvalue()
