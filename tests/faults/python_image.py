"""A Python inside a tiny image, for the nvidia-smi stand-in: the one that runs the tests, where it lies.

No registry has to be reached for it.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

# Of the standard library, what no program here imports: 40 of 60 MB.
_LEFT_OUT = {"test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "lib2to3", "pydoc_data",
             "__pycache__", "unittest", "distutils", "turtledemo"}


def with_python(root: bytes) -> bytes:
    """`root`: a tar of a root file system that has /bin/busybox. Adds /usr/bin/python3 and /usr/bin/env."""
    buffer = io.BytesIO(root)
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        for path in ("usr", "usr/bin", "usr/lib"):
            _folder(archive, path)
        _link(archive, "usr/bin/env", "/bin/busybox")
        python = os.path.realpath(sys.executable)
        for file in (python, *_libraries(python)):
            _add(archive, file)
        _add(archive, sysconfig.get_path("stdlib", vars={"base": sys.base_prefix}))
        if python != "/usr/bin/python3":
            _link(archive, "usr/bin/python3", python)
    return buffer.getvalue()


def _libraries(python: str) -> set[str]:
    modules = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
    listed = subprocess.run(["ldd", python, *modules], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", listed))


def _add(archive: tarfile.TarFile, path: str) -> None:
    """A file or a folder at its own place; the folders above open to everybody, which /root is not."""
    for parent in reversed(Path(path).parents[:-1]):
        _folder(archive, str(parent).lstrip("/"))
    real = os.path.realpath(path)
    archive.add(real, path.lstrip("/"), filter=_wanted)


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.intersection(Path(entry.name).parts[-1:]) else entry


def _folder(archive: tarfile.TarFile, name: str) -> None:
    if name in archive.getnames():
        return
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry)


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)
