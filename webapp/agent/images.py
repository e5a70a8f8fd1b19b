"""Operations on images: pull, prepare, save, delete. They take minutes to hours, beside everything else of the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog
from sqlalchemy.orm import Session

from webapp.agent import trouble
from webapp.agent.context import HostContext
from webapp.agent.jobs import Asked, Cancelled, Job, LeftAlone, Outcome, Refused
from webapp.agent.outage import write_down
from webapp.agent.preparing import prepare
from webapp.agent.pulling import pull
from webapp.agent.saving import save
from webapp.domain.images import base_reference, is_made_here, saved_reference
from webapp.domain.operation import OperationKind
from webapp.domain.reasons import Reason
from webapp.errors import AppError, EngineError, EngineUnreachable, ImageHeld
from webapp.services import image_records, operations
from webapp.store.failures import CommitUnknown, is_unavailable
from webapp.store.reads import agent as agent_reads
from webapp.store.reads import image_work as reads
from webapp.store.revisions import OtherVersion

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 2.0         # before the next try of what a moment may change
MOST_TRIES = 5              # of one operation


def delete(job: Job) -> Outcome:
    """Its names; the layers go with the last name that has them. A base that somebody else uses may stay."""
    for name in _own_names(job):
        job.engine.remove_image(name)
    base = job.image.base
    if base is not None and not is_made_here(base):
        try:
            job.engine.remove_image(base)
        except ImageHeld as error:
            log.info("image.base_stays", image=job.image.id, base=base, detail=str(error))
    return Outcome({}, partial(image_records.removed, image_id=job.image.id, host_id=job.context.host_id,
                               now=job.now()))


def _own_names(job: Job) -> list[str]:
    """The workspace image, or what was saved; of a Dockerfile also what each of its texts made."""
    names = [job.image.reference] if job.image.reference else []
    if job.image.dockerfile:
        repository = base_reference(job.context.instance, job.image.id, "").rpartition(":")[0]
        bases = job.engine.names_in(repository)
        names += [name for name in bases if name.startswith(f"{repository}:{job.image.id}-")]
    return names


DOERS: dict[OperationKind, Callable[[Job], Outcome]] = {
    OperationKind.IMAGE_PULL: pull,
    OperationKind.IMAGE_PREPARE: prepare,
    OperationKind.IMAGE_DELETE: delete,
    OperationKind.WORKSPACE_SAVE: save,
}


def carry_out(context: HostContext, kind: OperationKind, image_id: str | None, asked: Asked) -> None:
    """An operation that this agent has taken, to its end. Raises what the database does."""
    with context.store.read() as session:
        image = reads.image(session, image_id)
    if image is None or image.deleted:
        return _end(context, asked, reason=Reason("internal", {"detail": "the image is not in the catalogue any more"}))
    try:
        outcome = DOERS[kind](Job(context, asked, image))
    except Cancelled:
        _end(context, asked, cancelled=True)
    except LeftAlone:
        log.info("operation.left", operation=asked.id, kind=str(kind))
    except Refused as refused:
        _end(context, asked, reason=refused.reason)
    except EngineUnreachable as error:
        _again(context, asked, Reason(error.code, {"host": context.host_name, "since": context.now().isoformat()}))
    except ImageHeld as error:      # a container that is just being removed
        _again(context, asked, trouble.reason_of(error, context.host_name))
    except (OtherVersion, CommitUnknown):
        raise           # says nothing about the image: it is done again
    except AppError as error:
        log.warning("operation.failed", kind=str(kind), image=image.id, detail=str(error))
        _end(context, asked, reason=trouble.reason_of(error, context.host_name))
    except Exception as error:
        if is_unavailable(error):
            raise
        log.exception("operation.failed", kind=str(kind), image=image.id)
        _end(context, asked, reason=Reason("internal", {"detail": type(error).__name__}))
    else:
        _end(context, asked, outcome)
        look(context)


def look(context: HostContext) -> None:
    """Which images of the catalogue the host has; and away with what was made after somebody had ended it."""
    with context.store.read() as session:
        images = reads.images(session)
        unsaved = reads.unsaved(session, context.host_id) if agent_reads.may_act(session, context.epoch) else ()
    try:
        there = context.engine.list_images()
        for image_id in unsaved:
            context.engine.remove_image(saved_reference(context.instance, image_id))
    except EngineError as error:
        log.debug("images.not_seen", host=context.host_name, detail=str(error))
        return
    named = {image.id: image.reference or image.pulled for image in images}
    found = {id_: there[name] for id_, name in named.items() if name is not None and name in there}
    with context.store.write() as session:
        image_records.on_host(session, context.host_id, found, epoch=context.epoch, now=context.now())


def _again(context: HostContext, asked: Asked, reason: Reason) -> None:
    """A moment may change it. A registry that says nothing for minutes looks like a silent engine: not for ever."""
    tries = context.image_tries[asked.id] = context.image_tries.get(asked.id, 0) + 1
    if tries >= MOST_TRIES:
        del context.image_tries[asked.id]
        return _end(context, asked, reason=reason)
    log.warning("operation.put_back", operation=asked.id, host=context.host_name, tries=tries, reason=reason.code)
    write_down(context, lambda session: operations.put_back(session, asked.id))
    context.sleep(PAUSE_SECONDS)


def _end(
    context: HostContext, asked: Asked, outcome: Outcome | None = None, *, reason: Reason | None = None,
    cancelled: bool = False,
) -> None:
    def end(session: Session) -> None:
        if not agent_reads.is_newest_agent(session, context.epoch):
            return
        ended = operations.finish(session, asked.id, result=outcome.result if outcome else None, reason=reason,
                                  cancelled=cancelled, now=context.now())
        if ended and outcome:
            outcome.record(session)

    write_down(context, end)
