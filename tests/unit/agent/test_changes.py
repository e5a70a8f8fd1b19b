"""Changes of a workspace: what runs goes on where it can, is moved where it must, and is as it was where it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from agent.changed import INSTALLED, SILENCE, assert_moved, the_container, used
from agent.rack import Rack, card
from agent.stage import HOST, IMAGE, Stage, check_at_rest
from webapp.domain.container import LABEL_PRIVATE_IMAGE
from webapp.domain.operation import OperationKind
from webapp.domain.sizes import GIB
from webapp.domain.workspace import Health, Phase, Service
from webapp.errors import EngineRejected, NoCapacity
from webapp.services import operations, volumes
from webapp.store.tables import Workspace


@pytest.fixture(autouse=True)
def rack(stage: Stage) -> Rack:
    """Four cards in two pairs."""
    return stage.add_cards(4)


class TestLive:
    """CPU and memory: at once, and nothing in it ends."""

    def test_it_goes_on_with_other_limits(self, stage: Stage) -> None:
        workspace = used(stage)
        was = stage.row(workspace)
        stage.change(workspace, cpus="4", memory="16GiB")
        stage.settle()
        container, row = the_container(stage), stage.row(workspace)
        assert (container.spec.limits.cpu_millis, container.spec.limits.memory_bytes) == (4000, 16 * GIB)
        assert stage.deeds() == [f"update {container.id}"]
        assert (row.phase, row.health, row.started_at, row.progress) == (
            Phase.RUNNING, Health.OK, was.started_at, was.progress)
        check_at_rest(stage)

    def test_ssh_that_does_not_answer_just_now_does_not_end_it(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.silent = {Service.SSH}
        stage.change(workspace, cpus="4")
        stage.settle()
        assert (stage.row(workspace).phase, the_container(stage).is_up) == (Phase.RUNNING, True)

    def test_one_that_is_down_has_them_before_it_starts(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.stop(workspace)
        stage.settle()
        stage.change(workspace, memory="4GiB")
        stage.settle()
        stage.forget_calls()
        stage.start(workspace)
        stage.settle()
        container = the_container(stage)
        assert [deed.split()[0] for deed in stage.deeds()] == ["update", "put", "start"]
        assert (container.name, container.spec.limits.memory_bytes) == (stage.name(workspace), 4 * GIB)
        check_at_rest(stage)

    def test_back_to_what_it_was_made_with(self, stage: Stage) -> None:
        workspace = used(stage)
        for memory in ("16GiB", "8GiB"):
            stage.change(workspace, memory=memory)
            stage.settle()
        assert the_container(stage).spec.limits.memory_bytes == 8 * GIB
        check_at_rest(stage)

    def test_less_than_is_in_use_is_not_tried(self, stage: Stage) -> None:
        workspace = used(stage)
        the_container(stage).memory_used = 6 * GIB
        stage.change(workspace, cpus="4", memory="4GiB")
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.memory_bytes, row.cpu_millis, row.reason) == (Phase.RUNNING, 8 * GIB, 2000, None)
        assert stage.noted(workspace) == "It uses 6 GiB of memory, so it cannot be limited to 4 GiB now."
        assert stage.deeds() == []
        check_at_rest(stage)
        the_container(stage).memory_used = GIB
        stage.change(workspace, memory="4GiB")
        stage.settle()
        assert (stage.row(workspace).memory_bytes, stage.noted(workspace)) == (4 * GIB, None)

    def test_more_is_given_without_asking_what_is_in_use(self, stage: Stage) -> None:
        workspace = used(stage)
        the_container(stage).memory_used = 8 * GIB
        stage.change(workspace, memory="9GiB")
        stage.settle()
        assert stage.row(workspace).memory_bytes == 9 * GIB

    def test_engine_that_refuses_leaves_it_as_it_was(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.engine.fail_next("update", EngineRejected(host=HOST, detail="device or resource busy"))
        stage.engine.fail_next("update", EngineRejected(host=HOST, detail="device or resource busy"))
        stage.change(workspace, memory="4GiB")
        stage.settle()
        assert (stage.row(workspace).phase, stage.row(workspace).memory_bytes) == (Phase.RUNNING, 8 * GIB)
        assert "device or resource busy" in str(stage.noted(workspace))
        check_at_rest(stage)

    def test_silent_engine_is_asked_again(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.engine.fail_next("update", SILENCE, after=True)
        stage.change(workspace, memory="16GiB")
        stage.live(20)
        assert the_container(stage).spec.limits.memory_bytes == 16 * GIB
        check_at_rest(stage)

    def test_changed_while_its_host_was_silent_it_goes_on_too(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.engine.down, stage.silent = True, {Service.SSH}
        stage.live(5)
        assert stage.row(workspace).phase == Phase.UNKNOWN
        stage.change(workspace, memory="16GiB")
        stage.live(5)
        stage.engine.down = False
        stage.live(10)
        assert (stage.row(workspace).phase, the_container(stage).is_up) == (Phase.RUNNING, True)
        assert the_container(stage).spec.limits.memory_bytes == 16 * GIB

    def test_container_that_crashes_later_keeps_them(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.change(workspace, memory="16GiB")
        stage.settle()
        stage.engine.end(stage.name(workspace), 1)
        stage.forget_calls()
        stage.live(10)
        assert (stage.row(workspace).phase, the_container(stage).spec.limits.memory_bytes) == (
            Phase.RUNNING, 16 * GIB)
        assert not [deed for deed in stage.deeds() if deed.startswith("update")]


class TestMoved:
    CHANGES = [
        pytest.param({"gpus": "1"}, {"gpus": "3"}, id="more cards"),
        pytest.param({"gpus": "2"}, {"gpus": "1"}, id="fewer cards"),
        pytest.param({"gpus": "2"}, {"gpu_uuids": (card(1), card(3))}, id="one card swapped"),
        pytest.param({"gpus": "1"}, {"gpus": "0"}, id="without cards"),
        pytest.param({}, {"gpus": "1"}, id="with cards"),
        pytest.param({}, {"shm": "4GiB"}, id="shared memory"),
        pytest.param({"gpus": "1"}, {"shm": "1GiB", "memory": "4GiB", "gpu_uuids": (card(3),)}, id="all at once"),
    ]

    @pytest.mark.parametrize(("before", "typed"), CHANGES)
    def test_while_it_runs(self, stage: Stage, before: Any, typed: Any) -> None:
        workspace = used(stage, **before)
        ports = stage.ports(workspace)
        stage.change(workspace, **typed)
        container = assert_moved(stage, workspace, ports)
        assert stage.cards(workspace) == sorted(container.spec.gpus.uuids) == sorted(stage.row(workspace).gpu_uuids)

    @pytest.mark.parametrize(("before", "typed"), CHANGES)
    @pytest.mark.parametrize("at_once", [True, False])
    def test_at_its_start(self, stage: Stage, before: Any, typed: Any, at_once: bool) -> None:
        workspace = used(stage, **before)
        ports = stage.ports(workspace)
        stage.stop(workspace)
        stage.settle()
        stage.change(workspace, start=at_once, **typed)
        if not at_once:
            stage.settle()
            assert stage.row(workspace).phase == Phase.STOPPED
            stage.start(workspace)
        assert_moved(stage, workspace, ports)

    def test_page_shows_it_moving(self, stage: Stage) -> None:
        workspace, shown = used(stage), []
        commit = stage.engine.commit

        def watched(*arguments: Any, **named: Any) -> Any:
            shown.append((stage.row(workspace).phase, stage.steps(workspace)["kept"]))
            return commit(*arguments, **named)

        stage.engine.commit = watched       # type: ignore[method-assign]
        stage.change(workspace, shm="4GiB")
        stage.settle()
        assert shown == [(Phase.MOVING, "running")]

    def test_mounts(self, stage: Stage) -> None:
        def create(name: str) -> str:
            return str(stage.do(volumes.create_volume, stage.cast.carol, name=name, team_id=stage.cast.team_id,
                                host_folder=None, target=None, read_only=False, roots=()).id)
        data, more = create("data"), create("more")
        workspace = used(stage, mounts=((data, True),))
        ports = stage.ports(workspace)
        stage.change(workspace, mounts=((data, False), (more, True)))
        container = assert_moved(stage, workspace, ports)
        mounted = {mount.target: mount.read_only for mount in container.spec.mounts if mount.target.startswith("/data")}
        assert mounted == {"/data/data": False, "/data/more": True}

    def test_two_at_once_are_one_move(self, stage: Stage) -> None:
        workspace = used(stage, gpus="1")
        ports = stage.ports(workspace)
        stage.change(workspace, gpu_uuids=(card(1),))
        stage.change(workspace, gpu_uuids=(card(2),), shm="4GiB")
        assert_moved(stage, workspace, ports)
        assert stage.cards(workspace) == [card(2)]

    def test_taken_back_by_its_owner_in_time_nothing_moves(self, stage: Stage) -> None:
        workspace = used(stage, gpus="1")
        stage.change(workspace, gpu_uuids=(card(2),))
        stage.change(workspace, gpu_uuids=(card(0),))
        stage.settle()
        assert (stage.deeds(), stage.cards(workspace)) == ([], [card(0)])
        check_at_rest(stage)

    def test_old_cards_are_nobody_elses_before_the_new_container_runs(self, stage: Stage) -> None:
        workspace, held = used(stage, gpus="1"), []
        start = stage.engine.start

        def watched(name: str) -> None:
            held.append(stage.cards(workspace))
            start(name)

        stage.engine.start = watched        # type: ignore[method-assign]
        stage.change(workspace, gpu_uuids=(card(2),))
        stage.settle()
        assert (held, stage.cards(workspace)) == ([[card(0), card(2)]], [card(2)])

    def test_many_moves_leave_one_image(self, stage: Stage) -> None:
        workspace = used(stage)
        for shm in ("1GiB", "3GiB", "4GiB", "1GiB"):
            stage.change(workspace, shm=shm)
            stage.settle()
        assert the_container(stage).name == stage.name(workspace, 5)
        assert stage.engine.read_file(stage.name(workspace, 5), INSTALLED.path) == INSTALLED.content
        assert sorted(stage.machine.images) == sorted([IMAGE, f"berth-test1/w-{workspace.id}:r5"])
        stage.remove(workspace)
        stage.settle()
        assert list(stage.machine.images) == [IMAGE]

    def test_upgrade_moves_nobody(self, stage: Stage) -> None:
        """Its container was made before shared memory and mounts stood in a label."""
        workspace = used(stage)
        container = the_container(stage)
        shape = container.spec.labels["berth.shape"]
        labels = {key: value for key, value in container.spec.labels.items()
                  if key not in ("berth.shape", "berth.limits", LABEL_PRIVATE_IMAGE)}
        object.__setattr__(container.spec, "labels", labels)
        with stage.store.write() as session:
            session.get_one(Workspace, workspace.id).shape_unlabelled = shape
        stage.settle()
        assert stage.deeds() == []
        stage.stop(workspace)
        stage.settle()
        stage.start(workspace)
        stage.settle()
        assert (the_container(stage).id, stage.row(workspace).phase) == (container.id, Phase.RUNNING)
        stage.change(workspace, shm="4GiB")
        assert_moved(stage, workspace, stage.ports(workspace))


class TestNamelessImages:
    """A commit whose answer is lost may reach the engine twice; what is left of it has no name."""

    def test_are_swept(self, stage: Stage) -> None:
        workspace = used(stage)
        commit = stage.engine.commit

        def twice(name: str, reference: str, **named: Any) -> Any:
            commit(name, reference, **named)
            return commit(name, reference, **named)

        stage.engine.commit = twice         # type: ignore[method-assign]
        stage.change(workspace, shm="4GiB")
        assert_moved(stage, workspace, stage.ports(workspace))
        assert len(stage.machine.images) == 2

    def test_what_was_saved_by_hand_is_not(self, stage: Stage) -> None:
        workspace = used(stage)
        stage.change(workspace, shm="4GiB")
        stage.settle()
        stage.engine.commit(stage.name(workspace, 2), "of-somebody:1")
        stage.machine.tag("of-somebody:1", stage.machine.images[IMAGE])      # so that the commit has no name any more
        stage.change(workspace, shm="1GiB")
        stage.settle()
        nameless = [name for name in stage.machine.images if name.startswith("sha256:")]
        assert len(nameless) == 1


class TestSize:
    def ask(self, stage: Stage, workspace: Workspace) -> Any:
        operation = stage.do(operations.request, stage.cast.alice, OperationKind.WORKSPACE_SIZE,
                             workspace_id=workspace.id, arguments={})
        stage.settle()
        return stage.operation(operation).result

    def test_is_what_was_written(self, stage: Stage) -> None:
        workspace = stage.running()
        before = self.ask(stage, workspace)
        stage.engine.put(stage.name(workspace), [INSTALLED])
        after = self.ask(stage, workspace)
        assert after["size_bytes"] == before["size_bytes"] + len(INSTALLED.content or b"")
        assert (after["layers"], after["free_bytes"]) == (1, 10**12)

    def test_without_a_container_there_is_none(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.stop(workspace)
        stage.settle()
        stage.engine.remove_by_hand(stage.name(workspace))
        stage.machine.room = None
        assert self.ask(stage, workspace) == {"size_bytes": 0, "layers": 0, "free_bytes": None}


def test_card_goes_to_one_of_two(stage: Stage) -> None:
    """A change and a launch want the same card: one has it, the other is told so."""
    workspace = used(stage, gpus="1")
    stage.change(workspace, gpu_uuids=(card(2),))
    for number in (0, 2):
        with pytest.raises(NoCapacity):
            stage.launch(name="other", gpu_uuids=(card(number),))
    stage.settle()
    assert stage.cards(stage.running(name="other", gpu_uuids=(card(0),))) == [card(0)]
    check_at_rest(stage)
