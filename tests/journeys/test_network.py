"""What a program in a workspace can reach, tried from inside; and that without Berth it would be reached."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import parts
import pytest
from faults.conftest import MakeHouse
from faults.house import Ground, House
from faults.namespaces import inside, ip, namespace
from faults.ports import foreign_listener
from faults.workspace import Workspace

from webapp.domain.workspace import Phase
from webapp.engines.docker.network import bridge_name
from webapp.store.tables import Host

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="addresses and firewall rules of the machine need root"),
]

METADATA = "169.254.169.254"            # where clouds hand out credentials
REACHED = "reached"

# argv: JSON list of [address, port]; prints "address:port" → reached, or why not. All at once: refusals may be silent.
PROBE = """
import concurrent.futures, json, socket, sys
def probe(target):
    try:
        with socket.create_connection(target, timeout=4):
            return "reached"
    except OSError as error:
        return str(error)
targets = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    answers = pool.map(probe, map(tuple, targets))
    print(json.dumps({"%s:%s" % tuple(target): answer for target, answer in zip(targets, answers)}))
"""


@dataclass(frozen=True)
class Street:
    """Two workspaces beside each other."""

    house: House
    mine: Workspace
    neighbour: Workspace

    def probe(self, *targets: tuple[str, int]) -> dict[str, str]:
        """From inside `mine`, over SSH."""
        return json.loads(self.mine.said(f"python3 -c {shlex.quote(PROBE)} {shlex.quote(json.dumps(targets))}"))


@pytest.fixture(scope="module")
def street(make_house: MakeHouse, slim_image: str) -> Street:
    house = make_house("street")
    alice, bob, image = house.add_person("alice"), house.add_person("bob"), house.add_image(slim_image)
    house.start_agent()
    both = house.launch(alice, image, "mine"), house.launch(bob, image, "neighbour")
    for workspace in both:
        workspace.until(Phase.RUNNING)
    return Street(house, *both)


@pytest.fixture
def host_service() -> Iterator[int]:
    """Port of a program of the host that listens on all addresses."""
    with contextlib.closing(foreign_listener(0, "0.0.0.0")) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def metadata_service() -> Iterator[int]:
    """Port of a listener at METADATA, behind the host as in a cloud. One at a time on this machine."""
    name, here = f"{parts.NAMESPACE}metadata", "berthmeta0"
    with parts.locked("metadata"), namespace(name):
        ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", name)
        try:
            ip("address", "add", "169.254.169.253/30", "dev", here)
            ip("link", "set", here, "up")
            ip("-n", name, "address", "add", f"{METADATA}/30", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "route", "add", "default", "via", "169.254.169.253")
            with contextlib.closing(inside(name, lambda: foreign_listener(80, METADATA))):
                yield 80
        finally:
            ip("link", "delete", here)


def test_neighbours_ports_are_closed(street: Street) -> None:
    street.neighbour.container().exec_run(["python3", "-m", "http.server", "7777"], detach=True)
    address = _address_of(street.neighbour)
    itself = {"127.0.0.1:7777": REACHED}
    assert json.loads(street.neighbour.said(f"for n in $(seq 100); do {_probe('127.0.0.1', 7777)} | grep {REACHED} && "
                                            "exit; sleep 0.1; done")) == itself

    answers = street.probe((address, 7777), (address, 2222))

    assert len(answers) == 2 and REACHED not in answers.values()


def test_services_of_the_host_are_closed_on_all_its_addresses(
    street: Street, host_service: int, slim_image: str
) -> None:
    targets = [(address, host_service) for address in _addresses_of_the_host()]
    assert (_gateway(street), host_service) in targets
    assert REACHED in _probe_without_berth(street.house.ground, slim_image, *targets).values()

    answers = street.probe(*targets)

    assert len(answers) == len(targets) and REACHED not in answers.values()


def test_metadata_service_of_a_cloud_is_closed(street: Street, metadata_service: int, slim_image: str) -> None:
    target = (METADATA, metadata_service)
    with socket.create_connection(target, timeout=5):
        pass
    assert list(_probe_without_berth(street.house.ground, slim_image, target).values()) == [REACHED]

    answers = street.probe(target)

    assert len(answers) == 1 and REACHED not in answers.values()


def test_published_port_is_open_and_host_may_be_asked_for_names(street: Street) -> None:
    assert street.mine.greets() and street.neighbour.greets()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):      # a resolver of the machine has it already: as good
            stack.enter_context(contextlib.closing(foreign_listener(53, _gateway(street))))
        assert list(street.probe((_gateway(street), 53)).values()) == [REACHED]


def test_host_is_recorded_as_guarded(street: Street) -> None:
    with street.house.store.read() as session:
        host = session.get_one(Host, street.mine.row().host_id)
    assert host.capabilities is not None
    assert host.capabilities["network_guarded"] is True


def _probe(address: str, port: int) -> str:
    return f"python3 -c {shlex.quote(PROBE)} {shlex.quote(json.dumps([(address, port)]))}"


def _probe_without_berth(ground: Ground, image: str, *targets: tuple[str, int]) -> dict[str, str]:
    """The same from a container on the engine's own bridge."""
    output = ground.docker.containers.run(image, ["-c", PROBE, json.dumps(targets)], entrypoint="python3", remove=True)
    return json.loads(output)


def _address_of(workspace: Workspace) -> str:
    networks = workspace.container().attrs["NetworkSettings"]["Networks"]
    return str(networks[f"berth-{workspace.house.instance}"]["IPAddress"])


def _gateway(street: Street) -> str:
    """The host's own address on the workspaces' bridge."""
    return next(address for name, address in _interfaces() if name == bridge_name(street.house.instance))


def _addresses_of_the_host() -> list[str]:
    return [address for _, address in _interfaces() if not address.startswith("127.")]


def _interfaces() -> list[tuple[str, str]]:
    """Name and IPv4 address of each."""
    listed = subprocess.run(["ip", "-json", "-4", "address", "show"], check=True, capture_output=True, text=True).stdout
    return [(link["ifname"], address["local"]) for link in json.loads(listed) for address in link.get("addr_info", ())]
