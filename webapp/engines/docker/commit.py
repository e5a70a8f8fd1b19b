"""What a commit must not carry on: labels by which Berth knows its containers, and what it put into the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webapp.domain.container import LABEL_PRIVATE_IMAGE, marks_a_container
from webapp.engines.docker.gpus import is_said_by_berth

# A change is a line of a Dockerfile: other names cannot be written there, and Berth makes no others.
_WRITABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def changes(container: Mapping[str, Any], image: Mapping[str, Any] | None, repository: str = "") -> Iterator[str]:
    """Lines for the commit's `changes`. A commit cannot delete labels or variables, only empty them (measured).

    Blanked are labels that mark a container (an image with them would pass for one), what Berth said about cards (also
    in an image of an earlier commit, which has those variables), and every variable that the image did not have: the
    person's own, and secrets among them would be in `docker save`. What overrides a variable of the image stays: PATH
    empty would make the image unusable, CUDA_VISIBLE_DEVICES empty would hide every card.

    Args:    container, image: as inspected.   image None = gone; then only what Berth said about cards is blanked.
             repository: of which it is a private image; "" = it is none.
    """
    config = container.get("Config") or {}
    if repository or (config.get("Labels") or {}).get(LABEL_PRIVATE_IMAGE):
        yield f'LABEL {LABEL_PRIVATE_IMAGE}="{repository}"'
    for label in config.get("Labels") or {}:
        if marks_a_container(label) and _WRITABLE.fullmatch(label):
            yield f'LABEL {label}=""'
    names = _names(config.get("Env") or ())
    kept = _names((image.get("Config") or {}).get("Env") or ()) if image else names
    for name in sorted(names):
        if (is_said_by_berth(name) or name not in kept) and _WRITABLE.fullmatch(name):
            yield f'ENV {name}=""'


def _names(environment: Iterable[str]) -> set[str]:
    return {entry.partition("=")[0] for entry in environment}
