"""Private images that nobody needs any more go within a minute; what somebody may need stays."""

from __future__ import annotations

import pytest

from agent.changed import INSTALLED, used
from agent.stage import HOST, IMAGE, Stage, check_at_rest
from webapp.domain.container import LABEL_PRIVATE_IMAGE
from webapp.domain.plan import private_image
from webapp.errors import EngineUnreachable
from webapp.store.tables import Workspace


def r(workspace: Workspace, revision: int) -> str:
    return private_image("test1", workspace.id, revision)


def commit(stage: Stage, workspace: Workspace, revision: int, *, of: int = 1) -> None:
    """As by an agent that could do nothing more after it."""
    stage.engine.commit(stage.name(workspace, of), r(workspace, revision), private=True)


def test_what_an_agent_left_that_died(stage: Stage) -> None:
    workspace = used(stage)
    commit(stage, workspace, 2)
    commit(stage, workspace, 2)         # and one without a name
    stage.take_over()
    stage.settle()
    assert list(stage.machine.images) == [IMAGE]
    check_at_rest(stage)


def test_what_came_after_its_workspace_was_gone(stage: Stage) -> None:
    workspace = used(stage)
    stage.engine.commit(stage.name(workspace), "late:1", private=True)
    stage.remove(workspace)
    stage.settle()
    stage.machine.tag(r(workspace, 2), stage.machine.images.pop("late:1"))
    stage.live(70)
    assert list(stage.machine.images) == [IMAGE]


def test_image_of_the_container_stays_also_when_that_is_stopped(stage: Stage) -> None:
    workspace = used(stage)
    stage.change(workspace, shm="4GiB")
    stage.settle()
    stage.stop(workspace)
    stage.live(70)
    assert sorted(stage.machine.images) == sorted([IMAGE, r(workspace, 2)])


def test_image_of_a_container_that_was_removed_by_hand_stays(stage: Stage) -> None:
    workspace = used(stage)
    stage.change(workspace, shm="4GiB")
    stage.settle()
    commit(stage, workspace, 3, of=2)
    stage.engine.remove_by_hand(stage.name(workspace, 2))
    stage.live(70)
    assert sorted(stage.machine.images) == sorted([IMAGE, r(workspace, 2)])
    stage.start(workspace)
    stage.settle()
    assert stage.engine.read_file(stage.name(workspace, 3), INSTALLED.path) == INSTALLED.content


def test_nothing_is_taken_from_under_a_move(stage: Stage) -> None:
    workspace = used(stage)
    for _ in range(3):
        stage.engine.fail_next("create", EngineUnreachable(host=HOST, detail="timed out"))
    stage.change(workspace, shm="4GiB")
    stage.settle()
    assert r(workspace, 2) in stage.machine.images
    stage.take_over()
    stage.loop.one_pass()
    assert r(workspace, 2) in stage.machine.images


@pytest.mark.parametrize("name", ["berth-test1/w-nobody:r2", "berth-other/w-abc:r2", "berth-test1/saved:1", "mine:1"])
def test_image_that_belongs_to_no_workspace_stays(stage: Stage, name: str) -> None:
    """The database may be older than the image, as after a restore."""
    workspace = used(stage)
    commit(stage, workspace, 2)
    stage.machine.tag(name, stage.machine.images.pop(r(workspace, 2)))
    stage.live(70)
    assert name in stage.machine.images


def test_commit_of_somebody_without_a_name_stays(stage: Stage) -> None:
    """Its container says that no image of it is private."""
    workspace = used(stage)
    stage.change(workspace, shm="4GiB")
    stage.settle()
    facts = stage.engine.commit(stage.name(workspace, 2), "by-hand:1")
    stage.machine.images[facts.id] = stage.machine.images.pop("by-hand:1")
    assert facts.labels[LABEL_PRIVATE_IMAGE] == ""
    stage.live(70)
    assert facts.id in stage.machine.images


def test_steady_host_is_asked_once_a_minute_and_changed_never(stage: Stage) -> None:
    used(stage)
    stage.live(100)
    stage.forget_calls()
    stage.live(120)
    assert 1 <= sum(call[0] == "private_images" for call in stage.engine.calls) <= 3
    assert stage.deeds() == []
