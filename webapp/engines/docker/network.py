"""The instance's network: one bridge on which workspaces do not see each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import docker.errors

from webapp.domain.container import LABEL_INSTANCE
from webapp.engines import network_name
from webapp.engines.docker.connection import Client
from webapp.errors import EngineRejected

_ICC = "com.docker.network.bridge.enable_icc"
_BRIDGE = "com.docker.network.bridge.name"


def bridge_name(instance: str) -> str:
    """Name of the bridge on the host, for firewall rules: 14 characters, and Linux takes 15."""
    return f"br-b{short_hash(instance)}"


def short_hash(instance: str) -> str:
    return hashlib.sha256(instance.encode()).hexdigest()[:10]


def ensure_network(client: Client, instance: str, *, host: str) -> None:
    """Make the network, or find the one made before.

    Raises: EngineRejected: a network of that name is there that Berth did not make, or that was made otherwise.
    """
    found = find_network(client, instance)
    if found is None:
        _create(client, instance)
        found = find_network(client, instance)
    if found is None or not is_ours(found, instance):
        raise EngineRejected(host=host, detail=f"the network {network_name(instance)} is not the one Berth makes")


def find_network(client: Client, instance: str) -> Mapping[str, Any] | None:
    name = network_name(instance)
    rows: list[Mapping[str, Any]] = client.networks(names=[name])   # matches parts of names too
    return next((row for row in rows if row.get("Name") == name), None)


def is_ours(network: Mapping[str, Any], instance: str) -> bool:
    options, labels = network.get("Options") or {}, network.get("Labels") or {}
    return (
        labels.get(LABEL_INSTANCE) == instance
        and network.get("Driver") == "bridge"
        and options.get(_ICC) == "false"
        and options.get(_BRIDGE) == bridge_name(instance)
    )


def _create(client: Client, instance: str) -> None:
    try:
        client.create_network(
            network_name(instance),
            driver="bridge",
            options={_ICC: "false", _BRIDGE: bridge_name(instance)},
            labels={LABEL_INSTANCE: instance},
            check_duplicate=True,   # the engine takes one name twice otherwise
            enable_ipv6=False,
        )
    except docker.errors.APIError as error:
        if error.status_code != 409:    # 409: made in the meantime
            raise
