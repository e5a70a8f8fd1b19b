"""A change that cannot be made is taken back, so that what ran goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from webapp.agent import leaving, moving
from webapp.agent.desk import Desk, Stale
from webapp.domain.container import LABEL_GPUS, LABEL_SHAPE, Container
from webapp.domain.moving import WORDINGS as OF_MOVES
from webapp.domain.moving import shape
from webapp.domain.reasons import Reason
from webapp.domain.wordings import WORDINGS
from webapp.domain.workspace import Phase
from webapp.errors import fill
from webapp.services import observations

log = structlog.get_logger(__name__)


def go_back(desk: Desk, reason: Reason) -> bool:
    """Whether it did: there was a change while it ran, and the container from before has all that was written."""
    before = desk.workspace.before_change
    if before is None or not before["ran"]:
        return False
    there = leaving.inspected(desk)
    whole = next((one for one in there if one.was_started), None)
    if whole is None or not (whole.is_up or whole.is_down) or not _is_of(before, whole, desk):
        return False
    for one in there:
        if not one.was_started:
            desk.engine.remove(one.name)
    moving.sweep_images(desk, [one for one in there if one.was_started])
    _take_back(desk, reason, whole)
    log.warning("workspace.change_undone", workspace=desk.wanted.workspace_id, reason=reason.code,
                facts=dict(reason.facts))
    return True


def _is_of(before: Mapping[str, Any], container: Container, desk: Desk) -> bool:
    """A newer one that ran has what was written last, also when it never got ready."""
    cards = ",".join(sorted(before["gpu_uuids"]))
    mounts = [(volume_id, read_only) for volume_id, read_only in before["mounts"]]
    unlabelled = desk.wanted.shape_unlabelled
    return (container.labels.get(LABEL_GPUS, "") == cards
            and container.labels.get(LABEL_SHAPE, unlabelled) in (shape(before["shm_bytes"], mounts), None))


def _take_back(desk: Desk, reason: Reason, whole: Container) -> None:
    changes: dict[str, Any] = {"note": _note(reason).as_json(), "reason": None, "next_try_at": None, "failures": 0,
                               "private_image": moving.private_image_of(desk, whole)}
    if whole.is_down:
        changes |= {"phase": Phase.STARTING, "progress": desk.fresh_progress()}
    with desk.context.store.write() as session:
        done = observations.undo_change(
            session, desk.wanted.workspace_id, generation=desk.wanted.generation, epoch=desk.context.epoch,
            now=desk.now(), changes=changes, why=reason.code)
    if not done:
        raise Stale


def _note(reason: Reason) -> Reason:
    """Of its own sentences each says that what ran goes on."""
    if reason.code in OF_MOVES:
        return reason
    return Reason("change_undone", {"detail": fill(WORDINGS[reason.code].title, reason.facts)})
