"""Images by name: which were made on a host and are in no registry, and what a name says about an image."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from webapp.domain.references import parse_reference

WORKSPACE_REPOSITORY = "berth/workspace"    # the workspace image on a base, made on a host: images/workspace
_OWN = re.compile(r"berth/workspace|(?:library/)?berth-[a-z0-9]+(?:/.*)?")
_CUDA_VARIABLE = re.compile(r"([1-9][0-9]?\.[0-9]{1,2})(?:\.[0-9]+)*")
_CUDA_IN_TAG = re.compile(r"(?:^|[^a-z0-9])cu(?:da)?[-_]?([1-9][0-9])\.?([0-9])(?![0-9])")


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
