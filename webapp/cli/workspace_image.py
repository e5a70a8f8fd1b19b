"""The workspace image, made by images/build.py of a checkout and written into the catalogue."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType

from webapp.domain.actor import Actor
from webapp.errors import N_, AppError
from webapp.services import images
from webapp.store.reads import house as reads
from webapp.store.session import Store

BUILDER = Path(__file__).resolve().parents[2] / "images" / "build.py"
LOCAL_TITLE = "Debian · CPU PyTorch"
MOST_TITLE = 48     # characters; a title may have 60

Progress = Callable[[str], None]


class NoBuilder(AppError):
    """Installed from a wheel: the files that the image is made of are not there."""

    code, status = "no_image_builder", 500
    title = N_("This installation has no images/ folder to make a workspace image from. Run “berth image prepare” in a "
               "checkout, or add a ready image: berth image add.")


class ImageNotMade(AppError):
    """The build ended with an error of its own."""

    code, status, retry = "image_not_made", 502, True
    title = N_("The workspace image could not be made: %(why)s")


@dataclass(frozen=True, slots=True)
class Prepared:
    base: str           # as the catalogue has it
    reference: str
    has_jupyter: bool
    is_local: bool      # made here, because no registry answered


def ensure(engine_url: str, base: str | None, *, jupyter: bool, progress: Progress) -> Prepared:
    """The workspace image on `base` (None = the default, or the local one where no registry answers).

    Raises:  NoBuilder, ImageNotMade.
    """
    build = _builder()
    try:
        reference = build.ensure_workspace_image(engine_url, base, jupyter=jupyter, progress=progress)
    except Exception as error:  # the builder's own errors, docker's, and the network's: all end the same way
        raise ImageNotMade(why=_short(error)) from error
    local = build.local_base_reference()
    is_local = reference == build.workspace_reference(local, jupyter=jupyter)
    # Without its hash: a new recipe of the local base is the same entry of the catalogue, not another one.
    known = local.rpartition("-")[0] if is_local else base or build.default_base()
    return Prepared(base=known, reference=str(reference), has_jupyter=jupyter, is_local=is_local)


def register(store: Store, prepared: Prepared, actor: Actor, *, now: datetime) -> None:
    """Makes the catalogue's entry for that base launchable, or adds one. A slim image is an entry of its own."""
    title = LOCAL_TITLE if prepared.is_local else prepared.base.rpartition("/")[2][:MOST_TITLE]
    with store.write() as session:
        if prepared.has_jupyter:
            images.register_prepared(
                session, actor, base=prepared.base, reference=prepared.reference, has_jupyter=True, title=title,
                cuda_version=None, now=now)
        elif all(row.reference != prepared.reference for row in reads.images(session)):
            images.add(
                session, actor, base=None, reference=prepared.reference, has_jupyter=False,
                title=f"{title} · SSH only", cuda_version=None, now=now)


def _builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("berth_image_build", BUILDER) if BUILDER.is_file() else None
    if spec is None or spec.loader is None:
        raise NoBuilder
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module     # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def _short(error: Exception) -> str:
    """The first line, and the last ones of a build, where the reason is."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines if len(lines) <= 8 else [lines[0], "…", *lines[-6:]]) or type(error).__name__
