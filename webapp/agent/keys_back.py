"""Keys and token of a workspace whose row has none: they were in no backup, and its own volume still has them."""

from __future__ import annotations

import structlog

from webapp.agent import specs
from webapp.agent.context import HostContext
from webapp.agent.desk import Desk
from webapp.engines import Engine
from webapp.errors import EngineError
from webapp.services import secrets
from webapp.services.secrets import Secrets

log = structlog.get_logger(__name__)


def read_back(context: HostContext, workspace_id: str) -> None:
    """From its newest container, up or not; nothing where there is none. It only reads, so it is done on hold too."""
    desk = Desk.open(context, workspace_id, looking=True)
    if desk is None:
        return
    try:
        newest = next(iter(desk.containers()), None)
        found = None if newest is None else in_container(desk.engine, newest.name)
    except EngineError as error:
        log.warning("workspace.keys_not_read", workspace=workspace_id, detail=str(error))
        return
    if found is None:
        return
    with context.store.write() as session:
        done = secrets.put_back(session, workspace_id, found, epoch=context.epoch)
    if done:
        log.info("workspace.keys_back", workspace=workspace_id)


def in_container(engine: Engine, name: str) -> Secrets | None:
    """What its volume has; None = it is new, or what is in it cannot be used."""
    key = engine.read_file(name, f"{specs.SECRETS_FOLDER}/ssh_host_ed25519_key")
    token = engine.read_file(name, f"{specs.SECRETS_FOLDER}/token")
    if not key or not token:
        return None
    try:
        return secrets.of_key(key.decode(), jupyter_token=token.decode().strip())
    except ValueError:      # UnicodeDecodeError is one
        return None
