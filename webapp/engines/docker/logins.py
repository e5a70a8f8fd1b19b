"""Logins for registries: read from a docker config.json at each use, and put into nothing but a header."""

from __future__ import annotations

import json
from typing import Any

import docker.auth

from webapp.domain.references import ImageReference
from webapp.engines.docker.connection import Client
from webapp.engines.registries import RegistryAccess
from webapp.errors import EngineRejected


def login_for(client: Client, image: ImageReference, access: RegistryAccess, *, host: str) -> dict[str, str]:
    """The header for the image's registry, if the file (or a helper that it names) has a login; {} = ask without.

    Raises: EngineRejected: the file or its helper is broken; says so, without its content.
    """
    registry = image.registry or docker.auth.INDEX_NAME
    try:
        found = _config(client, access).resolve_authconfig(registry)
        header = docker.auth.encode_header(found) if found else b""
    except Exception as error:      # helpers are programs and the file is anyone's: no list of errors is complete
        raise EngineRejected(host=host, detail=f"the stored login for {registry} cannot be read") from error
    return {"X-Registry-Auth": header.decode()} if header else {}


def _config(client: Client, access: RegistryAccess) -> Any:
    """Read anew: a token that was renewed counts at once. docker-py would take a broken file for an empty one."""
    if access.auth_file is None:
        return docker.auth.load_config(credstore_env=client.credstore_env)
    json.loads(access.auth_file.read_text("utf-8"))
    return docker.auth.load_config(str(access.auth_file), credstore_env=client.credstore_env)
