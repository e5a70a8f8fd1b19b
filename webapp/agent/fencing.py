"""Fencing: a container that runs with a card that its workspace does not hold is stopped in the same pass.

No lock reaches into an engine. An agent that was held up between its last look at the database and its call may start
what another agent has given up meanwhile, and the card may have another holder by then.
"""

from __future__ import annotations

import structlog

from webapp.agent.context import HostContext
from webapp.domain.actor import Actor
from webapp.domain.container import Container
from webapp.errors import EngineError
from webapp.services import events
from webapp.store.reads import agent as reads

log = structlog.get_logger(__name__)

GRACE_SECONDS = 2           # somebody else's work is on that card
AGAIN_SECONDS = 2.0         # after a refusal of the engine


def stop(context: HostContext, workspace_id: str, container: Container) -> None:
    """Beside the workspace's own worker, which may be at something long. The claims are read again first."""
    with context.store.read() as session:
        held = reads.claims(session, workspace_id)
        if container.gpu_uuids <= held or not reads.may_act(session, context.epoch):
            return
    log.error("workspace.fenced", workspace=workspace_id, container=container.name, host=context.host_name,
              gpus=sorted(container.gpu_uuids), held=sorted(held))
    try:
        context.engine.stop(container.name, GRACE_SECONDS)
    except EngineError as error:
        log.warning("workspace.not_fenced", workspace=workspace_id, detail=str(error))
        context.sleep(AGAIN_SECONDS)
        return
    with context.store.write() as session:
        events.write(session, Actor.house(), "workspace.fence", "workspace", workspace_id, now=context.now(),
                     container=container.name, gpus=sorted(container.gpu_uuids - held))
