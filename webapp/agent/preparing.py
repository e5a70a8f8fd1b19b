"""Preparing an image: its base is pulled, or built from a Dockerfile, and looked at; the workspace image goes on top.

Done twice it does no harm: what is there already is taken, and what was built lies in the engine's cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from webapp.agent.jobs import Job, Outcome, Progress, Refused
from webapp.agent.policy import refuse_image
from webapp.agent.pulling import fetch, refuse_other_architecture
from webapp.domain import cuda
from webapp.domain.container import ImageFacts
from webapp.domain.dockerfile import Dockerfile, parse_dockerfile, read
from webapp.domain.images import BuildOutput, base_reference, cuda_in, digest_in, is_made_here
from webapp.domain.reasons import Reason
from webapp.engines import recipe
from webapp.errors import BuildFailed
from webapp.services import image_records
from webapp.store.reads import image_work as reads


@dataclass(frozen=True, slots=True)
class Base:
    """What the workspace image is built on."""

    reference: str
    facts: ImageFacts
    known_as: str           # the name that may say which CUDA is inside
    digest: str | None


def prepare(job: Job) -> Outcome:
    base = _built(job, job.image.dockerfile) if job.image.dockerfile else _obtained(job)
    job.tell(_step("check"))
    _judge(job, base)
    with_jupyter = bool(job.asked.arguments.get("with_jupyter", job.image.has_jupyter))
    reference = recipe.workspace_reference(base.reference, jupyter=with_jupyter)
    _refuse_known(job, reference)
    facts = job.engine.image(reference) or _build(
        job, "build", recipe.workspace_context(), reference,
        recipe.workspace_arguments(reference, base.reference, jupyter=with_jupyter))
    if refusal := refuse_image(reference, facts):
        raise Refused(refusal)
    typed = job.asked.arguments.get("cuda_version")
    cuda_version = typed or cuda_in({**base.facts.labels, **base.facts.environment}, base.known_as) or \
        job.image.cuda_version
    job.flush(_step("done"))
    record = partial(
        image_records.prepared, image_id=job.image.id, facts=facts, reference=reference, digest=base.digest,
        cuda_version=cuda_version, has_jupyter=with_jupyter, now=job.now())
    return Outcome({"reference": reference, "digest": job.image.digest or base.digest, "size_bytes": facts.size_bytes,
                    "cuda_version": cuda_version, "driver": _driver_too_old(job, cuda_version)}, record)


def _obtained(job: Job) -> Base:
    """A base that people know by name. The one that is made where no registry answers is never pulled."""
    name = job.image.base or ""
    if not is_made_here(name):
        facts = fetch(job, name, digest=job.image.digest)
        return Base(name, facts, name, digest_in(facts.digests, name))
    for reference in (recipe.local_base_reference(), name) if name == recipe.LOCAL_BASE else (name,):
        if found := job.engine.image(reference):
            return Base(reference, found, name, None)
    raise Refused(Reason("image_gone", {"image": name, "host": job.context.host_name}))


def _built(job: Job, text: str) -> Base:
    judged = parse_dockerfile(text)
    for name in judged.bases:
        if not is_made_here(name):
            fetch(job, name)
    reference = base_reference(job.context.instance, job.image.id, text)
    facts = _build(job, "base", recipe.dockerfile_context(text), reference, {}, judged)
    return Base(reference, facts, judged.bases[-1] if judged.bases else reference, None)


def _build(
    job: Job, step: str, context: bytes, reference: str, arguments: Mapping[str, str],
    judged: Dockerfile | None = None,
) -> ImageFacts:
    latest = _step(step)

    def tell(output: BuildOutput) -> None:
        nonlocal latest
        latest = _step(step, output.step, output.steps)
        job.tell(latest, output.text)

    job.tell(latest)
    try:
        return job.engine.build(context, reference, arguments=arguments, tell=tell)
    except BuildFailed as error:
        job.flush(latest)
        raise Refused(_reason(error, judged)) from error


def _reason(error: BuildFailed, judged: Dockerfile | None) -> Reason:
    """With the line of the Dockerfile that a person wrote; the recipe's own lines say nothing to them."""
    facts = error.facts
    line, command = facts.get("line"), facts.get("command")
    if judged is not None and line is None and facts.get("step"):
        line = judged.line_of_step(facts["step"])
    if judged is not None and not command:
        command = next((f"{each.word} {each.rest}" for each in read(judged.text) if each.line == line), None)
    return Reason("build_failed", {"line": line if judged is not None else None, "command": command or "Dockerfile",
                                   "detail": facts.get("detail", ""), "last": facts.get("last", "")})


def _judge(job: Job, base: Base) -> None:
    refuse_other_architecture(job, base.known_as, base.facts)
    if base.facts.volumes:
        raise Refused(Reason("image_has_volumes", {"image": base.known_as, "volumes": ", ".join(base.facts.volumes)}))


def _refuse_known(job: Job, reference: str) -> None:
    with job.context.store.read() as session:
        title = reads.title_of_reference(session, reference, but=job.image.id)
    if title is not None:
        raise Refused(Reason("image_known", {"title": title}))


def _driver_too_old(job: Job, cuda_version: str | None) -> dict[str, object] | None:
    """A fact for people, no failure: where it is so on every host, the driver may be upgraded before the first launch.
    """
    with job.context.store.read() as session:
        drivers = reads.host(session, job.context.host_id).drivers
    refusals = [cuda.refusal(cuda_version, driver) for driver in drivers]
    return refusals[0].as_json() if refusals and refusals[0] and all(refusals) else None


def _step(name: str, number: int | None = None, of: int | None = None) -> Progress:
    return {"step": name, "number": number, "of": of}
