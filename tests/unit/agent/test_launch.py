"""A launch, from the row to a workspace that answers, and all the ways in which it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.stage import IMAGE, Stage, assert_failed_and_clean, check, check_at_rest
from webapp.domain.workspace import Health, Phase, Service
from webapp.errors import DiskFull, EngineRejected, EngineUnreachable, ImageNotFound
from webapp.services import keys, volumes
from webapp.store.tables import Host, Workspace

SILENCE = EngineUnreachable(host="gpu1", detail="timed out")
FULL = DiskFull(host="gpu1", detail="no space left on device")


def fail_times(stage: Stage, call: str, error: Exception, times: int) -> None:
    for _ in range(times):
        stage.engine.fail_next(call, error)


class TestRunning:
    def test_launch_becomes_a_running_workspace(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.settle()

        row = stage.row(workspace)
        assert (row.phase, row.health, row.reason, row.note) == (Phase.RUNNING, Health.OK, None, None)
        assert (row.revision, row.observed_generation, row.failures, row.next_try_at) == (1, 1, 0, None)
        assert row.container_id == stage.containers()[0].id
        check_at_rest(stage)

    def test_one_create_one_archive_one_start(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.settle()
        name = stage.name(workspace)
        assert stage.deeds() == [f"create {name}", f"put {name}", f"start {name}"]

    def test_steps_have_their_times_in_order(self, stage: Stage) -> None:
        workspace = stage.running()
        steps = stage.row(workspace).progress["steps"]
        times = [time for step in steps for time in (step["started_at"], step["ended_at"])]
        assert set(stage.steps(workspace).values()) == {"done"}
        assert times == sorted(times)

    def test_is_ready_only_when_ssh_and_jupyter_answer(self, stage: Stage) -> None:
        seen: list[dict[str, str]] = []
        workspace = stage.launch()

        def wake_up() -> None:
            seen.append(stage.steps(workspace))
            stage.silent -= {Service.SSH} if len(seen) == 1 else {Service.JUPYTER}

        stage.silent, stage.on_sleep = {Service.SSH, Service.JUPYTER}, wake_up
        stage.settle()

        assert [(steps["ssh"], steps["jupyter"], steps["ready"]) for steps in seen] == [
            ("running", "waiting", "waiting"), ("done", "running", "waiting")]
        assert stage.row(workspace).phase == Phase.RUNNING

    def test_image_without_jupyter_needs_only_ssh(self, stage: Stage) -> None:
        stage.machine.add_image("berth/workspace:slim-1", labels={"berth.image.contract": "1"})
        with stage.store.write() as session:
            keys.add_keys(session, stage.cast.alice, member_id=stage.cast.alice.member_id, title="",
                          text="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2kL5V6mFjGHqGkz0OGWsHzHwxVo4sTq2cTzCH8cZrB a",
                          now=stage.clock.now())
        stage.silent = {Service.JUPYTER}
        workspace = stage.running(image_id=stage.cast.slim_image_id)
        assert stage.steps(workspace)["jupyter"] == "skipped"
        assert set(stage.ports(workspace)) == {"ssh"}

    def test_jupyter_that_never_comes_leaves_ssh_and_is_said(self, stage: Stage) -> None:
        stage.silent = {Service.JUPYTER}
        workspace = stage.running()
        assert stage.steps(workspace)["jupyter"] == "failed"
        stage.live(25)
        assert stage.row(workspace).health == Health.DEGRADED
        assert "jupyter does not answer" in str(stage.said(workspace))

    def test_ssh_that_never_comes_fails_with_the_log(self, stage: Stage) -> None:
        stage.silent = {Service.SSH}
        stage.machine.on_start = lambda container: setattr(container, "log", "sshd: bad config\n")
        workspace = stage.launch()
        stage.settle()

        row = stage.row(workspace)
        assert (row.phase, row.log_tail) == (Phase.FAILED, "sshd: bad config\n")
        assert "ssh did not answer within 120 seconds" in str(stage.said(workspace))
        assert stage.steps(workspace)["ssh"] == "failed"
        assert not stage.containers()[0].is_up, "a failed workspace has no claim to run"

    def test_home_gets_its_skeleton_once(self, stage: Stage) -> None:
        written = []
        for number in range(2):
            workspace = stage.running(name=f"run-{number}")
            files = stage.machine.volumes[f"berth-test1-home-{stage.cast.alice.member_id}"]
            written.append(files.pop("/home/alice/.bashrc", None))
            stage.stop(workspace)
            stage.settle()
        assert [bool(file) for file in written] == [True, False]

    def test_image_users_are_read_once_per_image_and_hold_nobody_elses_name(self, stage: Stage) -> None:
        first = stage.running()
        stage.take_over()                                       # a new agent has nothing in memory
        stage.stop(first)
        stage.settle()
        stage.start(first)                                      # it reads alice's container, which has alice in it
        stage.settle()
        stage.running(actor=stage.cast.bob, name="of-bob")
        files = [container for container in stage.machine.containers.values() if "alice" not in container.spec.hostname]
        passwd = (files[-1].layer["/etc/passwd"].content or b"").decode()
        assert "bob:x:" in passwd and "alice" not in passwd

    def test_second_pass_changes_nothing(self, stage: Stage) -> None:
        """P8: reconcile twice = no change and no deed."""
        workspace = stage.running()
        before = vars(stage.row(workspace)).copy()
        stage.forget_calls()
        for _ in range(3):
            stage.settle()
        stage.take_over()
        stage.settle()
        after = vars(stage.row(workspace))
        assert stage.deeds() == []
        assert {key: value for key, value in after.items() if key[0] != "_"} == {
            key: value for key, value in before.items() if key[0] != "_"}


class TestRefused:
    def test_missing_image_fails_with_the_cause(self, stage: Stage) -> None:
        stage.far_image()
        stage.machine.registry.clear()
        workspace = stage.launch()
        stage.settle()
        assert "manifest unknown" in str(stage.said(workspace))
        assert stage.steps(workspace)["image"] == "failed"
        assert_failed_and_clean(stage, workspace, "image_not_found")

    def test_what_was_made_here_is_never_looked_for_in_a_registry(self, stage: Stage) -> None:
        stage.machine.registry[IMAGE] = stage.machine.images.pop(IMAGE).facts    # somebody else's, by chance or not
        workspace = stage.launch()
        stage.settle()
        assert not [call for call in stage.engine.calls if call[0] == "ensure_image"]
        assert_failed_and_clean(stage, workspace, "image_gone")

    def test_image_for_other_machines_is_refused(self, stage: Stage) -> None:
        image = stage.machine.images[IMAGE]
        image.facts = replace(image.facts, architecture="arm64")
        workspace = stage.launch()
        stage.settle()
        assert "for arm64 machines, and gpu1 is amd64" in str(stage.said(workspace))
        assert_failed_and_clean(stage, workspace, "other_architecture")

    def test_image_with_volume_is_refused(self, stage: Stage) -> None:
        image = stage.machine.images[IMAGE]
        image.facts = replace(image.facts, volumes=("/data",))
        workspace = stage.launch()
        stage.settle()
        assert_failed_and_clean(stage, workspace, "image_has_volumes")

    def test_image_that_is_no_workspace_image_is_refused(self, stage: Stage) -> None:
        image = stage.machine.images[IMAGE]
        image.facts = replace(image.facts, labels={})
        workspace = stage.launch()
        stage.settle()
        assert_failed_and_clean(stage, workspace, "image_not_workspace")

    def test_limit_that_web_should_not_have_written_is_refused(self, stage: Stage) -> None:
        workspace = stage.launch()
        with stage.store.write() as session:
            session.get_one(Workspace, workspace.id).memory_bytes = 0
        stage.settle()
        assert_failed_and_clean(stage, workspace, "limit_refused")

    @pytest.mark.parametrize("call", ["create", "put", "start"])
    def test_engine_that_says_no_fails_the_launch(self, stage: Stage, call: str) -> None:
        stage.engine.fail_next(call, EngineRejected(host="gpu1", detail="invalid mount config"))
        workspace = stage.launch()
        stage.settle()
        assert "invalid mount config" in str(stage.said(workspace))
        assert_failed_and_clean(stage, workspace, "engine_rejected")

    def test_image_that_vanishes_before_the_create_fails_clean(self, stage: Stage) -> None:
        stage.engine.fail_next("create", ImageNotFound(host="gpu1", image=IMAGE, detail="No such image"))
        workspace = stage.launch()
        stage.settle()
        assert_failed_and_clean(stage, workspace, "image_not_found")

    def test_start_pressed_after_a_failure_tries_again(self, stage: Stage) -> None:
        stage.engine.fail_next("create", EngineRejected(host="gpu1", detail="no"))
        workspace = stage.launch()
        stage.settle()
        stage.start(workspace)
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.reason, row.log_tail, row.failures) == (Phase.RUNNING, None, None, 0)


class TestTriedAgain:
    @pytest.mark.parametrize("call", ["ensure_image", "create", "put", "start"])
    def test_full_disk_is_tried_again_with_growing_waits_then_failed(self, stage: Stage, call: str) -> None:
        if call == "ensure_image":
            stage.far_image()
        fail_times(stage, call, FULL, 4)
        workspace = stage.launch()
        waits = []
        for _ in range(3):
            stage.settle()
            row = stage.row(workspace)
            assert row.phase != Phase.FAILED and "no space left" in str(stage.said(workspace))
            assert row.next_try_at is not None
            waits.append(round((row.next_try_at - stage.clock.time).total_seconds()))
            stage.clock.sleep(waits[-1] + 1)
        stage.settle()
        assert waits == [2, 5, 15]
        assert_failed_and_clean(stage, workspace, "disk_full")

    def test_folder_that_is_mounted_late_only_delays_the_start(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """After a restart of the machine, before its network file systems are there."""
        late = ["/srv/nfs/imagenet does not exist"] * 2
        monkeypatch.setattr("webapp.agent.policy.refusal_in_time", lambda *_: late.pop() if late else None)
        folder = stage.do(volumes.create_volume, stage.cast.carol, name="imagenet", team_id=stage.cast.team_id,
                          host_folder="/srv/nfs/imagenet", target=None, read_only=True, roots=["/srv/nfs"])
        workspace = stage.launch(mounts=((folder.id, True),))
        stage.settle()
        assert "/srv/nfs/imagenet does not exist" in str(stage.said(workspace))
        stage.live(10)
        assert (stage.row(workspace).phase, late) == (Phase.RUNNING, [])

    def test_room_that_is_made_in_time_saves_the_launch(self, stage: Stage) -> None:
        fail_times(stage, "create", FULL, 2)
        workspace = stage.launch()
        stage.live(20)
        row = stage.row(workspace)
        assert (row.phase, row.reason, row.failures) == (Phase.RUNNING, None, 0)

    def test_pass_sleeps_until_the_next_try(self, stage: Stage) -> None:
        stage.engine.fail_next("create", FULL)
        stage.launch()
        stage.settle()
        assert stage.loop.one_pass() == pytest.approx(2, abs=0.2)

    def test_bug_in_a_step_is_told_and_tried_again(self, stage: Stage, log: list[Any]) -> None:
        stage.engine.fail_next("put", ZeroDivisionError())
        workspace = stage.launch()
        stage.settle()
        assert stage.said(workspace) == "Something went wrong inside Berth: ZeroDivisionError"
        assert [entry["event"] for entry in log if entry["log_level"] == "error"] == ["worker.failed"]
        log.clear()
        stage.live(5)
        assert stage.row(workspace).phase == Phase.RUNNING


class TestLostAnswers:
    """L2: a time-out means "unknown", not "failed"."""

    @pytest.mark.parametrize("call", ["create", "put", "start", "read_file", "list", "image"])
    @pytest.mark.parametrize("after", [False, True])
    def test_one_container_and_it_runs(self, stage: Stage, call: str, after: bool) -> None:
        """F7, F8"""
        workspace = stage.launch()
        stage.loop.context.engine.prepare()
        if call == "list":
            stage.loop.one_pass = lambda: stage.work_on(workspace) or 1.0  # type: ignore[method-assign]
        stage.engine.fail_next(call, SILENCE, after=after)
        stage.settle()
        assert stage.row(workspace).next_try_at is not None
        assert "does not answer" in str(stage.said(workspace))
        check(stage)

        stage.take_over()
        stage.live(6)

        row = stage.row(workspace)
        assert (row.phase, row.reason, row.failures) == (Phase.RUNNING, None, 0)
        assert len(stage.containers()) == 1
        check_at_rest(stage)

    def test_no_number_of_silences_fails_a_launch(self, stage: Stage) -> None:
        fail_times(stage, "create", SILENCE, 12)
        workspace = stage.launch()
        stage.live(50)
        assert stage.row(workspace).phase != Phase.FAILED
        stage.live(30)
        assert stage.row(workspace).phase == Phase.RUNNING

    def test_container_removed_by_hand_before_its_start_is_made_again(self, stage: Stage) -> None:
        workspace = stage.launch()
        stage.engine.fail_next("put", SILENCE)
        stage.settle()
        stage.engine.remove_by_hand(stage.name(workspace))
        stage.live(6)
        assert stage.row(workspace).phase == Phase.RUNNING

    def test_container_that_is_gone_at_its_start_is_made_again(self, stage: Stage) -> None:
        """The list showed it; the start finds nothing."""
        workspace = stage.launch()

        def vanish(*_: object) -> None:
            stage.engine.put = original  # type: ignore[method-assign]
            stage.engine.remove_by_hand(stage.name(workspace))

        original = stage.engine.put
        stage.engine.put = vanish  # type: ignore[method-assign, assignment]
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING
        assert len(stage.containers()) == 1


def test_several_launches_at_once_get_ports_of_their_own(stage: Stage) -> None:
    launched = [stage.launch(name=f"run-{number}") for number in range(5)]
    stage.settle()
    ports = [port for workspace in launched for port in stage.ports(workspace).values()]
    assert len(set(ports)) == 10
    check_at_rest(stage)


def test_bug_in_one_workspace_does_not_stop_others(stage: Stage, log: list[Any]) -> None:
    """P9"""
    broken, sound = stage.launch(name="broken"), stage.launch(name="sound")
    create = stage.engine.create

    def only_sound(spec: Any) -> str:
        if spec.hostname == "broken":
            raise KeyError("a bug")
        return create(spec)

    stage.engine.create = only_sound  # type: ignore[method-assign]
    stage.live(60)
    log.clear()
    assert stage.row(sound).phase == Phase.RUNNING
    assert (stage.row(broken).phase, stage.said(broken)) == (
        Phase.FAILED, "Something went wrong inside Berth: KeyError")


def test_host_is_recorded_as_seen_with_its_facts(stage: Stage) -> None:
    stage.settle()
    with stage.store.read() as session:
        host = session.get_one(Host, stage.cast.host_id)
    assert host.seen_at is not None and host.capabilities is not None
    assert host.capabilities["network_guarded"] is True


