"""A base for workspace images where no registry answers: Debian, made on this machine by debootstrap (as root)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from webapp.domain.images import BuildOutput
from webapp.engines import Engine, recipe
from webapp.engines.docker.connection import Connection
from webapp.errors import N_, AppError

IMPORT_SECONDS = 600.0

Progress = Callable[[str], None]


class NoLocalBase(AppError):
    """The base could not be made here either."""

    code, status = "no_local_base", 502
    title = N_("A base could not be made on this server: %(why)s")


def ensure_local_base(engine: Engine, url: str, progress: Progress) -> str:
    """Its reference; made first where the engine lacks it, which takes a minute.

    Args:    url: of that engine, which must see this machine's files.
    Raises:  NoLocalBase, EngineError.
    """
    reference = recipe.local_base_reference()
    if engine.image(reference) is not None:
        return reference
    imported = f"{recipe.LOCAL_BASE}-root"
    with tempfile.TemporaryDirectory(prefix="berth-base-") as scratch:
        root = Path(scratch, "root")
        _debootstrap(root, progress)
        progress("importing the root file system")
        _import(url, root, imported)

    def tell(output: BuildOutput) -> None:
        if output.text.startswith("Step "):
            progress(output.text.strip()[:100])

    engine.build(recipe.base_context(), reference, arguments={"IMPORTED": imported}, tell=tell)
    with Connection(url, "this server").api() as api:
        api.remove_image(imported, noprune=True)
    return reference


def _debootstrap(root: Path, progress: Progress) -> None:
    packages = recipe.base_packages()
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", recipe.SUITE, str(root)]
    progress(f"debootstrap {recipe.SUITE} with {len(packages)} packages (a minute)")
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoLocalBase(why="debootstrap is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NoLocalBase(why="\n".join([*error.stdout.splitlines(), *error.stderr.splitlines()][-30:])) from error
    for archive in (root / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()


def _import(url: str, root: Path, reference: str) -> None:
    command = ["tar", "--create", "--numeric-owner", "--directory", str(root), "."]
    repository, tag = reference.split(":")
    with Connection(url, "this server").api(IMPORT_SECONDS) as api, \
            subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
        api.import_image_from_stream(tar.stdout, repository=repository, tag=tag, changes=['CMD ["/bin/bash"]'])
    if tar.returncode:
        raise NoLocalBase(why=f"tar ended with {tar.returncode}")
