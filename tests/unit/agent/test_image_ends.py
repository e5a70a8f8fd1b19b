"""Images that are deleted, and which of them a host has."""

from __future__ import annotations

from sqlalchemy import select

from agent.image_room import BASE, DOCKERFILE, SILENCE, done, image, on_host, prepare, run_by_hand
from agent.stage import IMAGE, Stage
from webapp.agent import images as work
from webapp.domain.container import ImageFacts
from webapp.services import images, workspaces
from webapp.store.tables import HostImage


class TestDelete:
    def test_names_go_and_the_entry_with_them(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        operation = prepare(stage, dockerfile=DOCKERFILE)
        done(stage, operation)
        work.look(stage.context)
        assert operation.image_id in on_host(stage)

        done(stage, stage.do(images.delete, stage.cast.carol, operation.image_id))

        assert image(stage, operation).deleted_at and operation.image_id not in on_host(stage)
        assert set(stage.machine.images) == {IMAGE, "debian:12.11"}

    def test_base_goes_too_unless_somebody_uses_it(self, stage: Stage, registry: dict[str, ImageFacts]) -> None:
        operation = prepare(stage)
        done(stage, operation)
        run_by_hand(stage, BASE)
        done(stage, stage.do(images.delete, stage.cast.carol, operation.image_id))
        assert set(stage.machine.images) == {IMAGE, BASE}

    def test_workspace_that_is_just_going_is_waited_for(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.stop(workspace)
        stage.settle()
        stage.do(workspaces.remove, stage.cast.alice, workspace.id)     # its container is still there
        operation = stage.do(images.delete, stage.cast.carol, stage.cast.image_id)
        done(stage, operation)
        assert image(stage, operation).deleted_at and IMAGE not in stage.machine.images

    def test_foreign_container_keeps_it(self, stage: Stage) -> None:
        run_by_hand(stage, IMAGE)
        operation = stage.do(images.delete, stage.cast.carol, stage.cast.image_id)
        stage.live(30)
        row = stage.operation(operation)
        assert row.reason is not None and row.reason["code"] == "image_held"
        assert image(stage, operation).deleted_at is None and stage.running(name="again")
        assert "by-hand" in stage.machine.containers

    def test_deleted_twice_is_deleted(self, stage: Stage) -> None:
        operation = stage.do(images.delete, stage.cast.carol, stage.cast.image_id)
        stage.machine.images.clear()
        done(stage, operation)
        assert image(stage, operation).deleted_at


class TestOnHost:
    def test_what_a_host_has_is_seen_with_each_description(self, stage: Stage) -> None:
        stage.settle()
        assert on_host(stage) == {stage.cast.image_id}
        with stage.store.read() as session:
            row = session.scalars(select(HostImage)).one()
        assert (row.engine_id, row.size_bytes) == (stage.machine.images[IMAGE].facts.id, 1_000_000)
        stage.machine.images.clear()
        stage.live(70)
        assert on_host(stage) == set()

    def test_older_agent_says_nothing(self, stage: Stage) -> None:
        old = stage.context
        stage.take_over()
        work.look(old)
        assert on_host(stage) == set()

    def test_silent_engine_is_no_reason_to_forget(self, stage: Stage) -> None:
        stage.settle()
        stage.engine.fail_next("list_images", SILENCE)
        work.look(stage.context)
        assert on_host(stage) == {stage.cast.image_id}
