"""What tests of work on images share: requests, and how they ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import select

from agent.stage import Stage, sentence
from webapp.domain.container import ImageFacts
from webapp.domain.operation import OperationState
from webapp.errors import EngineUnreachable
from webapp.services import images, operations
from webapp.store.tables import HostImage, Image, Operation

BASE = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
REPOSITORY = BASE.partition(":")[0]
DIGEST = f"sha256:{'a' * 64}"
FACTS = ImageFacts("sha256:base", 5_000_000_000, "amd64", (), {}, digests=(f"{REPOSITORY}@{DIGEST}",))
DOCKERFILE = "FROM debian:12.11\n\nRUN apt-get update \\\n    && apt-get install --yes git\nENV CUDA_VERSION=11.8.0\n"
SILENCE = EngineUnreachable(host="gpu1", detail="Connection reset by peer")


def offer_in_registry(stage: Stage) -> dict[str, ImageFacts]:
    """The registry has the base, and what the Dockerfile begins with."""
    stage.machine.registry |= {BASE: FACTS, "debian:12.11": replace(FACTS, id="sha256:debian", digests=())}
    return stage.machine.registry


def prepare(stage: Stage, **given: Any) -> Operation:
    operation: Operation = stage.do(images.prepare, stage.cast.carol, **{
        "title": "Mine", "base": None if "dockerfile" in given else BASE, "dockerfile": None, "cuda_version": None,
        "with_jupyter": True, **given})
    return operation


def pull(stage: Stage) -> Operation:
    operation: Operation = stage.do(images.pull, stage.cast.carol, stage.cast.image_id)
    return operation


def done(stage: Stage, operation: Operation) -> Operation:
    stage.settle()
    row = stage.operation(operation)
    assert row.state == OperationState.DONE, (row.state, row.reason)
    return row


def failed(stage: Stage, operation: Operation) -> dict[str, Any]:
    """The reason; its sentence lacks no fact."""
    stage.settle()
    row = stage.operation(operation)
    assert row.state == OperationState.FAILED and row.reason is not None, row.state
    assert sentence(row.reason)
    return row.reason


def image(stage: Stage, operation: Operation) -> Image:
    with stage.store.read() as session:
        return session.get_one(Image, operation.image_id)


def on_host(stage: Stage) -> set[str]:
    with stage.store.read() as session:
        return set(session.scalars(select(HostImage.image_id)))


def run_by_hand(stage: Stage, reference: str) -> None:
    workspace = stage.running()
    spec = replace(stage.machine.containers[stage.name(workspace)].spec, name="by-hand", labels={})
    stage.remove(workspace)
    stage.settle()
    with stage.machine.lock:
        stage.machine.add(spec, stage.machine.images[reference])


def start_anew(stage: Stage) -> None:
    """Another agent, as after a crash."""
    stage.take_over()
    with stage.store.write() as session:
        operations.requeue_running(session)
