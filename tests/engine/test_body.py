"""The create body: a whitelist for any spec, and what the real engine makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import docker
import parts
import pytest
from conftest import TINY
from hypothesis import given
from hypothesis import strategies as st

from webapp.domain.container import ContainerSpec, FolderMount, GpuAccess, PublishedPort, VolumeMount
from webapp.domain.ports import PortRange
from webapp.domain.workspace import Limits
from webapp.engines import network_name
from webapp.engines.docker import DockerEngine
from webapp.engines.docker.body import RLIMITS, container_body
from webapp.engines.docker.rlimits import lowered, settable

TEXT = st.text(max_size=40)
PATHS = st.one_of(
    TEXT,
    st.sampled_from(
        ["/var/run/docker.sock", "/run/docker.sock", "/", "/etc", "/proc", "/srv/data", "/srv/../etc", "/srv/x.sock"]
    ),
)
MOUNTS = st.one_of(
    st.just(VolumeMount("berth-lab1-v-1", "/etc/berth")),
    st.just(FolderMount("/srv/data", "/data")),
    st.builds(VolumeMount, volume=PATHS, target=PATHS, read_only=st.booleans(), labels=st.dictionaries(TEXT, TEXT)),
    st.builds(FolderMount, source=PATHS, target=PATHS, read_only=st.booleans()),
)
PORTS = st.one_of(
    st.just(PublishedPort(2222, "127.0.0.1", 2201)), st.builds(PublishedPort, st.integers(), TEXT, st.integers())
)
DECIDING = ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_X=", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_PRELOAD",
            "BERTH_SIMULATED_GPUS", "OK"]
VARIABLES = st.one_of(st.from_regex(r"\A[A-Z_]{1,9}\Z"), TEXT, st.sampled_from(DECIDING))
SPECS = st.builds(
    ContainerSpec,
    name=TEXT,
    image=TEXT,
    hostname=TEXT,
    uid=st.integers(0, 2**31),
    gid=st.integers(0, 2**31),
    group_ids=st.lists(st.integers(0, 2**31), max_size=3).map(tuple),
    environment=st.dictionaries(VARIABLES, TEXT, max_size=4),
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    mounts=st.lists(MOUNTS, max_size=3).map(tuple),
    ports=st.lists(PORTS, max_size=3).map(tuple),
    limits=st.builds(Limits, st.integers(1), st.integers(1), st.integers(1), st.integers(1)),
    network=st.sampled_from(["berth-lab1", "berth-lab1", "host", "none", "bridge", "container:x", "default", ""]),
    command=st.lists(TEXT, max_size=3).map(tuple),
    working_dir=st.none() | TEXT,
)


def spec(**changes: Any) -> ContainerSpec:
    values: dict[str, Any] = {
        "name": "berth-body1-w-1",
        "image": TINY,
        "hostname": "box",
        "uid": 10001,
        "gid": 10002,
        "group_ids": (20001, 20002),
        "environment": {"COLOUR": "blue"},
        "labels": {"berth.instance": "body1", "berth.workspace": "1", "berth.revision": "3"},
        "mounts": (VolumeMount("berth-body1-v-1", "/etc/berth", labels={"berth.instance": "body1"}),),
        "ports": (PublishedPort(2222, "127.0.0.1", 25022), PublishedPort(8888, "127.0.0.1", 25023)),
        "limits": Limits(cpu_millis=1500, memory_bytes=64 * 2**20, shm_bytes=2**20, pids=77),
        "network": network_name("body1"),
    }
    return ContainerSpec(**{**values, **changes})


@given(SPECS)
def test_no_spec_reaches_further_than_it_may(any_spec: ContainerSpec) -> None:
    try:
        body = container_body(any_spec)
    except ValueError:
        return      # refused
    host = body["HostConfig"]
    assert host["Privileged"] is False and host["CapAdd"] == [] and host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Devices"] == [] and host["DeviceRequests"] == [] and host["DeviceCgroupRules"] == []
    assert host["PidMode"] == host["UTSMode"] == host["UsernsMode"] == "" and host["IpcMode"] == "private"
    assert host["NetworkMode"].startswith("berth-") and list(body["NetworkingConfig"]["EndpointsConfig"]) == [
        host["NetworkMode"]
    ]
    assert host["Binds"] == host["VolumesFrom"] == host["Links"] == []
    assert host["Memory"] == host["MemorySwap"] > 0 and host["PidsLimit"] > 0 and host["NanoCpus"] > 0
    assert host["RestartPolicy"]["Name"] == "no"
    for mount in host["Mounts"]:
        assert not mount["Source"].endswith(".sock")
        assert not mount["Source"].startswith(("/proc", "/sys", "/etc", "/run", "/var/run"))
        assert mount["Source"] != "/" and ".." not in mount["Source"].split("/")
    assert all(binding["HostIp"] for bindings in host["PortBindings"].values() for binding in bindings)


@given(SPECS)
def test_no_environment_decides_about_gpus_or_gets_into_every_process(any_spec: ContainerSpec) -> None:
    try:
        entries = container_body(any_spec)["Env"]
    except ValueError:
        return
    special = [e for e in entries if e.startswith(("NVIDIA_", "CUDA_", "LD_PRELOAD=", "BERTH_SIMULATED_GPUS"))]
    assert special == ["NVIDIA_VISIBLE_DEVICES=void"]


@given(SPECS)
def test_a_body_is_plain_json_with_known_fields_only(any_spec: ContainerSpec) -> None:
    try:
        body = container_body(any_spec)
    except ValueError:
        return
    json.dumps(body)
    assert set(body) == set(container_body(spec()))
    assert set(body["HostConfig"]) == set(container_body(spec())["HostConfig"])


@pytest.mark.parametrize(
    "changes",
    [
        {"network": "host"},
        {"network": "container:berth-lab1-w-1"},
        {"environment": {"NVIDIA_VISIBLE_DEVICES=all\0": ""}},
        {"environment": {"A=B": "c"}},
        {"environment": {"": "c"}},
        {"environment": {"A": "b\0c"}},
        {"mounts": (FolderMount("/var/run/docker.sock", "/x"),)},
        {"mounts": (FolderMount("/srv/engine.sock", "/x"),)},
        {"mounts": (FolderMount("/", "/x"),)},
        {"mounts": (FolderMount("/var", "/x"),)},
        {"mounts": (FolderMount("/srv/../etc", "/x"),)},
        {"mounts": (FolderMount("srv", "/x"),)},
        {"mounts": (VolumeMount("/etc", "/x"),)},
        {"mounts": (VolumeMount("", "/x"),)},
        {"ports": (PublishedPort(22, "", 2201),)},
        {"ports": (PublishedPort(22, "127.0.0.1", 0),)},
        {"ports": (PublishedPort(22, "127.0.0.1", 70000),)},
    ],
)
def test_what_would_reach_further_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        container_body(spec(**changes))


def test_variables_of_a_person_that_decide_about_gpus_are_left_out() -> None:
    mine = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all", "CUDA_VISIBLE_DEVICES": "0"}
    environment = container_body(spec(environment={**mine, "LD_PRELOAD": "/x.so", "MINE": "a=b"}))["Env"]

    assert environment == ["MINE=a=b", "NVIDIA_VISIBLE_DEVICES=void"]


# -- cards

CARDS = tuple(f"GPU-51e1a7ed-0000-0000-0000-{number:012}" for number in range(4))
SLICE = "MIG-51e1a7ed-0000-0000-0000-000000000009"
STAND_IN = (FolderMount("/srv/berth/simulation", "/usr/lib/simulated-gpus", read_only=True),
            FolderMount("/srv/berth/simulated-host/nvidia-smi", "/usr/bin/nvidia-smi", read_only=True))
GPUS = st.builds(
    GpuAccess, uuids=st.lists(st.sampled_from([*CARDS, SLICE]), unique=True).map(sorted).map(tuple),
    mounts=st.sampled_from([(), STAND_IN]))
PERSONS = st.dictionaries(
    st.sampled_from([*DECIDING, "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA", "MINE"]), TEXT, max_size=5)


def about_cards(body: dict[str, Any]) -> dict[str, str]:
    """Each variable of the body that says something about cards, once."""
    entries = [e.partition("=") for e in body["Env"] if e.startswith(("NVIDIA_", "CUDA_", "BERTH_SIMULATED_GPUS"))]
    assert len({name for name, _, _ in entries}) == len(entries)
    return {name: value for name, _, value in entries}


@given(GPUS, PERSONS, st.sets(st.sampled_from([*CARDS, SLICE, "0", "all"])))
def test_body_asks_for_exactly_the_cards_whatever_a_persons_environment_says(
    gpus: GpuAccess, persons: dict[str, str], by_cdi: set[str]
) -> None:
    try:
        body = container_body(spec(gpus=gpus, environment=persons), cdi_gpus=by_cdi)
    except ValueError:
        return
    requests, said = body["HostConfig"]["DeviceRequests"], about_cards(body)
    asked = [name.removeprefix("nvidia.com/gpu=") for request in requests for name in request["DeviceIDs"]]
    assert asked == ([] if gpus.mounts else list(gpus.uuids))
    assert all(request["Count"] == 0 and request["DeviceIDs"] for request in requests)
    seen_by_hook = said["NVIDIA_VISIBLE_DEVICES"]
    assert seen_by_hook == (",".join(asked) if requests and requests[0]["Driver"] == "nvidia" else "void")
    assert said.get("CUDA_DEVICE_ORDER") == ("PCI_BUS_ID" if gpus.uuids else None)
    assert said.get("NVIDIA_DRIVER_CAPABILITIES") == ("compute,utility" if gpus.uuids else None)
    assert said.get("BERTH_SIMULATED_GPUS") == (",".join(gpus.uuids) if gpus.uuids and gpus.mounts else None)
    assert set(said) <= {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_DEVICE_ORDER",
                         "BERTH_SIMULATED_GPUS"}
    assert body["HostConfig"]["Devices"] == []


def test_cards_are_asked_of_the_nvidia_driver_by_uuid() -> None:
    body = container_body(spec(gpus=GpuAccess((CARDS[1], SLICE))))

    assert body["HostConfig"]["DeviceRequests"] == [{
        "Driver": "nvidia", "Count": 0, "DeviceIDs": [CARDS[1], SLICE], "Capabilities": [["gpu", "compute", "utility"]],
        "Options": {}}]
    assert about_cards(body)["NVIDIA_VISIBLE_DEVICES"] == f"{CARDS[1]},{SLICE}"


def test_cards_are_asked_by_their_cdi_names_when_the_engine_knows_all_of_them_so() -> None:
    asked = spec(gpus=GpuAccess(CARDS[:2]))
    body = container_body(asked, cdi_gpus={"0", "1", *CARDS})

    assert body["HostConfig"]["DeviceRequests"] == [{
        "Driver": "cdi", "Count": 0, "DeviceIDs": [f"nvidia.com/gpu={uuid}" for uuid in CARDS[:2]], "Capabilities": [],
        "Options": {}}]
    assert about_cards(body)["NVIDIA_VISIBLE_DEVICES"] == "void"
    only_one = container_body(asked, cdi_gpus={CARDS[0]})["HostConfig"]["DeviceRequests"]
    assert [request["Driver"] for request in only_one] == ["nvidia"]


def test_simulated_cards_without_a_toolkit_are_mounted_and_nothing_is_asked_for() -> None:
    host = container_body(spec(gpus=GpuAccess(CARDS[:1], STAND_IN)))["HostConfig"]

    assert host["DeviceRequests"] == []
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in host["Mounts"] if m["Type"] == "bind"] == [
        (mount.source, mount.target, True) for mount in STAND_IN]


ABLE = "CapEff:\t000001ffffffffff\n"
UNABLE = "CapEff:\t000001fffeffffff\n"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            1024                 20000                files
Max locked memory         8388608              8388608              bytes
"""


def test_an_able_engine_sets_every_limit() -> None:
    assert lowered(RLIMITS, status=ABLE, limits=LIMITS) == RLIMITS


def test_an_engine_without_the_capability_sets_what_it_has() -> None:
    assert lowered(RLIMITS, status=UNABLE, limits=LIMITS) == {
        "memlock": 8388608,
        "stack": 64 * 2**20,
        "nofile": 20000,
    }


def test_an_engine_that_cannot_be_looked_at_counts_as_able() -> None:
    assert settable(RLIMITS, "tcp://10.0.0.1:2376") == RLIMITS
    assert settable(RLIMITS, "unix:///nowhere.sock") == RLIMITS


@pytest.fixture(scope="module")
def started(engine_url: str, tiny_image: str, ports: PortRange) -> Iterator[ContainerSpec]:
    """What a running container was made of."""
    with parts.instance(engine_url) as name:
        engine = DockerEngine(engine_url, instance=name, host="gpu1")
        engine.prepare()
        made = spec(
            name=f"berth-{name}-w-1",
            labels={**spec().labels, "berth.instance": name},
            mounts=(VolumeMount(f"berth-{name}-v-1", "/etc/berth", labels={"berth.instance": name}),),
            ports=tuple(PublishedPort(port, "127.0.0.1", ports.last - port % 2) for port in (2222, 8889)),
            network=network_name(name),
        )
        engine.start(engine.create(made))
        yield made
        engine.close()


@pytest.fixture
def inspected(started: ContainerSpec, docker_api: docker.APIClient) -> Any:
    return docker_api.inspect_container(started.name)


@pytest.mark.docker
def test_the_engine_took_every_field_of_host_config(
    started: ContainerSpec, inspected: dict[str, Any], engine_url: str
) -> None:
    wanted = container_body(started, settable(RLIMITS, engine_url))["HostConfig"]
    shown = inspected["HostConfig"]

    different = {
        name: (value, shown.get(name))
        for name, value in wanted.items()
        if _plain(name, value) != _plain(name, shown.get(name))
    }

    assert different == {}


@pytest.mark.docker
def test_the_engine_took_every_field_of_the_configuration(started: ContainerSpec, inspected: dict[str, Any]) -> None:
    wanted, shown = container_body(started), inspected["Config"]

    for name in ("Hostname", "User", "Labels", "Healthcheck", "StopSignal", "ExposedPorts", "Tty", "OpenStdin"):
        assert shown[name] == wanted[name], name
    assert set(shown["Env"]) == {"COLOUR=blue", "NVIDIA_VISIBLE_DEVICES=void", "FROM_IMAGE=yes", "PATH=/bin"}
    assert shown["Cmd"] == ["/bin/work"] and shown["Entrypoint"] is None
    assert list(inspected["NetworkSettings"]["Networks"]) == [started.network]
    assert shown.get("Volumes") is None


@pytest.mark.docker
def test_the_process_inside_has_no_rights_and_the_limits(inspected: dict[str, Any]) -> None:
    pid = inspected["State"]["Pid"]
    with open(f"/proc/{pid}/status") as status:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)

    assert {lines[name].strip("0") for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {""}
    assert lines["NoNewPrivs"] == "1" and lines["Uid"].split()[0] == "10001" and lines["Gid"].split()[0] == "10002"
    assert {"20001", "20002"} <= set(lines["Groups"].split())
    with open(f"/proc/{pid}/limits") as limits:
        stack = next(line for line in limits if line.startswith("Max stack size"))
    assert str(64 * 2**20) in stack


def _plain(name: str, value: Any) -> Any:
    """The engine shows an empty list or map as null, lists of rlimits in its own order, and drops false options."""
    if name == "Ulimits":
        return sorted((limit["Name"], limit["Soft"], limit["Hard"]) for limit in value)
    if name == "Mounts":
        return [{key: inner for key, inner in mount.items() if inner not in (False, None)} for mount in value]
    return value or None
