"""What every engine does, whatever it is made of: run by test_fake_engine.py and test_docker_engine.py.

`Lab` is what a test needs beside the engine: the hands of somebody at the machine, and the inside of a container.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import pytest

from webapp.domain.container import (
    ContainerDetail,
    ContainerSpec,
    ContainerState,
    File,
    PublishedPort,
    VolumeMount,
)
from webapp.domain.workspace import Limits
from webapp.engines import Engine, network_name
from webapp.errors import EngineRejected, ImageNotFound, PortTaken

UID = 10001
SECRET = b"not to be committed"
T = TypeVar("T")


class Lab(Protocol):
    engine: Engine
    other_engine: Engine        # another instance of Berth on the same machine
    instance: str
    other_instance: str
    committed: str              # a reference that a test may commit to
    image: str                  # its main process obeys TERM (143) and prints "ready"; it has the file /only-in-image
    image_with_volume: str

    def listen(self, port: int) -> AbstractContextManager[None]:
        """Another program of the machine holds a port."""

    def free_port(self) -> int: ...

    def finish(self, name: str, exit_code: int) -> None:
        """The container's main process ends by itself."""

    def run_out_of_memory(self, name: str) -> None:
        """The main process takes more memory than the limit."""

    def child_out_of_memory(self, name: str) -> None: ...

    def say(self, name: str, text: str) -> None:
        """The main process prints."""

    def remove_by_hand(self, name: str) -> None: ...


@dataclass
class Spec:
    """Builds specs of one lab."""

    lab: Lab
    made: list[str] = field(default_factory=list)

    def __call__(self, number: str = "1", *, engine_instance: str = "", **changes: Any) -> ContainerSpec:
        instance = engine_instance or self.lab.instance
        name = f"berth-{instance}-w-{number}"
        spec = ContainerSpec(
            name=name,
            image=self.lab.image,
            hostname="box",
            uid=UID,
            gid=UID,
            group_ids=(20001,),
            environment={"COLOUR": "blue"},
            labels={"berth.instance": instance, "berth.workspace": number, "berth.revision": "1"},
            mounts=(VolumeMount(f"{name}-etc", "/etc/berth", labels={"berth.instance": instance}),),
            ports=(),
            limits=Limits(cpu_millis=500, memory_bytes=64 * 2**20, shm_bytes=2**20, pids=64),
            network=network_name(instance),
        )
        self.made.append(name)
        return replace(spec, **changes)


def eventually(look: Callable[[], T], seconds: float = 15.0) -> T:
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


class EngineContract:
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

        rows = {row.id: row for row in lab.engine.list()}

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

    def test_removal_by_hand_shows_at_once(self, lab: Lab, spec: Spec) -> None:
        lab.engine.start(lab.engine.create(spec()))

        lab.remove_by_hand(spec().name)

        assert lab.engine.list() == [] and lab.engine.inspect(spec().name) is None

    # -- create

    def test_create_twice_gives_one_container(self, lab: Lab, spec: Spec) -> None:
        assert lab.engine.create(spec()) == lab.engine.create(spec())
        assert len(lab.engine.list()) == 1

    @pytest.mark.parametrize("label", ["berth.instance", "berth.workspace", "berth.revision"])
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

    # -- how a container ends

    @pytest.mark.parametrize("exit_code", [0, 3, 137])
    def test_an_end_by_itself_keeps_its_exit_code(self, lab: Lab, spec: Spec, exit_code: int) -> None:
        detail = after(lab, running(lab, spec()), lambda id_: lab.finish(id_, exit_code))

        assert detail.exit_code == exit_code and not detail.oom_killed

    def test_a_main_process_out_of_memory_is_told_from_a_kill(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        detail = after(lab, running(lab, spec()), lab.run_out_of_memory)

        assert detail.exit_code == 137 and detail.oom_killed
        assert {"oom", "die"} <= actions(lab, since) and not {"kill", "stop"} & actions(lab, since)

    def test_a_child_out_of_memory_shows_in_events_while_its_container_runs(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        id_ = running(lab, spec())
        lab.child_out_of_memory(id_)
        eventually(lambda: "oom" in actions(lab, since))

        assert detail_of(lab, id_).container.is_up
        assert not detail_of(lab, id_).oom_killed       # Docker sets the flag when the container ends
        lab.engine.stop(id_, 5)
        assert detail_of(lab, id_).oom_killed and detail_of(lab, id_).exit_code == 143

    def test_a_stop_leaves_kill_before_die(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        id_ = running(lab, spec())
        lab.engine.stop(id_, 5)
        eventually(lambda: "stop" in actions(lab, since))

        events = list(lab.engine.events(since, datetime.now(UTC)))

        assert [event.action for event in events] == ["create", "start", "kill", "die", "stop"]
        assert {event.container_id for event in events} == {id_}
        assert {event.container_name for event in events} == {spec().name}

    def test_an_end_by_itself_leaves_die_alone(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        after(lab, running(lab, spec()), lambda id_: lab.finish(id_, 3))
        eventually(lambda: "die" in actions(lab, since))

        assert actions(lab, since) == {"create", "start", "die"}

    def test_the_engine_began_before_what_it_runs_ended(self, lab: Lab, spec: Spec) -> None:
        detail = after(lab, running(lab, spec()), lambda id_: lab.finish(id_, 0))
        began = lab.engine.started_at()

        assert began is not None and detail.finished_at is not None and began < detail.finished_at

    # -- events

    def test_events_of_another_instance_are_not_shown(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        lab.other_engine.prepare()
        lab.other_engine.create(spec("9", engine_instance=lab.other_instance))

        assert list(lab.engine.events(since, datetime.now(UTC))) == []

    def test_events_end_at_until_and_begin_at_since(self, lab: Lab, spec: Spec) -> None:
        start = datetime.now(UTC)
        id_ = lab.engine.create(spec())
        middle = datetime.now(UTC)
        lab.engine.start(id_)

        assert [e.action for e in lab.engine.events(start, middle)] == ["create"]
        assert [e.action for e in lab.engine.events(middle, datetime.now(UTC))] == ["start"]

    def test_a_follower_sees_events_at_once_and_ends_with_close(self, lab: Lab, spec: Spec) -> None:
        seen: list[str] = []
        stream = lab.engine.events(datetime.now(UTC))
        follower = threading.Thread(target=lambda: seen.extend(event.action for event in stream))
        follower.start()
        lab.engine.create(spec())
        eventually(lambda: "create" in seen, seconds=2)

        lab.engine.close()
        follower.join(timeout=5)

        assert not follower.is_alive()

    # -- images

    def test_facts_of_an_image_name_its_volumes(self, lab: Lab) -> None:
        facts, plain = lab.engine.image(lab.image_with_volume), lab.engine.image(lab.image)

        assert facts is not None and facts.volumes == ("/data",)
        assert plain is not None and plain.volumes == () and plain.id.startswith("sha256:") and plain.size_bytes > 0

    def test_an_image_that_is_there_is_not_pulled(self, lab: Lab) -> None:
        progress: list[object] = []

        assert lab.engine.ensure_image(lab.image, progress.append) == lab.engine.image(lab.image)
        assert progress == []

    def test_an_image_that_cannot_be_had_says_why(self, lab: Lab) -> None:
        reference = "localhost:9/berth-test/nowhere:1"
        assert lab.engine.image(reference) is None

        with pytest.raises(ImageNotFound) as caught:
            lab.engine.ensure_image(reference, lambda progress: None)

        assert caught.value.facts["image"] == reference and caught.value.facts["detail"]

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

    def test_an_image_in_use_is_not_removed_and_is_gone_after(self, lab: Lab, spec: Spec) -> None:
        lab.engine.commit(lab.engine.create(spec()), lab.committed)
        user = lab.engine.create(spec("2", image=lab.committed))
        with pytest.raises(EngineRejected):
            lab.engine.remove_image(lab.committed)
        lab.engine.remove(user)
        lab.engine.remove_image(lab.committed)

        assert lab.engine.image(lab.committed) is None

    # -- the machine

    def test_describe_and_prepare_twice(self, lab: Lab) -> None:
        lab.engine.prepare()
        lab.engine.prepare()

        described = lab.engine.describe()

        assert described.network_guarded
        assert described.cpus > 0 and described.memory_bytes > 2**28 and described.engine_version


def running(lab: Lab, spec: ContainerSpec) -> str:
    """Id of a container that has begun its work."""
    id_ = lab.engine.create(spec)
    lab.engine.start(id_)
    eventually(lambda: "ready" in lab.engine.logs(id_, tail_lines=5))
    return id_


def after(lab: Lab, id_: str, act: Callable[[str], None]) -> ContainerDetail:
    """What the engine shows of a container that `act` has ended."""
    act(id_)
    eventually(lambda: not detail_of(lab, id_).container.is_up)
    return detail_of(lab, id_)


def detail_of(lab: Lab, id_: str) -> ContainerDetail:
    detail = lab.engine.inspect(id_)
    assert detail is not None
    return detail


def actions(lab: Lab, since: datetime) -> set[str]:
    return {event.action for event in lab.engine.events(since, datetime.now(UTC))}
