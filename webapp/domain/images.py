"""Images by name: which were made on a host and are in no registry, and what a name says about an image."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from webapp.domain.reasons import Wording
from webapp.domain.references import parse_reference
from webapp.errors import N_

WORKSPACE_REPOSITORY = "berth/workspace"    # the workspace image on a base, made on a host: images/workspace
_OWN = re.compile(r"berth/workspace|(?:library/)?berth-[a-z0-9]+(?:/.*)?")
_CUDA_VARIABLE = re.compile(r"([1-9][0-9]?\.[0-9]{1,2})(?:\.[0-9]+)*")
_CUDA_IN_TAG = re.compile(r"(?:^|[^a-z0-9])cu(?:da)?[-_]?([1-9][0-9])\.?([0-9])(?![0-9])")


@dataclass(frozen=True, slots=True)
class ImageOnEngine:
    """A row of the engine's list."""

    id: str                 # sha256:…
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BuildOutput:
    """What a build has printed since it was last heard; nothing for a while = an empty text."""

    text: str               # whole lines, as a page may show them
    step: int | None        # of `steps`, the instruction that is carried out; None = it has not begun
    steps: int | None


def is_made_here(reference: str) -> bool:
    """A name that Berth gives on a host. It is never pulled: in a registry it would be somebody else's image."""
    parsed = parse_reference(reference)
    return parsed.registry is None and _OWN.fullmatch(parsed.repository) is not None


def pulled(*, base: str | None, reference: str | None) -> str | None:
    """What of an entry of the catalogue comes from a registry; None = nothing of it does."""
    return next((name for name in (reference, base) if name and not is_made_here(name)), None)


def saved_reference(instance: str, image_id: str) -> str:
    """Of what was saved from a workspace."""
    return f"berth-{instance}/saved:{image_id}"


def base_reference(instance: str, image_id: str, dockerfile: str) -> str:
    """Of what was built from a Dockerfile; another text is another image."""
    return f"berth-{instance}/base:{image_id}-{hashlib.sha256(dockerfile.encode()).hexdigest()[:12]}"


def cuda_in(names: Mapping[str, str], reference: str) -> str | None:
    """The CUDA version of an image as it says itself, `12.8`: by CUDA_VERSION among its variables and labels, else by
    its tag (`cuda12.8`, `cu128`). None = it says nothing.
    """
    for name in ("CUDA_VERSION", "com.nvidia.cuda.version"):
        if match := _CUDA_VARIABLE.fullmatch(names.get(name, "")):
            return match[1]
    found = _CUDA_IN_TAG.search(parse_reference(reference).tag or "")
    return f"{found[1]}.{found[2]}" if found else None


def digest_in(digests: Collection[str], reference: str) -> str | None:
    """`sha256:…` under which the registry of `reference` knows an image; that of a mirror where there is no other."""
    name = parse_reference(reference).name
    by_name = {parse_reference(each).name: each.partition("@")[2] for each in digests}
    return by_name.get(name) or next(iter(by_name.values()), None)


WORDINGS: dict[str, Wording] = {
    "registry_refused": Wording(
        N_("The registry does not give the image %(image)s to %(host)s: %(detail)s"),
        N_("Check the name. Where it is a private one, an administrator gives Berth a login: BERTH_REGISTRY_AUTH."),
    ),
    "pull_failed": Wording(
        N_("The image %(image)s could not be pulled to %(host)s: %(detail)s"),
        N_("Try again. If it stays, an administrator has to look at the way to the registry."),
    ),
    "image_gone": Wording(
        N_("The image %(image)s was made on %(host)s, is in no registry, and is not there any more."),
        N_("An administrator can prepare it again. One that was saved from a workspace is gone: choose another image."),
    ),
    "other_architecture": Wording(
        N_("The image %(image)s is for %(architecture)s machines, and %(host)s is %(own)s."),
        N_("Choose an image for %(own)s."),
    ),
    "build_failed": Wording(
        N_("The image could not be built. %(command)s: %(detail)s"),
        N_("Look at the last lines of the log, mend the Dockerfile or choose another base, then prepare it again."),
    ),
    "image_known": Wording(
        N_("That very image is in the catalogue already, as “%(title)s”."),
        N_("Use that one; this entry can be deleted."),
    ),
    "image_held": Wording(
        N_("A container on %(host)s still uses the image: %(detail)s"),
        N_("Remove that container, by hand if it is none of Berth's, then delete the image again."),
    ),
    "nothing_to_save": Wording(
        N_("The workspace has no container on %(host)s that could be saved."),
        N_("Start it once, then save it."),
    ),
}
