"""Pulls: how far they are, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from agent.faults import MomentousStore, Moments
from agent.stage import FAR, Stage, assert_failed_and_clean, check_at_rest
from webapp.domain.container import ImageFacts, PullProgress
from webapp.domain.workspace import Phase
from webapp.errors import PullFailed, RegistryRefused
from webapp.services import images, people
from webapp.store.tables import Image


@pytest.fixture
def far_image(stage: Stage) -> ImageFacts:
    return stage.far_image()


def slow(stage: Stage, seconds: int, *, at: Callable[[int], None]) -> Iterator[PullProgress]:
    """Ten reports a second."""
    for tenth in range(seconds * 10):
        stage.clock.sleep(0.1)
        if tenth % 10 == 0:
            at(tenth // 10)
        yield PullProgress(tenth, seconds * 10)


def test_progress_is_shown_and_written_at_most_once_a_second(stage: Stage, far_image: ImageFacts) -> None:
    workspace, shown = stage.launch(), set()
    commits = Moments(0, lambda: None)
    stage.take_over(store=cast(Any, MomentousStore(stage.store, commits)))
    written: list[int] = []

    def look(second: int) -> None:
        written.append(commits.reached)
        row = stage.row(workspace)
        assert row.phase == Phase.PULLING
        shown.add(row.progress["steps"][0]["done_bytes"])

    stage.machine.pull_script = slow(stage, 6, at=look)  # type: ignore[assignment]
    stage.settle()

    assert len(shown) == 6
    assert written[-1] - written[0] == 5
    assert stage.row(workspace).phase == Phase.RUNNING


@pytest.mark.parametrize(("wish", "phase"), [(Stage.stop, Phase.STOPPED), (Stage.remove, Phase.REMOVED)])
def test_stop_or_removal_ends_a_pull(
    stage: Stage, far_image: ImageFacts, wish: Callable[..., None], phase: Phase,
) -> None:
    workspace, reached = stage.launch(), []

    def change_mind(second: int) -> None:
        reached.append(second)
        if second == 3:
            wish(stage, workspace)

    stage.machine.pull_script = slow(stage, 60, at=change_mind)  # type: ignore[assignment]
    stage.settle()

    assert max(reached) <= 5, "the pull went on"
    assert stage.row(workspace).phase == phase
    assert FAR not in stage.machine.images
    check_at_rest(stage)


def test_image_withdrawn_during_the_pull_ends_denied_and_clean(stage: Stage, far_image: ImageFacts) -> None:
    """F26"""
    workspace = stage.launch()

    def withdraw(second: int) -> None:
        if second == 1:
            stage.do(images.withdraw, stage.cast.carol, stage.cast.image_id)

    stage.machine.pull_script = slow(stage, 3, at=withdraw)  # type: ignore[assignment]
    stage.settle()
    assert_failed_and_clean(stage, workspace, "image_withdrawn")


def test_owner_deactivated_during_the_pull_ends_stopped_and_clean(
    stage: Stage, far_image: ImageFacts,
) -> None:
    """F26"""
    workspace = stage.launch()

    def leave(second: int) -> None:
        if second == 1:
            stage.do(people.deactivate_member, stage.cast.carol, stage.cast.alice.member_id)

    stage.machine.pull_script = slow(stage, 3, at=leave)  # type: ignore[assignment]
    stage.settle()
    assert stage.row(workspace).phase == Phase.STOPPED
    assert stage.containers() == []


def test_what_may_pass_is_tried_again(stage: Stage, far_image: ImageFacts) -> None:
    stage.engine.fail_next("ensure_image", PullFailed(host="gpu1", image=FAR, detail="TLS handshake timeout"))
    workspace = stage.launch()
    stage.settle()
    assert "TLS handshake timeout" in str(stage.said(workspace)) and stage.row(workspace).next_try_at is not None
    stage.live(5)
    assert stage.row(workspace).phase == Phase.RUNNING


def test_registry_that_wants_a_login_is_not_asked_again(stage: Stage, far_image: ImageFacts) -> None:
    stage.engine.fail_next("ensure_image", RegistryRefused(host="gpu1", image=FAR, detail="unauthorized"))
    workspace = stage.launch()
    stage.settle()
    assert_failed_and_clean(stage, workspace, "registry_refused")


def test_image_is_pulled_by_the_digest_that_is_on_record(stage: Stage, far_image: ImageFacts) -> None:
    former, digest = replace(far_image, id="sha256:former"), "sha256:" + "a" * 64
    stage.machine.registry[f"{FAR.rpartition(':')[0]}@{digest}"] = former
    with stage.store.write() as session:
        session.get_one(Image, stage.cast.image_id).digest = digest
    stage.machine.registry[FAR] = replace(far_image, digests=(f"{FAR.rpartition(':')[0]}@sha256:{'b' * 64}",))
    stage.running()
    assert stage.machine.images[FAR].facts.id == "sha256:former"
