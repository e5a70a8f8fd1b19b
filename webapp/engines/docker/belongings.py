"""All that an engine has of one instance, to look at or to take away: for a demo, which ends whole.

What counts is the instance's label together with its name; labels can be copied. Images of moved workspaces carry no
label and are known by their name alone. Images that workspaces are launched from belong to no instance, and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import docker.errors

from webapp.domain.container import LABEL_INSTANCE
from webapp.engines.docker.connection import Client, Connection
from webapp.engines.docker.host_rules import HostRules
from webapp.engines.docker.network import find_network, is_ours

CHANGE_SECONDS = 120.0      # to end a container on a busy engine


@dataclass(frozen=True, slots=True)
class Belongings:
    """Names; of images their tags."""

    containers: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.containers, self.volumes, self.images, self.networks))


def belongings(url: str, instance: str, *, host: str) -> Belongings:
    """Raises: EngineUnreachable, EngineRejected."""
    with _api(url, host) as api:
        return _look(api, instance)


def remove_all(url: str, instance: str, *, host: str) -> Belongings:
    """What was there; it is gone now, running or not, and so are the instance's firewall rules.

    Raises: EngineUnreachable, EngineRejected: a part may be left, so do it again.
    """
    with _api(url, host) as api:
        found = _look(api, instance)
        _each(found.containers, lambda name: api.remove_container(name, force=True, v=True))
        _each(found.volumes, api.remove_volume)
        _each(found.images, api.remove_image)
        _each(found.networks, api.remove_network)
    if url.startswith("unix://"):
        HostRules(instance, local=True).remove()
    return found


@contextmanager
def _api(url: str, host: str) -> Iterator[Client]:
    with closing(Connection(url, host)) as connection, connection.api(CHANGE_SECONDS) as api:
        yield api


def _look(api: Client, instance: str) -> Belongings:
    labelled = {"label": f"{LABEL_INSTANCE}={instance}"}
    containers = (row["Names"][0].lstrip("/") for row in api.containers(all=True, filters=labelled))
    volumes = (row["Name"] for row in api.volumes(filters=labelled)["Volumes"] or ())
    tags = (tag for row in api.images() for tag in row.get("RepoTags") or ())
    network = find_network(api, instance)
    return Belongings(
        containers=_beginning(f"berth-{instance}-", containers),
        volumes=_beginning(f"berth-{instance}-", volumes),
        images=_beginning(f"berth-{instance}/", tags),
        networks=(str(network["Name"]),) if network and is_ours(network, instance) else (),
    )


def _beginning(prefix: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if name.startswith(prefix)))


def _each(names: Iterable[str], remove: Callable[[str], Any]) -> None:
    for name in names:
        with suppress(docker.errors.NotFound):      # gone meanwhile
            remove(name)
