"""The workspace image, made on this server and written into the catalogue."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from webapp.domain.actor import Actor
from webapp.domain.container import PullProgress
from webapp.domain.images import BuildOutput
from webapp.engines import Engine, open_engine, recipe
from webapp.engines.docker.local_base import NoLocalBase, ensure_local_base
from webapp.engines.registries import DIRECT, RegistryAccess
from webapp.errors import N_, AppError, BuildFailed, DiskFull, EngineError, EngineUnreachable
from webapp.key_files import check_registry_auth
from webapp.services import images
from webapp.settings import Settings
from webapp.store.reads import house as reads
from webapp.store.session import Store

LOCAL_TITLE = "Debian · CPU PyTorch"
MOST_TITLE = 48     # characters; a title may have 60

Progress = Callable[[str], None]


class ImageNotMade(AppError):
    """The build ended with an error of its own."""

    code, status, retry = "image_not_made", 502, True
    title = N_("The workspace image could not be made: %(why)s")


@dataclass(frozen=True, slots=True)
class Prepared:
    base: str           # as the catalogue has it
    reference: str
    has_jupyter: bool
    is_local: bool      # on a base made here, because no registry answered


def ensure(
    engine_url: str, base: str | None, *, jupyter: bool, progress: Progress, registries: RegistryAccess = DIRECT,
) -> Prepared:
    """The workspace image on `base` (None = the default, or the local one where no registry answers).

    Raises:  NoRecipe, ImageNotMade.
    """
    with closing(open_engine(engine_url, instance="", host=socket.gethostname(), registries=registries)) as engine:
        try:
            chosen = _base_of_what_is_there(engine, base, jupyter) or _obtain_base(engine, engine_url, base, progress)
            reference = _build(engine, chosen, jupyter, progress)
        except (EngineError, NoLocalBase) as error:
            raise ImageNotMade(why=_short(error)) from error
    is_local = chosen == recipe.local_base_reference()
    # Without its hash: a new recipe of the local base is the same entry of the catalogue, not another one.
    return Prepared(base=recipe.LOCAL_BASE if is_local else chosen, reference=reference, has_jupyter=jupyter,
                    is_local=is_local)


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


def registries_of(settings: Settings) -> RegistryAccess:
    """Raises SettingsError: the file with logins cannot be used."""
    check_registry_auth(settings)
    return RegistryAccess(settings.registry_auth, settings.registry_mirror)


def _base_of_what_is_there(engine: Engine, base: str | None, jupyter: bool) -> str | None:
    """The base of a workspace image that the engine has already; None = one is to be made."""
    candidates = [base] if base else [recipe.default_base(), recipe.local_base_reference()]
    found = (each for each in candidates if engine.image(recipe.workspace_reference(each, jupyter=jupyter)))
    return next(found, None)


def _obtain_base(engine: Engine, engine_url: str, wanted: str | None, progress: Progress) -> str:
    base = wanted or recipe.default_base()

    def tell(pulled: PullProgress) -> None:
        total = f" of {pulled.total_bytes / 1e9:.1f}" if pulled.total_bytes else ""
        progress(f"pulling {base}: {pulled.done_bytes / 1e9:.1f}{total} GB, "
                 f"{pulled.layers_done} of {pulled.layers_total} layers")

    try:
        engine.ensure_image(base, tell)
    except (EngineUnreachable, DiskFull):
        raise
    except EngineError as error:
        if wanted:
            raise
        progress(f"{error}; taking a Debian base made here instead")
        return ensure_local_base(engine, engine_url, progress)
    return base


def _build(engine: Engine, base: str, jupyter: bool, progress: Progress) -> str:
    reference = recipe.workspace_reference(base, jupyter=jupyter)

    def tell(output: BuildOutput) -> None:
        for line in output.text.splitlines():
            if line.startswith("Step "):
                progress(line[:100])

    if engine.image(reference) is None:
        progress(f"building {reference}")
        engine.build(recipe.workspace_context(), reference, tell=tell,
                     arguments=recipe.workspace_arguments(reference, base, jupyter=jupyter))
    return reference


def _short(error: AppError) -> str:
    """The sentence, and of a build its last lines, where the reason is."""
    last = str(error.facts.get("last", "")).splitlines()[-6:] if isinstance(error, BuildFailed) else []
    return "\n".join([str(error), *last])
