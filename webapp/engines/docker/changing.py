"""A container that is there: its limits while it lives, and what a move of it would come to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from webapp.domain.container import LABEL_PRIVATE_IMAGE, Layer, PrivateImage, Room
from webapp.domain.plan import private_repository
from webapp.domain.workspace import Limits
from webapp.engines.docker.connection import Client


def update(api: Client, name: str, limits: Limits) -> None:
    """docker-py's own call has no NanoCpus, and an engine refuses a quota where those were set at creation.

    Memory and swap go together: a limit above the old one of both is refused, and one left behind would be swap.
    """
    memory = limits.memory_bytes
    body = {"NanoCpus": limits.cpu_millis * 1_000_000, "Memory": memory, "MemorySwap": memory}
    api.ask("POST", f"/containers/{name}/update", body=body)


def memory_used(api: Client, name: str) -> int | None:
    found = api.ask("GET", f"/containers/{name}/stats", params={"stream": "false", "one-shot": "true"})
    return held_memory(found.get("memory_stats") or {})


def held_memory(stats: Mapping[str, Any]) -> int | None:
    """`memory_stats` of GET /containers/NAME/stats, empty of one that is down.

    The cache of files is taken off by its two lists, not by its own figure: /dev/shm is in that as well, and nothing of
    it can be given back (measured on 20.10 with cgroup v1).
    """
    usage, detail = stats.get("usage"), stats.get("stats") or {}
    if usage is None:
        return None
    lists = ("active_file", "inactive_file")
    cache = sum(detail.get(f"total_{name}", detail.get(name, 0)) for name in lists)     # cgroup v1
    return max(0, int(usage) - int(cache))


def layer(api: Client, name: str) -> Layer:
    found = api.ask("GET", f"/containers/{name}/json", params={"size": "true"})
    image = api.ask("GET", f"/images/{found['Image']}/json")
    return Layer(found.get("SizeRw") or 0, len((image.get("RootFS") or {}).get("Layers") or ()))


def room(api: Client, url: str) -> Room | None:
    if not url.startswith("unix://"):
        return None
    info = api.info()
    if any("io.containerd.snapshotter" in str(value) for _, value in info.get("DriverStatus") or ()):
        return None         # images and layers are containerd's, in a folder of its own
    return room_of(Path(info.get("DockerRootDir") or ""), [row["Id"] for row in api.containers(all=True, limit=1)])


def room_of(folder: Path, containers: Sequence[str]) -> Room | None:
    """None where the folder is none of this machine's, as for an engine with a root of its own: its containers are not
    in it.
    """
    try:
        there = os.statvfs(folder)
        if os.access(folder, os.R_OK) and not all((folder / "containers" / id_).exists() for id_ in containers):
            return None
    except OSError:
        return None
    return Room(there.f_bfree * there.f_frsize, there.f_blocks * there.f_frsize)


def names_in(api: Client, repository: str) -> list[str]:
    tags = (tag for row in api.images(name=repository) for tag in row.get("RepoTags") or ())
    return sorted(tag for tag in tags if tag.startswith(f"{repository}:"))


def private_images(api: Client, instance: str) -> list[PrivateImage]:
    """Nameless ones with images on top of them are no longer shown, and go with those."""
    prefix = private_repository(instance, "")
    tags = [(tag, row["Id"]) for row in api.images(name=f"{prefix}*") for tag in row.get("RepoTags") or ()]
    named = [PrivateImage(tag.rpartition(":")[0], tag, id_) for tag, id_ in tags if tag.startswith(prefix)]
    rows = api.images(filters={"label": LABEL_PRIVATE_IMAGE, "dangling": True})
    marked = [((row.get("Labels") or {}).get(LABEL_PRIVATE_IMAGE, ""), row["Id"]) for row in rows]
    return [*named, *(PrivateImage(of, id_, id_) for of, id_ in marked if of.startswith(prefix))]
