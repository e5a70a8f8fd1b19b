"""Images from registries, for operations: counted in bytes and layers, by the digest that was seen first."""

from __future__ import annotations

from functools import partial

import structlog

from webapp.agent.jobs import Job, Outcome, Progress, Refused
from webapp.agent.policy import refuse_architecture
from webapp.domain.container import ImageFacts, PullProgress
from webapp.domain.images import digest_in
from webapp.domain.reasons import Reason
from webapp.services import image_records
from webapp.store.reads import image_work as reads

log = structlog.get_logger(__name__)


def pull(job: Job) -> Outcome:
    """Where the registry has given the tag to another image since, the old one is pulled, and the result says so."""
    name, digest = job.image.pulled, job.image.digest
    if name is None:
        raise Refused(Reason("image_gone", {"image": job.image.reference or "", "host": job.context.host_name}))
    facts = fetch(job, name, digest=digest)
    refuse_other_architecture(job, name, facts)
    seen = digest_in(facts.digests, name)
    moved = job.engine.registry_digest(name) if digest else None
    if moved not in (None, digest):
        log.warning("image.tag_moved", image=name, digest=digest, now=moved)
    result = {"reference": name, "digest": digest or seen, "size_bytes": facts.size_bytes,
              "moved_to": moved if moved != digest else None}
    return Outcome(result, partial(image_records.pulled, image_id=job.image.id, facts=facts, digest=seen))


def fetch(job: Job, name: str, *, digest: str | None = None) -> ImageFacts:
    """The image on the host; pulled when it is not there."""
    def tell(pulled: PullProgress) -> None:
        job.tell(progress_of(pulled))

    return job.engine.ensure_image(name, tell, digest=digest)


def progress_of(pulled: PullProgress) -> Progress:
    return {"step": "pull", "number": None, "of": None, "done_bytes": pulled.done_bytes,
            "total_bytes": pulled.total_bytes, "layers_done": pulled.layers_done, "layers_total": pulled.layers_total}


def refuse_other_architecture(job: Job, name: str, facts: ImageFacts) -> None:
    with job.context.store.read() as session:
        own = reads.host(session, job.context.host_id).architecture
    if refusal := refuse_architecture(name, facts, host=job.context.host_name, own=own):
        raise Refused(refusal)
