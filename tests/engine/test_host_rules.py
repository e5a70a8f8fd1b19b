"""Workspaces and the host: what the rules say, and what can be reached from inside with them in place."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import docker
import parts
import pytest
from conftest import TINY

from webapp.domain.container import ContainerSpec, PublishedPort
from webapp.domain.ports import PortRange
from webapp.domain.workspace import Limits
from webapp.engines import network_name
from webapp.engines.docker import DockerEngine
from webapp.engines.docker.host_rules import HostRules, Outcome, chains, is_reached, restore_script
from webapp.engines.docker.network import bridge_name
from webapp.engines.findings import Finding

GREETING = b"reached"


# -- the rules as text


def test_a_bridge_name_fits_an_interface_and_differs_by_instance() -> None:
    assert len(bridge_name("a" * 12)) <= 15
    assert bridge_name("lab1") != bridge_name("lab2")


def test_all_is_refused_to_the_host_but_answers_and_dns() -> None:
    to_host, through = chains("lab1", tool="iptables")

    assert to_host.parent == "INPUT" and to_host.jump[:2] == ("-i", bridge_name("lab1"))
    assert to_host.rules[-1] == ("-j", "REJECT")
    assert [rule[-1] for rule in to_host.rules[:-1]] == ["RETURN"] * 3      # what the host closes stays closed
    assert through.parent == "DOCKER-USER" and ("-d", "169.254.0.0/16", "-j", "REJECT") in through.rules


def test_rules_are_set_in_one_transaction_and_a_jump_is_never_doubled() -> None:
    wanted = chains("lab1", tool="iptables")

    lines = restore_script(wanted, jumps_there=[2, 0]).splitlines()

    assert lines[0] == "*filter" and lines[-1] == "COMMIT"
    jump = f"-i {bridge_name('lab1')} -j {wanted[0].name}"
    assert lines.count(f"-D INPUT {jump}") == 2 and lines.count(f"-I INPUT 1 {jump}") == 1


@pytest.mark.parametrize(
    "before, expected",
    [
        ([], True),
        (["-A INPUT -j f2b-sshd", "-A INPUT -i lo -j ACCEPT"], True),
        (["-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT"], False),
        (["-A INPUT -j ACCEPT"], False),
    ],
)
def test_a_rule_before_ours_that_accepts_counts_as_unguarded(before: list[str], expected: bool) -> None:
    chain = chains("lab1", tool="iptables")[0]
    ours = f"-A INPUT {' '.join(chain.jump)}"

    assert is_reached(["-P INPUT ACCEPT", *before, ours], chain) is expected
    assert not is_reached(["-P INPUT ACCEPT", *before], chain)


@pytest.mark.parametrize(
    "text, finding",
    [
        ("[Errno 2] No such file or directory: 'iptables'", Finding.RULES_NO_TOOL),
        ("iptables v1.8.9: Could not fetch rule set generation id: Permission denied", Finding.RULES_NOT_PERMITTED),
    ],
)
def test_where_rules_may_not_be_set_a_finding_says_why(
    text: str, finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pathlib.Path.exists", lambda path: True)
    rules = HostRules("lab1", local=True, run=lambda argv, standard_input: Outcome(False, text))

    assert rules.ensure() is finding


def test_an_engine_elsewhere_is_not_guarded_from_here() -> None:
    def run(argv: Sequence[str], standard_input: str) -> Outcome:
        raise AssertionError("nothing may be run for another machine")

    assert HostRules("lab1", local=False, run=run).ensure() is Finding.RULES_REMOTE


# -- seen from inside


class Inside:
    """A running container on the instance's network, and what it can reach."""

    def __init__(self, engine: DockerEngine, spec: ContainerSpec) -> None:
        self.engine = engine
        self.id = engine.create(spec)
        engine.start(self.id)

    def reaches(self, address: str, port: int) -> bool:
        script = f"nc -w 3 {address} {port} </dev/null"
        return GREETING.decode() in self.engine.exec(self.id, ["sh", "-c", script], deadline_seconds=8).output

    def serve(self, port: int) -> None:
        script = f"while :; do echo {GREETING.decode()} | nc -l -p {port}; done >/dev/null 2>&1 &"
        self.engine.exec(self.id, ["sh", "-c", script], deadline_seconds=5)


@pytest.fixture(scope="module")
def engine(engine_url: str, tiny_image: str) -> Iterator[DockerEngine]:
    with parts.instance(engine_url) as name:
        engine = DockerEngine(engine_url, instance=name, host="gpu1")
        engine.prepare()
        yield engine
        engine.close()


@pytest.fixture(scope="module")
def spec(engine: DockerEngine) -> ContainerSpec:
    return ContainerSpec(
        name=f"berth-{engine.instance}-w-1",
        image=TINY,
        hostname="box",
        uid=10001,
        gid=10001,
        group_ids=(),
        environment={},
        labels={"berth.instance": engine.instance, "berth.workspace": "1", "berth.revision": "1"},
        mounts=(),
        ports=(),
        limits=Limits(1000, 64 * 2**20, 2**20, 64),
        network=network_name(engine.instance),
    )


@pytest.fixture(scope="module")
def box(engine: DockerEngine, spec: ContainerSpec) -> Inside:
    return Inside(engine, spec)


@pytest.fixture(scope="module")
def neighbour(engine: DockerEngine, spec: ContainerSpec, ports: PortRange) -> Inside:
    published = (PublishedPort(9001, "127.0.0.1", ports.last - 2),)
    inside = Inside(engine, replace(spec, name=f"berth-{engine.instance}-w-2", ports=published))
    inside.serve(9001)
    inside.serve(9002)
    return inside


@contextmanager
def host_service(address: str = "0.0.0.0") -> Iterator[int]:
    """A service of the host that greets whoever connects."""
    with socket.create_server((address, 0)) as server:

        def greet() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.sendall(GREETING)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=5)


def host_addresses(box: Inside, docker_api: docker.APIClient) -> list[str]:
    """The bridge's gateway first, then every other IPv4 address of the host."""
    found = json.loads(subprocess.run(["ip", "-json", "-4", "addr"], check=True, capture_output=True).stdout)
    others = [entry["local"] for link in found for entry in link["addr_info"] if link["ifname"] != "lo"]
    gateway = docker_api.inspect_network(network_name(box.engine.instance))["IPAM"]["Config"][0]["Gateway"]
    return [gateway, *(address for address in others if address != gateway)]


@pytest.mark.docker
def test_no_service_of_the_host_is_reached_by_any_of_its_addresses(box: Inside, docker_api: docker.APIClient) -> None:
    addresses = host_addresses(box, docker_api)
    assert len(addresses) > 1
    with host_service() as port:
        with socket.create_connection((addresses[0], port), timeout=3) as connection:
            assert connection.recv(64) == GREETING     # the service itself is well

        assert [address for address in addresses if box.reaches(address, port)] == []


@pytest.mark.docker
def test_without_the_rules_the_service_would_be_reached(box: Inside, docker_api: docker.APIClient) -> None:
    rules = HostRules(box.engine.instance, local=True)
    rules.remove()
    try:
        with host_service() as port:
            assert box.reaches(host_addresses(box, docker_api)[0], port)
        assert rules.check() is Finding.RULES_MISSING
        assert not box.engine.describe().network_guarded
    finally:
        box.engine.prepare()
    assert box.engine.describe().network_guarded


@pytest.mark.docker
def test_a_neighbour_is_reached_on_no_port(box: Inside, neighbour: Inside, docker_api: docker.APIClient) -> None:
    networks = docker_api.inspect_container(neighbour.id)["NetworkSettings"]["Networks"]
    address = networks[network_name(box.engine.instance)]["IPAddress"]
    assert neighbour.reaches("127.0.0.1", 9002)     # the program itself is well

    assert not box.reaches(address, 9002)


@pytest.mark.docker
def test_the_host_reaches_a_published_port(neighbour: Inside) -> None:
    detail = neighbour.engine.inspect(neighbour.id)
    assert detail is not None
    with socket.create_connection(("127.0.0.1", detail.ports[0].host_port), timeout=5) as connection:
        assert connection.recv(64).strip() == GREETING


@pytest.mark.docker
def test_dns_of_the_host_is_reached(box: Inside, docker_api: docker.APIClient) -> None:
    gateway = host_addresses(box, docker_api)[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind((gateway, 53))
        resolver.settimeout(10)
        box.engine.exec(box.id, ["sh", "-c", f"nslookup example.org {gateway} &"], deadline_seconds=5)

        question, _ = resolver.recvfrom(512)

    assert b"example" in question


@pytest.mark.docker
def test_the_metadata_service_is_not_reached(box: Inside, docker_api: docker.APIClient) -> None:
    """A machine behind the host that has the address; the same machine's other address is reached."""
    with metadata_machine() as port:
        assert box.reaches("10.254.254.2", port)

        assert not box.reaches("169.254.169.254", port)


@contextmanager
def metadata_machine() -> Iterator[int]:
    """A network namespace beside the host with 169.254.169.254 and 10.254.254.2 and one service on both."""
    name, port = f"{parts.NAMESPACE}meta", 8099
    with ExitStack() as undo:
        ip("netns", "add", name)
        undo.callback(ip, "netns", "delete", name)
        ip("link", "add", "btestmeta0", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", "10.254.254.1/24", "dev", "btestmeta0")
        ip("link", "set", "btestmeta0", "up")
        ip("route", "add", "169.254.169.254/32", "dev", "btestmeta0")
        for command in (
            ("address", "add", "10.254.254.2/24", "dev", "eth0"),
            ("address", "add", "169.254.169.254/32", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", "10.254.254.1"),
        ):
            ip("-n", name, *command)
        serve = f"while :; do echo {GREETING.decode()} | busybox nc -l -p {port}; done"
        service = subprocess.Popen(["ip", "netns", "exec", name, "sh", "-c", serve], start_new_session=True)
        undo.callback(service.wait)
        undo.callback(subprocess.run, ["kill", "--", f"-{service.pid}"], check=True)
        yield port


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.mark.docker
def test_rules_that_somebody_flushed_are_missed_and_set_again(box: Inside) -> None:
    rules = HostRules(box.engine.instance, local=True)
    chain = chains(box.engine.instance, tool="iptables")[0]
    subprocess.run(["iptables", "-w", "-F", chain.name], check=True)
    assert rules.check() is Finding.RULES_MISSING

    assert rules.ensure() is None
    assert rules.ensure() is None

    listing = subprocess.run(["iptables", "-w", "-S", "INPUT"], check=True, capture_output=True, text=True).stdout
    assert listing.count(chain.name) == 1


@pytest.mark.docker
def test_a_rule_that_accepts_before_ours_is_noticed_and_overtaken(box: Inside) -> None:
    rules = HostRules(box.engine.instance, local=True)
    accept = ("INPUT", "-p", "tcp", "--dport", "9", "-j", "ACCEPT")
    subprocess.run(["iptables", "-w", "-I", accept[0], "1", *accept[1:]], check=True)
    try:
        assert rules.check() is Finding.RULES_MISSING
        assert rules.ensure() is None
    finally:
        subprocess.run(["iptables", "-w", "-D", *accept], check=True)
