"""Saving what is in a workspace as an image, on the engine's twin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from sqlalchemy import select

from agent.faults import Crash, MomentousEngine, MomentousStore, Moments, die
from agent.stage import INSTANCE, Stage, check_at_rest, sentence
from webapp.agent import saving
from webapp.domain.container import File, Room
from webapp.domain.images import saved_reference
from webapp.domain.operation import OperationState
from webapp.domain.workspace import Phase
from webapp.errors import DiskFull, EngineRejected
from webapp.services import images, operations
from webapp.store.tables import Image, Operation, Workspace

INSTALLED = "/opt/berth/py/lib/flash_attn.py"


@pytest.fixture
def workspace(stage: Stage) -> Workspace:
    """It runs, and something was installed in it."""
    workspace = stage.running()
    stage.engine.put(stage.name(workspace), [File(INSTALLED, 0o644, 10000, 10000, b"fast")])
    return workspace


def save(stage: Stage, workspace: Workspace, **given: Any) -> Operation:
    operation: Operation = stage.do(images.save, stage.cast.alice, workspace.id,
                                    **{"title": "With flash-attn", "team_id": None, **given})
    return operation


def entries(stage: Stage) -> list[Image]:
    """What was saved, or is being saved."""
    with stage.store.read() as session:
        return list(session.scalars(select(Image).where(Image.saved_from.is_not(None))))


def saved_images(stage: Stage) -> list[str]:
    return [name for name in stage.machine.images if name.startswith(f"berth-{INSTANCE}/saved:")]


def failed(stage: Stage, operation: Operation) -> dict[str, Any]:
    stage.settle()
    row = stage.operation(operation)
    assert row.state == OperationState.FAILED and row.reason is not None and sentence(row.reason), row.state
    assert entries(stage) == [] and saved_images(stage) == []
    return row.reason


def test_what_runs_is_saved_and_runs_on(stage: Stage, workspace: Workspace) -> None:
    operation = save(stage, workspace)
    stage.settle()

    entry, = entries(stage)
    assert entry.reference == saved_reference(INSTANCE, entry.id) in stage.machine.images
    assert (entry.size_bytes, entry.architecture) == (1_000_000, "amd64")
    row = stage.operation(operation)
    assert (row.state, row.result) == (
        OperationState.DONE, {"reference": entry.reference, "size_bytes": 1_000_000})
    assert stage.row(workspace).phase == Phase.RUNNING
    check_at_rest(stage)


def test_one_of_the_team_has_what_was_installed_and_their_own_name(stage: Stage, workspace: Workspace) -> None:
    save(stage, workspace, team_id=stage.cast.team_id)
    stage.settle()
    entry, = entries(stage)
    with stage.store.write() as session:
        labelled = stage.machine.images[str(entry.reference)]
        assert labelled.facts.labels["berth.image.contract"] == "1"
        assert session.get_one(Image, entry.id).team_id == stage.cast.team_id
    bobs = stage.launch(stage.cast.bob, image_id=entry.id)
    stage.settle()

    name = stage.name(bobs)
    assert stage.row(bobs).phase == Phase.RUNNING
    assert stage.engine.read_file(name, INSTALLED) == b"fast"
    passwd = (stage.engine.read_file(name, "/etc/passwd") or b"").decode().splitlines()
    assert [line.split(":")[0] for line in passwd].count("bob") == 1
    spec = stage.machine.containers[name].spec
    assert spec.environment["HOME"] == "/home/bob" and spec.uid != stage.machine.containers[
        stage.name(workspace)].spec.uid
    assert spec.labels["berth.workspace"] == bobs.id


def test_the_saver_opens_it_to_others_first(stage: Stage, workspace: Workspace) -> None:
    save(stage, workspace)
    stage.settle()
    opened = [call for call in stage.engine.calls if call[0] == "exec" and "chmod" in call]
    assert opened == [("exec", stage.name(workspace), "chmod", "-R", "a+rwX", saving.PERSONS_PYTHON)]


def test_what_is_stopped_is_saved(stage: Stage, workspace: Workspace) -> None:
    stage.stop(workspace)
    stage.settle()
    save(stage, workspace)
    stage.settle()
    entry, = entries(stage)
    assert entry.reference in stage.machine.images and stage.row(workspace).phase == Phase.STOPPED


def test_nothing_of_berth_is_in_it(stage: Stage, workspace: Workspace) -> None:
    save(stage, workspace)
    stage.settle()
    kept = stage.machine.images[saved_images(stage)[0]]
    assert not [path for path in kept.files if path.startswith(("/etc/berth", "/home"))]
    marks = {key: value for key, value in kept.facts.labels.items() if not key.startswith("berth.image.")}
    assert set(marks.values()) == {""}


def test_without_a_container_there_is_nothing_to_save(stage: Stage, workspace: Workspace) -> None:
    stage.engine.remove_by_hand(stage.name(workspace))
    operation = save(stage, workspace)
    assert failed(stage, operation)["code"] == "nothing_to_save"


def test_without_room_it_is_not_begun(stage: Stage, workspace: Workspace) -> None:
    stage.machine.room = Room(1, 10**12)
    assert failed(stage, save(stage, workspace))["code"] == "no_room_to_move"
    assert not [call for call in stage.engine.calls if call[0] == "commit"]


@pytest.mark.parametrize(("error", "code"), [
    (DiskFull(host="gpu1", detail="no space left on device"), "disk_full"),
    (EngineRejected(host="gpu1", detail="layer is broken"), "engine_rejected"),
])
def test_commit_that_fails_leaves_nothing(stage: Stage, workspace: Workspace, error: Exception, code: str) -> None:
    stage.engine.fail_next("commit", error)
    assert failed(stage, save(stage, workspace))["code"] == code
    assert stage.row(workspace).phase == Phase.RUNNING


def test_cancelled_in_its_middle_it_leaves_nothing(
    stage: Stage, workspace: Workspace, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine does not break a commit off: what it makes after all is taken away."""
    monkeypatch.setattr(saving, "RECORD_SECONDS", 0.01)
    begun, go_on, taken_away = threading.Event(), threading.Event(), threading.Event()
    commit, remove = stage.engine.commit, stage.engine.remove_image

    def slow(name: str, reference: str, **keywords: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return commit(name, reference, **keywords)

    def cancel_in_its_middle() -> None:
        begun.wait(30)
        with stage.store.write() as session:
            assert operations.cancel(session, stage.cast.alice, operation.id, now=stage.clock.now())

    monkeypatch.setattr(stage.engine, "commit", slow)
    operation = save(stage, workspace)
    hand = threading.Thread(target=cancel_in_its_middle)
    hand.start()
    stage.settle()
    hand.join()
    assert stage.operation(operation).state == OperationState.CANCELLED and entries(stage) == []

    def watched(reference: str) -> None:
        remove(reference)
        taken_away.set()

    monkeypatch.setattr(stage.engine, "remove_image", watched)
    go_on.set()
    assert taken_away.wait(30)
    assert saved_images(stage) == []


def test_what_was_made_after_an_agent_died_is_taken_away(stage: Stage, workspace: Workspace) -> None:
    """Cancelled, and then its agent was killed while the engine was at the commit."""
    operation = save(stage, workspace)
    assert operation.image_id is not None
    stage.do(operations.take, operation.id)
    stage.do(operations.cancel, stage.cast.alice, operation.id)
    with stage.store.write() as session:
        operations.requeue_running(session)
    stage.engine.commit(stage.name(workspace), saved_reference(INSTANCE, operation.image_id))
    stage.take_over()
    stage.settle()
    assert entries(stage) == [] and saved_images(stage) == []


def test_images_that_no_row_knows_stay(stage: Stage, workspace: Workspace) -> None:
    """They may be of a database that was put back to yesterday's."""
    stage.engine.commit(stage.name(workspace), saved_reference(INSTANCE, "unknown00000"))
    stage.take_over()
    stage.live(70)
    assert saved_images(stage)


@pytest.mark.parametrize("prior", [lambda stage, workspace: None, Stage.stop], ids=["running", "stopped"])
def test_killed_at_any_moment_the_next_agent_ends_it(
    stage: Stage, workspace: Workspace, prior: Callable[..., None],
) -> None:
    prior(stage, workspace)
    stage.settle()
    for at in range(1, 30):
        moments = Moments(at, die)
        operation = save(stage, workspace, title=f"Number {at}")
        stage.take_over(engine=cast(Any, MomentousEngine(stage.engine, moments)),
                        store=cast(Any, MomentousStore(stage.store, moments)))
        try:
            stage.settle()
        except Crash:
            stage.take_over()
            with stage.store.write() as session:
                operations.requeue_running(session)
            stage.settle()
        assert stage.operation(operation).state == OperationState.DONE
        with stage.store.read() as session:
            assert session.get_one(Image, operation.image_id).reference in stage.machine.images
        if not moments.came:
            assert at > 5
            return
    raise AssertionError("it had no end")
