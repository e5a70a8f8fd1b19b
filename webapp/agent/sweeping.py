"""Private images that nobody needs any more: left by an agent that died, or by a commit that came late."""

from __future__ import annotations

from collections.abc import Sequence

from webapp.agent import moving
from webapp.agent.context import HostContext
from webapp.agent.desk import Desk
from webapp.domain.container import Container
from webapp.domain.plan import Rest, Seen, Wanted, own_containers, plan, private_repository
from webapp.domain.workspace import Phase
from webapp.store.reads import agent as reads

EVERY_SECONDS = 60.0


def left_over(context: HostContext, rows: Sequence[Wanted], listed: tuple[Container, ...]) -> list[str]:
    """Ids of workspaces at rest that have an image which none of their containers was made from, and of removed ones.

    What belongs to no row at all is left: the database may be older than the image.
    """
    images = context.engine.private_images()
    used = {one.image_id for one in listed}
    spare = {image.repository for image in images if image.id not in used}
    if not spare:
        return []
    known = {wanted.workspace_id for wanted in rows}
    named = {repository.removeprefix(private_repository(context.instance, "")) for repository in spare}
    with context.store.read() as session:
        rows = [*rows, *reads.wanted_of(session, named - known, context.host_id, context.instance)]
    return [wanted.workspace_id for wanted in rows
            if private_repository(wanted.instance, wanted.workspace_id) in spare
            and _is_at_rest(wanted, own_containers(wanted, listed), context)]


def sweep(context: HostContext, workspace_id: str) -> None:
    """In the place of the workspace's own worker, so that it does nothing else meanwhile."""
    desk = Desk.open(context, workspace_id)
    if desk is None:
        return
    containers = desk.containers()
    if _is_at_rest(desk.wanted, containers, context):
        keep = None if containers or desk.wanted.phase is Phase.REMOVED else desk.wanted.private_image
        moving.sweep_images(desk, containers, keep=keep)


def _is_at_rest(wanted: Wanted, containers: tuple[Container, ...], context: HostContext) -> bool:
    step = plan(wanted, Seen(containers), now=context.now())
    return isinstance(step, Rest) and step.until is None and wanted.is_answered
