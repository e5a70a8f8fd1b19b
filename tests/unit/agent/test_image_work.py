"""Images by the agent: pulled and prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from agent.faults import Crash, MomentousEngine, MomentousStore, Moments, die
from agent.image_room import (
    BASE,
    DIGEST,
    DOCKERFILE,
    FACTS,
    SILENCE,
    done,
    failed,
    image,
    on_host,
    prepare,
    pull,
    start_anew,
)
from agent.stage import FAR, IMAGE, INSTANCE, Stage
from webapp.agent import images as work
from webapp.agent.jobs import MOST_LOG
from webapp.domain.container import ImageFacts, PullProgress
from webapp.domain.images import BuildOutput, base_reference
from webapp.domain.operation import OperationState
from webapp.engines import recipe
from webapp.errors import BuildFailed, DiskFull, PullFailed, RegistryRefused
from webapp.services import images, operations
from webapp.store.tables import Host, Image, Operation

NEWER = f"sha256:{'b' * 64}"


def cancel(stage: Stage, operation: Operation) -> bool:
    ended: bool = stage.do(operations.cancel, stage.cast.carol, operation.id)
    return ended


def slowly(stage: Stage, seconds: int, at: Callable[[int], None]) -> Iterator[PullProgress]:
    """A report a second."""
    for second in range(seconds):
        stage.clock.sleep(1.0)
        at(second)
        yield PullProgress(second, seconds, 0, 1)


class TestPull:
    def test_it_is_counted_and_the_digest_is_kept(self, stage: Stage) -> None:
        digest = f"{FAR.rpartition(':')[0]}@{DIGEST}"
        facts = stage.far_image()
        stage.machine.registry[FAR] = replace(facts, digests=(digest,), size_bytes=7)
        seen: list[Any] = []
        stage.machine.pull_script = slowly(  # type: ignore[assignment]
            stage, 3, lambda second: seen.append(stage.operation(operation).progress))
        operation = pull(stage)
        row = done(stage, operation)

        assert row.result == {"reference": FAR, "digest": DIGEST, "size_bytes": 7, "moved_to": None}
        assert seen[-1] == {"step": "pull", "number": None, "of": None, "done_bytes": 1, "total_bytes": 3,
                            "layers_done": 0, "layers_total": 1}
        entry = image(stage, operation)
        assert (entry.digest, entry.size_bytes, entry.architecture) == (DIGEST, 7, "amd64")
        assert entry.id in on_host(stage)

    def test_tag_that_was_moved_is_noticed_and_the_old_image_is_pulled(self, stage: Stage) -> None:
        facts, repository = stage.far_image(), FAR.rpartition(":")[0]
        stage.machine.registry[f"{repository}@{DIGEST}"] = replace(facts, digests=(f"{repository}@{DIGEST}",))
        stage.machine.registry[FAR] = replace(facts, id="sha256:new", digests=(f"{repository}@{NEWER}",))
        with stage.store.write() as session:
            session.get_one(Image, stage.cast.image_id).digest = DIGEST
        row = done(stage, pull(stage))

        assert row.result is not None and (row.result["digest"], row.result["moved_to"]) == (DIGEST, NEWER)
        assert stage.machine.images[FAR].facts.id == facts.id

    def test_cancelled_it_ends_within_two_seconds_and_goes_on_when_asked_again(self, stage: Stage) -> None:
        stage.far_image()
        reached: list[int] = []

        def change_mind(second: int) -> None:
            reached.append(second)
            if second == 3:
                assert cancel(stage, operation)

        stage.machine.pull_script = slowly(stage, 60, change_mind)  # type: ignore[assignment]
        operation = pull(stage)
        stage.settle()
        assert stage.operation(operation).state == OperationState.CANCELLED
        assert max(reached) <= 5 and FAR not in stage.machine.images
        stage.machine.pull_script = []
        done(stage, pull(stage))

    @pytest.mark.parametrize(("error", "code"), [
        (RegistryRefused(host="gpu1", image=FAR, detail="unauthorized"), "registry_refused"),
        (PullFailed(host="gpu1", image=FAR, detail="i/o timeout"), "pull_failed"),
        (DiskFull(host="gpu1", detail="no space left on device"), "disk_full"),
    ])
    def test_what_goes_wrong_is_the_reason(self, stage: Stage, error: Exception, code: str) -> None:
        stage.far_image()
        stage.engine.fail_next("ensure_image", error)
        assert failed(stage, pull(stage))["code"] == code

    def test_unknown_image_is_the_reason(self, stage: Stage) -> None:
        stage.far_image()
        stage.machine.registry.clear()
        assert failed(stage, pull(stage))["code"] == "image_not_found"

    def test_engine_that_falls_silent_is_waited_for(self, stage: Stage) -> None:
        stage.far_image()
        for _ in range(2):
            stage.engine.fail_next("ensure_image", SILENCE)
        done(stage, pull(stage))

    def test_silence_in_every_pull_is_no_end_of_it(self, stage: Stage) -> None:
        stage.far_image()
        for _ in range(work.MOST_TRIES):
            stage.engine.fail_next("ensure_image", SILENCE)
        assert failed(stage, pull(stage))["code"] == "engine_unreachable"

    def test_agent_that_was_replaced_leaves_it_to_the_new_one(self, stage: Stage) -> None:
        stage.far_image()
        stage.machine.pull_script = slowly(  # type: ignore[assignment]
            stage, 9, lambda second: start_anew(stage) if second == 2 else None)
        operation = pull(stage)
        stage.loop.one_pass()
        assert stage.operation(operation).state == OperationState.WAITING
        stage.machine.pull_script = []
        done(stage, operation)

    def test_image_that_went_meanwhile_is_said(self, stage: Stage) -> None:
        stage.far_image()
        operation = pull(stage)
        with stage.store.write() as session:
            images.mark_deleted(session.get_one(Image, stage.cast.image_id), stage.clock.now())
        assert failed(stage, operation)["code"] == "internal"


class TestPrepare:
    def test_base_is_pulled_and_the_workspace_image_built_on_it(
        self, stage: Stage, registry: dict[str, ImageFacts],
    ) -> None:
        operation = prepare(stage)
        row = done(stage, operation)
        entry = image(stage, operation)

        assert entry.reference == recipe.workspace_reference(BASE, jupyter=True) in stage.machine.images
        assert (entry.digest, entry.cuda_version, entry.architecture, entry.has_jupyter) == (
            DIGEST, "12.8", "amd64", True)
        assert row.progress == {"step": "done", "number": None, "of": None}
        assert row.log is not None and row.log.startswith("Step 1/")
        assert stage.running(image_id=entry.id).image_reference == entry.reference

    def test_slim_one_has_no_jupyter(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        operation = prepare(stage, with_jupyter=False)
        done(stage, operation)
        entry = image(stage, operation)
        assert (entry.reference, entry.has_jupyter) == (recipe.workspace_reference(BASE, jupyter=False), False)

    def test_what_is_there_is_not_built_again(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        operation = prepare(stage)
        done(stage, operation)
        stage.forget_calls()
        done(stage, stage.do(images.prepare_again, stage.cast.carol, operation.image_id))
        assert not [call for call in stage.engine.calls if call[0] == "build"]

    @pytest.mark.parametrize(("typed", "environment", "expected"), [
        ("12.1", {"CUDA_VERSION": "12.4.1"}, "12.1"), (None, {"CUDA_VERSION": "12.4.1"}, "12.4"), (None, {}, "12.8")])
    def test_typed_cuda_counts_before_what_the_image_says(
        self, stage: Stage, registry: dict[str, ImageFacts], typed: str, environment: dict[str, str], expected: str,
    ) -> None:
        registry[BASE] = replace(FACTS, environment=environment)
        operation = prepare(stage, cuda_version=typed)
        done(stage, operation)
        assert image(stage, operation).cuda_version == expected

    def test_driver_that_is_too_old_everywhere_is_a_fact_and_no_failure(
        self, stage: Stage, registry: dict[str, ImageFacts],
    ) -> None:
        with stage.store.write() as session:
            session.get_one(Host, stage.cast.host_id).driver_version = "470.42.01"
        row = done(stage, prepare(stage))
        assert row.result is not None and row.result["driver"]["code"] == "cuda_too_old"

    @pytest.mark.parametrize(("facts", "code"), [
        (replace(FACTS, volumes=("/data",)), "image_has_volumes"),
        (replace(FACTS, architecture="arm64"), "other_architecture"),
    ])
    def test_base_that_will_not_do_is_refused_before_anything_is_built(
        self, stage: Stage, registry: dict[str, ImageFacts], facts: ImageFacts, code: str,
    ) -> None:
        registry[BASE] = facts
        operation = prepare(stage)
        assert failed(stage, operation)["code"] == code
        assert image(stage, operation).reference is None
        assert not [call for call in stage.engine.calls if call[0] == "build"]

    def test_image_of_another_entry_is_not_taken_over(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        stage.do(images.add, stage.cast.carol, title="Slim", base=None, cuda_version=None, has_jupyter=False,
                 reference=recipe.workspace_reference(BASE, jupyter=False))
        reason = failed(stage, prepare(stage, with_jupyter=False))
        assert (reason["code"], reason["facts"]["title"]) == ("image_known", "Slim")

    def test_base_that_this_server_made_is_not_pulled(self, stage: Stage) -> None:
        local = recipe.local_base_reference()
        operation = prepare(stage, base=recipe.LOCAL_BASE)
        assert failed(stage, operation)["code"] == "image_gone"
        stage.machine.add_image(local)
        again = stage.do(images.prepare_again, stage.cast.carol, operation.image_id)
        done(stage, again)
        assert image(stage, again).reference == recipe.workspace_reference(local, jupyter=True)

    def test_dockerfile_is_built_first(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        operation = prepare(stage, dockerfile=DOCKERFILE)
        row = done(stage, operation)
        entry = image(stage, operation)
        base = base_reference(INSTANCE, entry.id, DOCKERFILE)

        assert base in stage.machine.images and "debian:12.11" in stage.machine.images
        assert entry.reference == recipe.workspace_reference(base, jupyter=True)
        assert entry.cuda_version == "11.8"
        assert row.log is not None and "RUN apt-get update" in row.log

    def test_line_that_fails_is_named(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        operation = prepare(stage, dockerfile="FROM debian:12.11\n\n# a comment\nRUN make \\\n  && exit 3\n")
        reason = failed(stage, operation)
        assert reason["code"] == "build_failed"
        assert (reason["facts"]["line"], reason["facts"]["command"].split()[:2]) == (4, ["RUN", "make"])
        assert "non-zero code: 3" in reason["facts"]["detail"]
        assert "Step 2/2" in str(stage.operation(operation).log)

    def test_line_that_cannot_be_read_is_named(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        detail = "dockerfile parse error on line 3: EXPOSE requires at least one argument"
        stage.engine.fail_next("build", BuildFailed(
            host="gpu1", detail=detail, step=None, command="", line=3, last=""))
        reason = failed(stage, prepare(stage, dockerfile="FROM debian:12.11\n\nEXPOSE\n"))
        assert (reason["facts"]["line"], reason["facts"]["command"].strip()) == (3, "EXPOSE")

    def test_lines_of_the_recipe_are_nobodys(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        stage.engine.fail_next("build", BuildFailed(
            host="gpu1", detail="no network", step=7, command="RUN apt-get update", line=None, last=""))
        reason = failed(stage, prepare(stage))
        assert (reason["facts"]["line"], reason["facts"]["command"]) == (None, "RUN apt-get update")

    def test_log_is_written_once_a_second_and_its_end_is_kept(
        self, stage: Stage, registry: dict[str, ImageFacts],
    ) -> None:
        commits = Moments(0, lambda: None)
        stage.take_over(store=cast(Any, MomentousStore(stage.store, commits)))
        written: list[int] = []

        def printed() -> Iterator[BuildOutput]:
            for tenth in range(100):
                stage.clock.sleep(0.1)
                written.append(commits.reached)
                yield BuildOutput(f"{tenth} {'x' * 2000}\n", 1, 1)

        stage.machine.build_script = printed()  # type: ignore[assignment]
        row = done(stage, prepare(stage))
        assert 8 <= written[-1] - written[0] <= 10
        assert row.log is not None and len(row.log) <= MOST_LOG and f"\n99 {'x' * 2000}" in row.log

    def test_cancelled_it_ends_and_can_be_asked_for_again(
        self, stage: Stage, registry: dict[str, ImageFacts],
    ) -> None:
        seconds: list[int] = []

        def printed() -> Iterator[BuildOutput]:
            for second in range(60):
                stage.clock.sleep(1.0)
                seconds.append(second)
                if second == 3:
                    cancel(stage, operation)
                yield BuildOutput("", 1, 1)

        stage.machine.build_script = printed()  # type: ignore[assignment]
        operation = prepare(stage)
        stage.settle()
        assert stage.operation(operation).state == OperationState.CANCELLED and max(seconds) <= 5
        assert image(stage, operation).reference is None
        stage.machine.build_script = []
        done(stage, prepare(stage))

    @pytest.mark.parametrize("given", [{}, {"dockerfile": DOCKERFILE}])
    def test_killed_at_any_moment_the_next_agent_ends_it(
        self, stage: Stage, registry: dict[str, ImageFacts], given: dict[str, str],
    ) -> None:
        for at in range(1, 40):
            moments = Moments(at, die)
            stage.machine.images = {IMAGE: stage.machine.images[IMAGE]}
            operation = prepare(stage, title=f"Number {at}", **given)
            stage.take_over(engine=cast(Any, MomentousEngine(stage.engine, moments)),
                            store=cast(Any, MomentousStore(stage.store, moments)))
            try:
                stage.settle()
            except Crash:
                start_anew(stage)
            row = done(stage, operation)
            assert image(stage, row).reference in stage.machine.images
            if not moments.came:
                assert at > 8
                return
        raise AssertionError("it had no end")
