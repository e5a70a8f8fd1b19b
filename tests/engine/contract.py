"""What every engine does, whatever it is made of: run by test_fake_engine.py and test_docker_engine.py."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from contract_changes import ChangesContract
from contract_endings import EndingsContract
from contract_images import ImagesContract
from contract_lab import UID, Lab, Spec, detail_of, eventually, running

from webapp.domain.container import Container, ContainerState, File, PublishedPort
from webapp.errors import EngineRejected, ImageNotFound, PortTaken

SECRET = b"not to be committed"


class EngineContract(EndingsContract, ImagesContract, ChangesContract):
    """Inherited by the test class of each adapter, whose module has a fixture `lab`."""

    # -- what is listed

    def test_list_shows_only_containers_of_its_own_instance(self, lab: Lab, spec: Spec) -> None:
        mine = lab.engine.create(spec())
        lab.other_engine.prepare()
        lab.other_engine.create(spec("9", engine_instance=lab.other_instance))

        assert [row.id for row in lab.engine.list()] == [mine]

    def test_list_shows_state_labels_and_age_of_each(self, lab: Lab, spec: Spec) -> None:
        created, running, ended = (lab.engine.create(spec(number)) for number in "123")
        lab.engine.start(running)
        lab.engine.start(ended)
        lab.engine.stop(ended, 2)

        def listed() -> dict[str, Container]:
            return {row.id: row for row in lab.engine.list()}

        eventually(lambda: not listed()[ended].is_up)       # 26.1 lists it as up for a moment after a stop
        rows = listed()
        assert rows[created].state is ContainerState.CREATED and not rows[created].is_up
        assert rows[running].state is ContainerState.RUNNING and rows[running].is_up
        assert rows[ended].state is ContainerState.EXITED and not rows[ended].is_up
        assert rows[running].name == spec("2").name and rows[running].revision == 1
        assert abs(datetime.now(UTC) - rows[running].created_at) < timedelta(minutes=1)

    def test_inspect_of_an_unknown_container_is_none(self, lab: Lab) -> None:
        assert lab.engine.inspect("berth-nothing-w-1") is None

    def test_inspect_takes_a_name_or_an_id(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())

        by_id, by_name = lab.engine.inspect(id_), lab.engine.inspect(spec().name)

        assert by_id is not None and by_name is not None
        assert by_id.container == by_name.container

    def test_inspect_tells_what_it_was_made_with(self, lab: Lab, spec: Spec) -> None:
        asked = spec()
        lab.engine.create(asked)

        making = detail_of(lab, asked.name).making

        assert making is not None and (making.image, making.uid) == (asked.image, asked.uid)
        assert dict(asked.environment).items() <= dict(making.environment).items()
        assert [(mount.volume, mount.target, mount.read_only) for mount in making.mounts] == [
            (mount.volume, mount.target, mount.read_only) for mount in asked.mounts]
        assert (making.shm_bytes, making.pids) == (asked.limits.shm_bytes, asked.limits.pids)

    def test_removal_by_hand_shows_at_once(self, lab: Lab, spec: Spec) -> None:
        lab.engine.start(lab.engine.create(spec()))

        lab.remove_by_hand(spec().name)

        assert lab.engine.list() == [] and lab.engine.inspect(spec().name) is None

    # -- create

    def test_create_twice_gives_one_container(self, lab: Lab, spec: Spec) -> None:
        assert lab.engine.create(spec()) == lab.engine.create(spec())
        assert len(lab.engine.list()) == 1

    @pytest.mark.parametrize("label", ["berth.instance", "berth.workspace", "berth.revision", "berth.ports",
                                       "berth.gpus"])
    def test_a_name_held_by_a_foreign_container_is_not_adopted(self, lab: Lab, spec: Spec, label: str) -> None:
        foreign = lab.engine.create(spec(labels={**spec().labels, label: "7"}))

        with pytest.raises(EngineRejected):
            lab.engine.create(spec())

        found = lab.engine.inspect(spec().name)
        assert found is not None and found.container.id == foreign

    def test_create_of_an_unknown_image_says_which(self, lab: Lab, spec: Spec) -> None:
        with pytest.raises(ImageNotFound) as caught:
            lab.engine.create(spec(image="berth-test/nowhere:1"))

        assert caught.value.facts["image"] == "berth-test/nowhere:1"

    @pytest.mark.parametrize("network", ["host", "none", "bridge", "container:berth-a-w-1"])
    def test_a_network_that_is_not_berths_is_refused(self, lab: Lab, spec: Spec, network: str) -> None:
        with pytest.raises(EngineRejected):
            lab.engine.create(spec(network=network))

        assert lab.engine.list() == []

    # -- start, stop, remove

    def test_start_twice_is_one_start(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        lab.engine.start(id_)
        first = detail_of(lab, id_).started_at
        lab.engine.start(id_)

        assert first is not None and detail_of(lab, id_).started_at == first

    def test_stop_twice_is_one_stop_and_leaves_the_exit_code(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())
        lab.engine.stop(id_, 5)
        lab.engine.stop(id_, 5)

        detail = detail_of(lab, id_)
        assert detail.container.state is ContainerState.EXITED
        assert detail.exit_code == 143 and not detail.oom_killed
        assert detail.started_at is not None and detail.finished_at is not None
        assert detail.started_at < detail.finished_at

    def test_a_stopped_container_starts_again_with_its_files(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())
        lab.engine.put(id_, [File("/home/kept", 0o644, UID, UID, b"yes")])
        lab.engine.stop(id_, 5)
        lab.engine.start(id_)

        assert lab.engine.read_file(id_, "/home/kept") == b"yes"
        assert detail_of(lab, id_).exit_code is None

    def test_stop_and_remove_of_what_is_absent_succeed(self, lab: Lab) -> None:
        lab.engine.stop("berth-nothing-w-1", 1)
        lab.engine.remove("berth-nothing-w-1")
        lab.engine.remove_volume("berth-nothing-w-1")
        lab.engine.remove_image("berth-test/nothing:1")

    def test_stop_of_a_created_container_leaves_it_created(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        lab.engine.stop(id_, 1)

        assert detail_of(lab, id_).container.state is ContainerState.CREATED

    @pytest.mark.parametrize("act", ["start", "put", "exec", "commit", "read_file"])
    def test_what_needs_a_container_is_refused_without_one(self, lab: Lab, act: str) -> None:
        name = "berth-nothing-w-1"
        acts: dict[str, Callable[[], object]] = {
            "start": lambda: lab.engine.start(name),
            "put": lambda: lab.engine.put(name, [File("/tmp/x", 0o600, 0, 0, b"")]),
            "exec": lambda: lab.engine.exec(name, ["id"], deadline_seconds=2),
            "commit": lambda: lab.engine.commit(name, "berth-test/x:1"),
            "read_file": lambda: lab.engine.read_file(name, "/etc/passwd"),
        }
        with pytest.raises(EngineRejected):
            acts[act]()

    def test_a_running_container_is_never_removed(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())

        with pytest.raises(EngineRejected):
            lab.engine.remove(id_)

        assert detail_of(lab, id_).container.is_up

    def test_remove_leaves_volumes_and_their_content(self, lab: Lab, spec: Spec) -> None:
        first = lab.engine.create(spec())
        lab.engine.put(first, [File("/etc/berth/token", 0o400, UID, UID, b"kept")])
        lab.engine.remove(first)
        lab.engine.remove(first)

        second = lab.engine.create(spec())

        assert second != first
        assert lab.engine.read_file(second, "/etc/berth/token") == b"kept"

    def test_a_volume_in_use_is_not_removed_and_is_gone_after(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        volume = f"{spec().name}-etc"
        lab.engine.put(id_, [File("/etc/berth/token", 0o400, UID, UID, b"old")])
        with pytest.raises(EngineRejected):
            lab.engine.remove_volume(volume)
        lab.engine.remove(id_)
        lab.engine.remove_volume(volume)

        assert lab.engine.read_file(lab.engine.create(spec()), "/etc/berth/token") is None

    # -- ports

    def test_ports_are_shown_as_they_were_asked_for(self, lab: Lab, spec: Spec) -> None:
        ports = (PublishedPort(2222, "127.0.0.1", lab.free_port()), PublishedPort(8888, "127.0.0.1", lab.free_port()))
        id_ = lab.engine.create(spec(ports=ports))
        assert set(detail_of(lab, id_).ports) == set(ports)
        lab.engine.start(id_)
        assert set(detail_of(lab, id_).ports) == set(ports)

    def test_a_port_of_another_program_is_named_and_nothing_is_left_behind(self, lab: Lab, spec: Spec) -> None:
        port = lab.free_port()
        id_ = lab.engine.create(spec(ports=(PublishedPort(2222, "127.0.0.1", port),)))
        with lab.listen(port):
            with pytest.raises(PortTaken) as caught:
                lab.engine.start(id_)
            detail = detail_of(lab, id_)
            assert caught.value.facts["port"] == port
            assert detail.container.state is ContainerState.CREATED and detail.started_at is None
            assert "in use" in detail.error or "allocated" in detail.error
            lab.engine.remove(id_)

        assert lab.engine.list() == []

    def test_a_port_of_another_container_is_named(self, lab: Lab, spec: Spec) -> None:
        ports = (PublishedPort(2222, "127.0.0.1", lab.free_port()),)
        running(lab, spec("1", ports=ports))
        second = lab.engine.create(spec("2", ports=ports))

        with pytest.raises(PortTaken) as caught:
            lab.engine.start(second)

        assert caught.value.facts["port"] == ports[0].host_port

    def test_a_container_starts_once_its_port_is_free_again(self, lab: Lab, spec: Spec) -> None:
        port = lab.free_port()
        id_ = lab.engine.create(spec(ports=(PublishedPort(2222, "127.0.0.1", port),)))
        with lab.listen(port), pytest.raises(PortTaken):
            lab.engine.start(id_)

        lab.engine.start(id_)

        assert detail_of(lab, id_).container.is_up

    # -- files

    @pytest.mark.parametrize("is_started", [False, True])
    def test_files_reach_volumes_and_the_layer(self, lab: Lab, spec: Spec, is_started: bool) -> None:
        id_ = lab.engine.create(spec())
        if is_started:
            lab.engine.start(id_)
        files = [
            File("/etc/berth", 0o700, UID, UID),
            File("/etc/berth/token", 0o400, UID, UID, b"t0ken"),
            File("/home/new/deep/file", 0o644, UID, UID, b"text"),
        ]
        lab.engine.put(id_, files)

        assert lab.engine.read_file(id_, "/etc/berth/token") == b"t0ken"
        assert lab.engine.read_file(id_, "/home/new/deep/file") == b"text"

    def test_a_file_that_is_put_again_is_replaced(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        for content in (b"a longer first text", b"second"):
            lab.engine.put(id_, [File("/etc/berth/keys", 0o600, UID, UID, content)])

        assert lab.engine.read_file(id_, "/etc/berth/keys") == b"second"

    def test_read_file_finds_the_images_own_and_is_none_for_the_rest(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        lab.engine.put(id_, [File("/home/folder", 0o755, UID, UID)])

        assert lab.engine.read_file(id_, "/only-in-image") == b"here"
        assert lab.engine.read_file(id_, "/no/such/file") is None
        assert lab.engine.read_file(id_, "/home/folder") is None

    # -- exec and logs

    def test_exec_sees_a_file_that_only_the_image_has(self, lab: Lab, spec: Spec) -> None:
        result = lab.engine.exec(running(lab, spec()), ["cat", "/only-in-image"], deadline_seconds=10)

        assert (result.exit_code, result.output, result.timed_out) == (0, "here", False)

    def test_exec_tells_failure_by_its_exit_code(self, lab: Lab, spec: Spec) -> None:
        result = lab.engine.exec(running(lab, spec()), ["cat", "/no/such/file"], deadline_seconds=10)

        assert result.exit_code == 1 and "No such file" in result.output

    def test_exec_in_a_container_that_is_down_is_refused(self, lab: Lab, spec: Spec) -> None:
        with pytest.raises(EngineRejected):
            lab.engine.exec(lab.engine.create(spec()), ["id"], deadline_seconds=5)

    def test_logs_are_the_last_lines_oldest_first(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())
        lab.say(id_, "one\ntwo\nthree\n")
        eventually(lambda: "three" in lab.engine.logs(id_, tail_lines=100))

        assert lab.engine.logs(id_, tail_lines=2) == "two\nthree\n"

    def test_logs_of_an_absent_or_silent_container_are_empty(self, lab: Lab, spec: Spec) -> None:
        assert lab.engine.logs("berth-nothing-w-1", tail_lines=10) == ""
        assert lab.engine.logs(lab.engine.create(spec()), tail_lines=10) == ""

    # -- images

    def test_facts_of_an_image_name_its_volumes(self, lab: Lab) -> None:
        facts, plain = lab.engine.image(lab.image_with_volume), lab.engine.image(lab.image)

        assert facts is not None and facts.volumes == ("/data",)
        assert plain is not None and plain.volumes == () and plain.id.startswith("sha256:") and plain.size_bytes > 0

    def test_an_image_that_is_there_is_not_pulled(self, lab: Lab) -> None:
        progress: list[object] = []

        assert lab.engine.ensure_image(lab.image, progress.append) == lab.engine.image(lab.image)
        assert progress == []

    def test_a_commit_has_the_layer_but_no_labels_and_no_volume(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())
        lab.engine.put(id_, [File("/etc/berth/token", 0o400, UID, UID, SECRET)])
        lab.engine.put(id_, [File("/home/installed", 0o644, UID, UID, b"kept")])
        lab.engine.stop(id_, 5)

        facts = lab.engine.commit(id_, lab.committed)

        assert facts == lab.engine.image(lab.committed)
        assert {value for key, value in facts.labels.items() if key.startswith("berth.")} == {""}
        moved = lab.engine.create(spec("2", image=lab.committed))
        assert lab.engine.read_file(moved, "/home/installed") == b"kept"
        assert lab.engine.read_file(moved, "/etc/berth/token") is None
        assert [row.revision for row in lab.engine.list()] == [1, 1]    # labels of the new one are the spec's

    def test_a_committed_image_is_not_listed_as_a_container(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        lab.engine.commit(id_, lab.committed)
        lab.engine.remove(id_)

        assert lab.engine.list() == []

    # -- the machine

    def test_describe_and_prepare_twice(self, lab: Lab) -> None:
        lab.engine.prepare()
        lab.engine.prepare()

        described = lab.engine.describe()

        assert described.network_guarded
        assert described.cpus > 0 and described.memory_bytes > 2**28 and described.engine_version
