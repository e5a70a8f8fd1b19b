"""Saving what is in a workspace as an image of the catalogue."""

from __future__ import annotations

import threading
from functools import partial

import structlog

from webapp.agent.jobs import RECORD_SECONDS, Cancelled, Job, Outcome, Refused
from webapp.domain import moving
from webapp.domain.container import Container, ImageFacts
from webapp.domain.images import saved_reference
from webapp.domain.plan import own_containers
from webapp.domain.reasons import Reason
from webapp.engines import Engine
from webapp.errors import EngineError
from webapp.services import image_records
from webapp.store.reads import agent as agent_reads
from webapp.store.reads import image_work as reads

log = structlog.get_logger(__name__)

PERSONS_PYTHON = "/opt/berth/py"    # images/README.md: where `pip install` goes
OPENING_SECONDS = 120.0


def save(job: Job) -> Outcome:
    """The engine stands a running container still while it copies. Nobody can launch the image before it is whole."""
    container = _newest(job)
    layer = job.engine.layer(container.name)
    if refusal := moving.refusal(layer, job.engine.room(), job.context.host_name):
        raise Refused(refusal)
    reference = saved_reference(job.context.instance, job.image.id)
    job.tell({"step": "save", "size_bytes": layer.size_bytes})
    _open_to_others(job, container)
    facts = _Commit(job.engine, container.name, reference).wait(job)
    result = {"reference": reference, "size_bytes": facts.size_bytes}
    return Outcome(result, partial(image_records.saved, image_id=job.image.id, facts=facts,
                                   reference=reference, now=job.now()))


def _newest(job: Job) -> Container:
    """The newest of the workspace's own containers that has ever run: what one was made for has not, has nothing."""
    with job.context.store.read() as session:
        workspace = agent_reads.workspace(
            session, job.asked.workspace_id or "", job.context.instance, epoch=job.context.epoch)
    if workspace is not None:
        for container in own_containers(workspace.wanted, tuple(job.engine.list())):
            if container.was_started:
                return container
    raise Refused(Reason("nothing_to_save", {"host": job.context.host_name}))


def _open_to_others(job: Job, container: Container) -> None:
    """Whoever launches the image has another uid, and must be able to change what its saver installed. Only the saver
    may open it: root in a container has no rights over files of others, and a stopped one runs nothing.
    """
    with job.context.store.read() as session:
        uid = reads.saver(session, job.asked.workspace_id or "")
    if not container.is_up or uid is None:
        return
    try:
        job.engine.exec(container.name, ["chmod", "-R", "a+rwX", PERSONS_PYTHON], deadline_seconds=OPENING_SECONDS,
                        user=str(uid))
    except EngineError as error:    # it ended this moment: it is saved as it is
        log.warning("image.not_opened", image=job.image.id, detail=str(error))


class _Commit:
    """An engine does not break a commit off. Whoever waits may go; what it makes after that is taken away again."""

    def __init__(self, engine: Engine, name: str, reference: str) -> None:
        self._engine, self._name, self._reference = engine, name, reference
        self._over = threading.Event()
        self._given_up = False
        self._lock = threading.Lock()
        self._facts: ImageFacts | None = None
        self._error: BaseException | None = None

    def wait(self, job: Job) -> ImageFacts:
        threading.Thread(target=self._run, name=f"save-{job.image.id}", daemon=True).start()
        try:
            while not self._over.wait(RECORD_SECONDS):
                job.check()
            job.check()
        except Cancelled:       # not LeftAlone: the next agent makes the image of this name anew
            self._give_up()
            raise
        if self._facts is None:
            raise self._error or RuntimeError("a commit ended without an image")
        return self._facts

    def _run(self) -> None:
        try:
            self._engine.remove_image(self._reference)      # of a try that was broken off
            self._facts = self._engine.commit(self._name, self._reference)
        except BaseException as error:      # whatever it is, it is raised where it is waited for
            self._error = error
        with self._lock:
            self._over.set()
            given_up = self._given_up
        if given_up:
            self._take_away()

    def _give_up(self) -> None:
        with self._lock:
            self._given_up = True
            is_over = self._over.is_set()
        if is_over:
            self._take_away()

    def _take_away(self) -> None:
        try:
            self._engine.remove_image(self._reference)
        except EngineError as error:
            log.warning("image.not_taken_away", image=self._reference, detail=str(error))
