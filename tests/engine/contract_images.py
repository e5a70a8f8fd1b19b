"""What every engine does with images: pull, build, name, remove. Part of the contract."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from typing import TypeVar

import pytest
from contract_lab import Lab, Spec

from webapp.domain.container import PullProgress
from webapp.domain.images import BuildOutput, digest_in
from webapp.errors import BuildFailed, EngineError, ImageHeld, ImageNotFound

T = TypeVar("T")


class ChangedMind(Exception):
    """Whoever waits wants it no more."""


def context(*lines: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry, content = tarfile.TarInfo("Dockerfile"), "\n".join(lines).encode()
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def after(count: int, heard: list[T]) -> Callable[[T], None]:
    """A callback that keeps what it hears and changes its mind at the so-manieth."""
    def hear(what: T) -> None:
        heard.append(what)
        if len(heard) >= count:
            raise ChangedMind
    return hear


class ImagesContract:
    # -- pull

    def test_a_pull_counts_bytes_and_layers_to_the_end(self, lab: Lab) -> None:
        heard: list[PullProgress] = []

        facts = lab.engine.ensure_image(lab.pulled, heard.append)

        assert facts == lab.engine.image(lab.pulled) and digest_in(facts.digests, lab.pulled)
        assert heard[-1].done_bytes == heard[-1].total_bytes
        assert 0 < heard[-1].layers_done == heard[-1].layers_total

    def test_a_pull_that_is_not_wanted_any_more_leaves_no_image(self, lab: Lab) -> None:
        with pytest.raises(ChangedMind):
            lab.engine.ensure_image(lab.pulled, after(1, []))

        assert lab.engine.image(lab.pulled) is None

    def test_by_its_digest_comes_what_the_tag_was_once(self, lab: Lab) -> None:
        first = lab.engine.ensure_image(lab.pulled, lambda progress: None)
        lab.engine.remove_image(lab.pulled)
        former = lab.move_tag()

        again = lab.engine.ensure_image(lab.pulled, lambda progress: None, digest=former)

        assert digest_in(again.digests, lab.pulled) == former and again.id == first.id
        assert lab.engine.image(lab.pulled) == again
        assert lab.engine.registry_digest(lab.pulled) not in (None, former)

    def test_another_image_under_the_name_makes_way_for_the_right_one(self, lab: Lab) -> None:
        former = lab.move_tag()
        wrong = lab.engine.ensure_image(lab.pulled, lambda progress: None)

        right = lab.engine.ensure_image(lab.pulled, lambda progress: None, digest=former)

        image = lab.engine.image(lab.pulled)
        assert image is not None and image.id == right.id != wrong.id

    def test_an_image_that_cannot_be_had_says_why(self, lab: Lab) -> None:
        reference = "localhost:9/berth-test/nowhere:1"
        assert lab.engine.image(reference) is None

        with pytest.raises(EngineError) as caught:
            lab.engine.ensure_image(reference, lambda progress: None)

        assert caught.value.facts["image"] == reference and caught.value.facts["detail"]
        assert lab.engine.registry_digest(reference) is None

    # -- build

    def test_a_build_makes_an_image_and_tells_its_steps(self, lab: Lab) -> None:
        heard: list[BuildOutput] = []

        facts = lab.engine.build(
            context("ARG BASE=nothing", "FROM ${BASE}", "ENV CUDA_VERSION=12.8.1", "LABEL colour=blue"), lab.committed,
            arguments={"BASE": lab.image}, tell=heard.append)

        assert facts == lab.engine.image(lab.committed)
        assert facts.labels["colour"] == "blue" and facts.environment["CUDA_VERSION"] == "12.8.1"
        assert [(output.step, output.steps) for output in heard if output.text.startswith("Step ")] == [
            (1, 4), (2, 4), (3, 4), (4, 4)]

    def test_a_step_that_fails_is_named(self, lab: Lab) -> None:
        with pytest.raises(BuildFailed) as caught:
            lab.engine.build(context(f"FROM {lab.image}", "RUN echo so far && exit 3"), lab.committed, arguments={},
                             tell=lambda output: None)

        facts = caught.value.facts
        assert (facts["step"], facts["command"]) == (2, "RUN echo so far && exit 3")
        assert "returned a non-zero code: 3" in facts["detail"]
        assert lab.engine.image(lab.committed) is None

    def test_a_build_that_is_not_wanted_any_more_leaves_no_image(self, lab: Lab) -> None:
        with pytest.raises(ChangedMind):
            lab.engine.build(context(f"FROM {lab.image}", "RUN sleep 60"), lab.committed, arguments={},
                             tell=after(2, []))

        assert lab.engine.image(lab.committed) is None

    # -- names

    def test_the_list_has_every_name_once(self, lab: Lab) -> None:
        lab.engine.tag(lab.image, lab.committed)
        facts = lab.engine.image(lab.image)

        listed = lab.engine.list_images()

        assert facts is not None and listed[lab.image] == listed[lab.committed]
        assert (listed[lab.image].id, listed[lab.image].size_bytes) == (facts.id, facts.size_bytes)

    def test_an_image_has_two_names_and_loses_them_one_by_one(self, lab: Lab) -> None:
        facts = lab.engine.ensure_image(lab.pulled, lambda progress: None)
        lab.engine.tag(lab.pulled, lab.committed)

        lab.engine.remove_image(lab.pulled)

        left = lab.engine.image(lab.committed)
        assert lab.engine.image(lab.pulled) is None and left is not None and left.id == facts.id

    def test_what_is_not_there_gets_no_name(self, lab: Lab) -> None:
        with pytest.raises(ImageNotFound):
            lab.engine.tag("berth-test/nowhere:1", lab.committed)

    def test_an_image_in_use_is_not_removed_and_is_gone_after(self, lab: Lab, spec: Spec) -> None:
        lab.engine.commit(lab.engine.create(spec()), lab.committed)
        user = lab.engine.create(spec("2", image=lab.committed))
        with pytest.raises(ImageHeld):
            lab.engine.remove_image(lab.committed)
        lab.engine.remove(user)
        lab.engine.remove_image(lab.committed)

        assert lab.engine.image(lab.committed) is None
