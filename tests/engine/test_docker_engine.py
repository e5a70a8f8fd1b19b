"""DockerEngine on a real engine: the contract, and what only Docker has."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import docker
import parts
import pytest
from contract import EngineContract
from contract_gpus import GpusContract
from contract_lab import UID, Spec, actions, detail_of, eventually, running
from docker_lab import DockerLab
from faults.registry import Registry, registry
from lossy_proxy import LossyProxy

from webapp.domain.container import File, FolderMount, VolumeMount
from webapp.domain.ports import PortRange
from webapp.domain.workspace import Limits
from webapp.engines import network_name
from webapp.engines.docker import DockerEngine
from webapp.engines.docker.connection import Connection
from webapp.errors import EngineRejected, EngineUnreachable

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("tiny_image")]


@pytest.fixture(scope="module")
def instances(engine_url: str) -> Iterator[tuple[str, str]]:
    """One pair for all tests of this module: making a network and its rules takes a second."""
    with parts.instance(engine_url) as one, parts.instance(engine_url) as other:
        yield one, other


@pytest.fixture(scope="module")
def served() -> Iterator[Registry]:
    with registry() as served:
        yield served


@pytest.fixture
def lab(
    engine_url: str, docker_api: docker.APIClient, instances: tuple[str, str], ports: PortRange, served: Registry,
) -> Iterator[DockerLab]:
    lab = DockerLab(engine_url, docker_api, instances, ports, served)
    lab.sweep()
    yield lab
    lab.sweep()
    lab.engine.close()
    lab.other_engine.close()


@pytest.fixture
def proxy(engine_url: str) -> Iterator[LossyProxy]:
    with LossyProxy(engine_url) as proxy:
        yield proxy


@pytest.fixture
def through_proxy(proxy: LossyProxy, instances: tuple[str, str]) -> Iterator[DockerEngine]:
    engine = DockerEngine(proxy.url, instance=instances[0], host="gpu1")
    yield engine
    engine.close()


class TestDockerEngine(EngineContract, GpusContract):
    pass


# -- an engine that is away


@pytest.mark.parametrize("url", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:9"])
def test_an_engine_that_is_away_is_unreachable_at_once(url: str) -> None:
    engine = DockerEngine(url, instance="lab1", host="gpu1")
    began = time.monotonic()

    for call in (engine.list, engine.describe, lambda: list(engine.events(datetime.now(UTC)))):
        with pytest.raises(EngineUnreachable) as caught:
            call()
        assert caught.value.facts["host"] == "gpu1" and caught.value.facts["detail"]

    assert time.monotonic() - began < 2


def test_an_engine_that_says_nothing_is_unreachable_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = Connection(f"tcp://127.0.0.1:{silent.getsockname()[1]}", "gpu1")
        began = time.monotonic()
        with pytest.raises(EngineUnreachable), connection.api(0.3) as api:
            api.info()

        assert time.monotonic() - began < 2


def test_an_engine_that_talks_nonsense_is_unreachable(tmp_path: Path) -> None:
    with LossyProxy("/nowhere") as proxy, pytest.raises(EngineUnreachable):
        DockerEngine(proxy.url, instance="lab1", host="gpu1").list()


# -- lost answers


def test_a_lost_answer_to_create_leaves_one_container(
    lab: DockerLab, spec: Spec, proxy: LossyProxy, through_proxy: DockerEngine
) -> None:
    proxy.lose_answer("POST", "/containers/create")

    with pytest.raises(EngineUnreachable):
        through_proxy.create(spec())

    found = [row.id for row in through_proxy.list()]
    assert [through_proxy.create(spec())] == found


def test_a_lost_answer_to_start_leaves_it_running(
    lab: DockerLab, spec: Spec, proxy: LossyProxy, through_proxy: DockerEngine
) -> None:
    id_ = through_proxy.create(spec())
    proxy.lose_answer("POST", "/start")

    with pytest.raises(EngineUnreachable):
        through_proxy.start(id_)

    assert detail_of(lab, id_).container.is_up
    through_proxy.start(id_)


def test_a_lost_answer_to_remove_is_success_the_next_time(
    lab: DockerLab, spec: Spec, proxy: LossyProxy, through_proxy: DockerEngine
) -> None:
    id_ = through_proxy.create(spec())
    proxy.lose_answer("DELETE", "/containers/")

    with pytest.raises(EngineUnreachable):
        through_proxy.remove(id_)

    through_proxy.remove(id_)
    assert lab.engine.list() == []


def test_a_request_that_came_twice_makes_one_container(
    lab: DockerLab, spec: Spec, proxy: LossyProxy, through_proxy: DockerEngine
) -> None:
    proxy.repeat("POST", "/containers/create")

    id_ = through_proxy.create(spec())      # the second is answered 409

    assert [row.id for row in lab.engine.list()] == [id_]


def test_a_request_that_never_arrived_leaves_nothing(
    lab: DockerLab, spec: Spec, proxy: LossyProxy, through_proxy: DockerEngine
) -> None:
    proxy.lose_request("POST", "/containers/create")

    with pytest.raises(EngineUnreachable):
        through_proxy.create(spec())

    assert lab.engine.list() == []


# -- exec


@pytest.mark.parametrize("argv", [["sleep", "30"], ["yes"], ["sh", "-c", "exec >&- 2>&-; sleep 30"]])
def test_exec_is_back_at_its_deadline(lab: DockerLab, spec: Spec, argv: list[str]) -> None:
    id_ = running(lab, spec())
    began = time.monotonic()

    result = lab.engine.exec(id_, argv, deadline_seconds=1)

    assert time.monotonic() - began < 2
    assert result.timed_out and result.exit_code == 124
    assert len(result.output) <= 64 * 1024


def test_exec_keeps_what_came_first_and_the_exit_code(lab: DockerLab, spec: Spec) -> None:
    script = r"printf 'a\377b'; echo err >&2; exit 7"
    result = lab.engine.exec(running(lab, spec()), ["sh", "-c", script], deadline_seconds=10)

    assert result.exit_code == 7 and "a\ufffdb" in result.output and "err" in result.output


def test_exec_of_many_lines_is_whole(lab: DockerLab, spec: Spec) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
    result = lab.engine.exec(running(lab, spec()), ["sh", "-c", script], deadline_seconds=20)

    assert result.output.splitlines() == [f"line {number}" for number in range(3000)]


def test_exec_of_a_missing_program_says_so(lab: DockerLab, spec: Spec) -> None:
    result = lab.engine.exec(running(lab, spec()), ["no-such-program"], deadline_seconds=10)

    assert result.exit_code in (126, 127) and "no-such-program" in result.output


def test_exec_as_another_user(lab: DockerLab, spec: Spec) -> None:
    id_ = running(lab, spec())

    assert "uid=10001" in lab.engine.exec(id_, ["id"], deadline_seconds=10).output
    assert "uid=0" in lab.engine.exec(id_, ["id"], deadline_seconds=10, user="0").output


# -- files


def test_read_file_follows_links_and_refuses_large_files(lab: DockerLab, spec: Spec) -> None:
    id_ = running(lab, spec())
    script = "ln -s /only-in-image /tmp/link; ln -s /tmp/link /tmp/link2; dd if=/dev/zero of=/tmp/big bs=1M count=3"
    lab.engine.exec(id_, ["sh", "-c", script], deadline_seconds=10)

    assert lab.engine.read_file(id_, "/tmp/link2") == b"here"
    with pytest.raises(EngineRejected, match="larger than 1 MiB"):
        lab.engine.read_file(id_, "/tmp/big")


def test_put_sets_owner_and_mode_of_files_and_of_folders_that_exist(lab: DockerLab, spec: Spec) -> None:
    id_ = lab.engine.create(spec())
    lab.engine.put(id_, [File("/etc/berth", 0o700, UID, UID), File("/etc/berth/key", 0o400, UID, UID, b"k")])
    lab.engine.start(id_)

    listing = lab.engine.exec(id_, ["ls", "-lan", "/etc/berth"], deadline_seconds=10).output
    lines = {line.split()[-1]: line.split() for line in listing.splitlines()}

    assert lines["."][0] == "drwx------" and lines["."][2:4] == [str(UID), str(UID)]
    assert lines["key"][0] == "-r--------" and lines["key"][2:4] == [str(UID), str(UID)]


def test_a_volume_gets_labels_and_nothing_of_the_image(lab: DockerLab, spec: Spec) -> None:
    volumes = [f"berth-{lab.instance}-v-{number}" for number in "12"]
    mount = VolumeMount(volumes[0], "/bin-copy", labels={"berth.instance": lab.instance})
    over_bin = VolumeMount(volumes[1], "/home", labels={"berth.instance": lab.instance}, read_only=True)
    id_ = running(lab, spec(mounts=(mount, over_bin)))

    assert lab.api.inspect_volume(volumes[0])["Labels"] == {"berth.instance": lab.instance}
    assert lab.engine.exec(id_, ["ls", "-A", "/home"], deadline_seconds=10).output == ""
    assert lab.engine.exec(id_, ["sh", "-c", "echo x > /home/x"], deadline_seconds=10).exit_code != 0


def test_a_folder_is_mounted_and_a_missing_one_is_refused(lab: DockerLab, spec: Spec, tmp_path: Path) -> None:
    folder = tmp_path / "with: colon and space"
    folder.mkdir()
    (folder / "data").write_text("here")
    folder.chmod(0o755)
    tmp_path.chmod(0o755)
    id_ = lab.engine.create(spec(mounts=(FolderMount(str(folder), "/data"),)))

    assert lab.engine.read_file(id_, "/data/data") == b"here"
    with pytest.raises(EngineRejected):
        lab.engine.create(spec("2", mounts=(FolderMount(str(tmp_path / "missing"), "/data"),)))
    assert not (tmp_path / "missing").exists()


# -- logs


def test_logs_are_capped_and_keep_the_newest(lab: DockerLab, spec: Spec) -> None:
    script = "dd if=/dev/zero bs=1k count=2000 2>/dev/null; echo; echo end"
    id_ = lab.engine.create(spec(command=("sh", "-c", script)))
    lab.engine.start(id_)
    eventually(lambda: not detail_of(lab, id_).container.is_up)

    text = lab.engine.logs(id_, tail_lines=10_000)

    assert text.endswith("\nend\n") and len(text) <= 256 * 1024
    assert "\0" not in text


def test_logs_hold_nothing_that_a_terminal_would_obey(lab: DockerLab, spec: Spec) -> None:
    script = r"printf '\033[31mred\033[0m \033]0;title\007plain \377 \007bell\r\nlast\n'"
    id_ = lab.engine.create(spec(command=("sh", "-c", script)))
    lab.engine.start(id_)
    eventually(lambda: not detail_of(lab, id_).container.is_up)

    assert lab.engine.logs(id_, tail_lines=10) == "red plain \ufffd \ufffdbell\nlast\n"


# -- what a commit carries


def test_a_commit_empties_what_berth_gave_and_keeps_the_images(lab: DockerLab, spec: Spec) -> None:
    environment = {"API_KEY": 'a "secret" $HOME', "FROM_IMAGE": "changed"}
    id_ = running(lab, spec(environment=environment))
    lab.engine.stop(id_, 5)
    lab.engine.commit(id_, lab.committed)

    config = lab.api.inspect_image(lab.committed)["Config"]
    variables = dict(entry.split("=", 1) for entry in config["Env"])

    assert variables["NVIDIA_VISIBLE_DEVICES"] == "" and variables["API_KEY"] == ""
    assert variables["FROM_IMAGE"] == "changed" and variables["PATH"] == "/bin"
    assert config["Cmd"] == ["/bin/work"]


def test_a_running_container_is_only_paused_for_a_commit(lab: DockerLab, spec: Spec) -> None:
    id_ = running(lab, spec())
    lab.engine.commit(id_, lab.committed)

    assert detail_of(lab, id_).container.state == "running"


# -- by hand


def test_a_paused_container_is_up(lab: DockerLab, spec: Spec) -> None:
    id_ = running(lab, spec())
    lab.api.pause(id_)

    assert detail_of(lab, id_).container.is_up and lab.engine.list()[0].is_up
    lab.engine.stop(id_, 1)
    assert not detail_of(lab, id_).container.is_up


def test_a_container_renamed_by_hand_is_listed_under_its_new_name(lab: DockerLab, spec: Spec) -> None:
    id_ = lab.engine.create(spec())
    new_name = f"berth-{lab.instance}-renamed"
    lab.api.rename(id_, new_name)

    assert [(row.id, row.name) for row in lab.engine.list()] == [(id_, new_name)]


@pytest.mark.parametrize("by_hand", ["kill", "stop"])
def test_an_end_by_hand_is_seen_in_events(lab: DockerLab, spec: Spec, by_hand: str) -> None:
    since = datetime.now(UTC)
    id_ = running(lab, spec())
    acts: dict[str, Callable[[str], None]] = {"kill": lab.api.kill, "stop": lab.api.stop}
    acts[by_hand](id_)
    eventually(lambda: "die" in actions(lab, since))

    assert "kill" in actions(lab, since)


def test_an_image_that_was_committed_by_hand_is_no_container(lab: DockerLab, spec: Spec) -> None:
    id_ = lab.engine.create(spec())
    lab.api.commit(id_, repository=lab.committed.partition(":")[0], tag="1")     # carries berth.* labels
    lab.engine.remove(id_)
    copy = f"berth-{lab.instance}-copy"
    lab.api.create_container_from_config({"Image": lab.committed}, copy)

    copies = [row.name for row in lab.engine.list()]

    assert copies == [copy]       # listed by its labels; the agent adopts by name and id only


def test_a_network_that_somebody_else_made_is_refused(
    engine_url: str, docker_api: docker.APIClient, instance: str
) -> None:
    engine = DockerEngine(engine_url, instance=instance, host="gpu1")
    network = docker_api.create_network(network_name(instance), driver="bridge")
    try:
        with pytest.raises(EngineRejected, match=network_name(instance)):
            engine.prepare()
        assert not engine.describe().network_guarded
    finally:
        docker_api.remove_network(network["Id"])
        engine.close()


# -- changes while it lives


def test_room_is_that_of_the_engines_own_folder(lab: DockerLab, spec: Spec) -> None:
    id_ = lab.engine.create(spec())
    is_here = Path(lab.api.info()["DockerRootDir"], "containers", id_).exists()     # not with a root of its own
    assert (lab.engine.room() is not None) == is_here


def test_the_kernel_has_the_new_limits_and_no_swap(lab: DockerLab, spec: Spec) -> None:
    id_ = running(lab, spec())
    for memory in (256 * 2**20, 48 * 2**20):
        lab.engine.update(id_, Limits(1500, memory, 2**20))
        host = detail_of(lab, id_).raw["HostConfig"]
        assert isinstance(host, dict) and (host["Memory"], host["MemorySwap"]) == (memory, memory)
        assert host["PidsLimit"] == spec().limits.pids
        assert str(memory) in read(lab, id_, "memory/memory.limit_in_bytes", "memory.max")
        assert read(lab, id_, "memory/memory.memsw.limit_in_bytes", "memory.swap.max") in (f"{memory}\n", "0\n")
        assert "150000" in read(lab, id_, "cpu/cpu.cfs_quota_us", "cpu.max")


def test_shared_memory_is_in_use_and_the_cache_of_files_is_not(lab: DockerLab, spec: Spec) -> None:
    id_ = running(lab, spec(limits=Limits(500, 256 * 2**20, 64 * 2**20)))

    def used_after(path: str) -> int:
        lab.engine.exec(id_, ["dd", "if=/dev/zero", f"of={path}", "bs=1048576", "count=32"], deadline_seconds=30)
        return (lab.engine.memory_used(id_) or 0) // 2**20

    assert used_after("/tmp/file") < 16
    assert used_after("/dev/shm/shared") >= 32


def read(lab: DockerLab, id_: str, *paths: str) -> str:
    """The first of these files of the control groups that is there: version 1, version 2."""
    answers = (lab.engine.exec(id_, ["cat", f"/sys/fs/cgroup/{path}"], deadline_seconds=10) for path in paths)
    return next((answer.output for answer in answers if answer.exit_code == 0), "")
