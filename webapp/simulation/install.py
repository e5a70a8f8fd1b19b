"""Puts the stand-ins where the agent, a container or an engine finds them."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import tempfile
import zipfile
from pathlib import Path

from webapp.domain.container import FolderMount
from webapp.simulation import nvidia_smi, state, toolkit
from webapp.simulation.nvidia_smi.reading import CONTAINER_STATE, MOUNTED_CARDS

CONTAINER_PROGRAM = "/usr/bin/nvidia-smi"       # where the real toolkit puts the real one
STATE_NAME = Path(CONTAINER_STATE).name         # of the state file in its folder
STATE_FOLDER = "simulation"     # below Berth's state folder: containers of a demo see it, and must see no other file
HOST_FOLDER = "simulated-host"  # beside it: nvidia-smi as the agent runs it
PROGRAM_NAME = "nvidia-smi"
CDI_NAME = "nvidia.json"

_MAIN = "import sys\nfrom nvidia_smi.program import main\nsys.exit(main(sys.argv[1:]))\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)               # the least that a zip file can say: the same bytes on every day
_EXECUTABLE = 0o755


def state_file_in(state_dir: Path) -> Path:
    """The state file of the simulated host of one Berth, whether there is one or not."""
    return state_dir / STATE_FOLDER / STATE_NAME


def program_bytes() -> bytes:
    """nvidia-smi as one file: a zip archive that python3 runs, the same bytes for the same code."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as into:     # stored, not deflated: a Python without zlib reads it too
        into.writestr(zipfile.ZipInfo("__main__.py", _LONG_AGO), _MAIN)
        for source in sorted(Path(nvidia_smi.__file__).parent.glob("*.py")):
            into.writestr(zipfile.ZipInfo(f"nvidia_smi/{source.name}", _LONG_AGO), source.read_bytes())
    return b"#!/usr/bin/env python3\n" + archive.getvalue()


def install_program(folder: Path) -> Path:
    """`folder`/nvidia-smi, for a container: mount it, or copy it."""
    folder.mkdir(parents=True, exist_ok=True)
    return _place(folder / PROGRAM_NAME, program_bytes())


def install_host(folder: Path, state_file: Path) -> Path:
    """`folder`/nvidia-smi, for a host: it shows all cards of `state_file`. Put the folder first on PATH, or run it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(_EXECUTABLE)   # whatever the umask: the agent runs what lies in it, so nobody else may write there
    program = _place(folder / f".{PROGRAM_NAME}.pyz", program_bytes())
    return _place(folder / PROGRAM_NAME, _wrapper(program, "--simulated-state", state_file))


def install_toolkit(bin_folder: Path, state_file: Path, log_file: Path, *, python: str = sys.executable) -> Path:
    """`bin_folder`/nvidia-container-runtime-hook. A dockerd that has the folder on its PATH when it starts takes device
    requests for GPUs from then on.

    Args:  log_file: gets a line for each container; toolkit.handed_out reads them.   python: as that dockerd finds it.
    """
    bin_folder.mkdir(parents=True, exist_ok=True)
    program = _place(bin_folder / f".{PROGRAM_NAME}.pyz", program_bytes())
    return _place(bin_folder / toolkit.HOOK_NAME, _wrapper(
        Path(toolkit.__file__), "--state", state_file, "--log", log_file, "--program", program, python=python))


def install_cdi(folder: Path, state_file: Path, hook: Path) -> Path:
    """`folder`/CDI_NAME: an engine whose /etc/cdi it is knows the cards of `state_file` as nvidia.com/gpu=UUID.

    `hook`: of install_toolkit; it need not be on the engine's PATH. As with the real file, which `nvidia-ctk` writes, a
    container's environment says `void`, and each card brings its device file.
    """
    cards = state.read(state_file).cards
    named = {"all": [card.uuid for card in cards]}
    named |= {uuid: [uuid] for card in cards for uuid in (card.uuid, *(part.uuid for part in card.slices))}
    edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void", f"{MOUNTED_CARDS}=all"],    # all that the hook wrote into it
             "hooks": [{"hookName": "createRuntime", "path": str(hook), "args": [hook.name, "prestart"]}]}
    devices = [{"name": name, "containerEdits": {"deviceNodes": [_device(uuid) for uuid in uuids]}}
               for name, uuids in named.items()]
    content = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "containerEdits": edits, "devices": devices}
    return _place(folder / CDI_NAME, json.dumps(content, indent=1).encode())


def container_mounts(state_file: Path) -> tuple[FolderMount, FolderMount]:
    """What a container needs to see simulated cards on an engine that has no toolkit: read-only, and live.

    The cards are those of its BERTH_SIMULATED_GPUS. `state_file` is called STATE_NAME, in a folder that holds nothing
    else; the program is put beside it.
    """
    program = install_program(state_file.parent)
    return (FolderMount(str(state_file.parent), str(Path(CONTAINER_STATE).parent), read_only=True),
            FolderMount(str(program), CONTAINER_PROGRAM, read_only=True))


def _device(uuid: str) -> dict[str, str]:
    return {"path": f"{toolkit.DEVICES}{uuid}", "hostPath": os.devnull}


def _wrapper(program: Path, *arguments: str | Path, python: str = sys.executable) -> bytes:
    """-I -S: neither the environment of whoever runs it nor installed packages change what it does."""
    words = [python, "-I", "-S", str(program.resolve()), *(str(word) for word in arguments)]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'.encode()


def _place(path: Path, content: bytes) -> Path:
    """Left alone when it is there with that content: a file that runs, or is mounted, keeps its inode."""
    if path.is_file() and path.read_bytes() == content:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as new:
        new.write(content)
    os.chmod(new.name, _EXECUTABLE)
    os.replace(new.name, path)
    return path
