"""The steps that change a container: CPU and memory while it lives; else what is in it is kept for a new one."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from webapp.agent import gpu_check, policy
from webapp.agent.desk import Desk, Failed
from webapp.domain import moving, progress
from webapp.domain.container import Container
from webapp.domain.plan import Commit, Seen, Update, Weigh, private_image, private_repository
from webapp.domain.reasons import Reason
from webapp.domain.workspace import Phase, StepName
from webapp.errors import EngineRejected, EngineUnreachable

log = structlog.get_logger(__name__)

UNANSWERED = "commit_unanswered"


def weigh(desk: Desk, seen: Seen, step: Weigh) -> Seen:
    """Before anything is stopped or written: may it be made anew, and is there room? Raises Failed."""
    desk.reload()
    workspace, context = desk.workspace, desk.context
    if reason := policy.refuse_workspace(workspace, context) or policy.refuse_excess(workspace, context):
        raise Failed(reason, retry=policy.may_be_mended(reason))
    gpu_check.refuse_start(desk)
    layer = desk.engine.layer(step.name)
    if refusal := moving.refusal(layer, desk.engine.room(), desk.context.host_name):
        raise Failed(refusal)
    return Seen(seen.containers, seen.image_ready, is_weighed=True)


def update(desk: Desk, seen: Seen, step: Update) -> Seen:
    """At once, and programs go on. Raises Failed: more memory is in use than it is to have."""
    container = next((one for one in seen.containers if one.name == step.name), None)
    if container is None:
        return Seen(desk.containers())
    limits = desk.workspace.limits
    detail = desk.engine.inspect(container.id)
    if detail is None:
        return seen.without(step.name)
    if container.is_up and not 0 < detail.memory_bytes <= limits.memory_bytes:
        used = desk.engine.memory_used(container.id)
        if used is not None and (refusal := moving.memory_refusal(used, limits.memory_bytes)):
            raise Failed(refusal)
    desk.check_current()
    desk.engine.update(container.id, limits)
    desk.record(applied_limits={"container": container.id, "limits": desk.wanted.limits})
    log.info("workspace.limits_changed", workspace=desk.wanted.workspace_id, limits=desk.wanted.limits)
    return seen


def show(desk: Desk) -> None:
    """From here on it moves: one that ran is taken down for it."""
    if desk.wanted.is_answered or desk.wanted.phase not in (Phase.RUNNING, Phase.UNKNOWN):
        return
    desk.record(phase=Phase.MOVING, progress=desk.fresh_progress(moves=True))


def commit(desk: Desk, seen: Seen, step: Commit) -> Seen:
    """The recorded revision is never behind by more than one: so a removal knows which images there may be."""
    revisions = [one.revision or 0 for one in seen.containers]
    steps = desk.workspace.progress
    if not any(one["name"] == StepName.KEPT for one in steps.get("steps", ())):
        steps = desk.fresh_progress(moves=True)
    desk.record(phase=Phase.MOVING, revision=max(desk.wanted.revision, *revisions),
                progress=progress.begin(steps, StepName.KEPT, desk.now()))
    was_unanswered = (desk.workspace.reason or {}).get("code") == UNANSWERED
    if not (was_unanswered and _is_kept(desk, step)):
        _commit(desk, step)
    desk.record(progress=progress.finish(desk.workspace.progress, StepName.KEPT, desk.now()))
    return Seen(seen.containers, image_ready=True)


def _commit(desk: Desk, step: Commit) -> None:
    """An answer that does not come is no failure: the engine may have done it, or may still be at it."""
    try:
        desk.engine.remove_image(step.reference)    # of a try before: the layer has changed since
        desk.engine.commit(step.name, step.reference, private=True)
    except EngineUnreachable as error:
        if not _is_kept(desk, step):
            raise Failed(Reason(UNANSWERED, {"host": desk.context.host_name}), retry=True) from error


def _is_kept(desk: Desk, step: Commit) -> bool:
    """Whether the image has all that was written: it was made after the container had ended.

    Asked after an answer that did not come, not in general: somebody may have copied files into it since.
    """
    image = desk.engine.image(step.reference)
    if image is None or image.created_at is None:
        return False
    detail = desk.engine.inspect(step.name)
    return (detail is not None and detail.container.is_down and detail.finished_at is not None
            and image.created_at > detail.finished_at)


def sweep_images(desk: Desk, containers: Sequence[Container], *, keep: str | None = None) -> None:
    """Private images that none of these containers was made from, but for one."""
    wanted = desk.wanted
    used = {keep, *(one.image_id for one in containers)}    # of one that was made a moment ago the reference
    for image in desk.engine.private_images():
        if image.repository != private_repository(wanted.instance, wanted.workspace_id):
            continue
        if used & {image.id, image.reference}:
            continue
        try:
            desk.engine.remove_image(image.reference)
            log.info("workspace.image_swept", workspace=wanted.workspace_id, image=image.reference)
        except EngineRejected as error:     # something that is none of Berth's was made from it
            log.warning("workspace.image_not_swept", workspace=wanted.workspace_id, image=image.reference,
                        detail=str(error))


def private_image_of(desk: Desk, container: Container) -> str | None:
    """The private image that it was made from: the recorded one, unless that is of a newer one that was given up."""
    wanted = desk.wanted
    if wanted.private_image in (None, container.image_id):
        return wanted.private_image
    own = private_image(wanted.instance, wanted.workspace_id, container.revision or 0)
    for reference in (wanted.private_image, own):
        image = desk.engine.image(reference) if reference else None
        if image is not None and image.id == container.image_id:
            return reference
    return None
