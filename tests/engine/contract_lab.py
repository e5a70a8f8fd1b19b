"""What a test of the contract needs beside the engine: hands at the machine, and the inside of a container."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from webapp.domain.container import (
    ContainerDetail,
    ContainerSpec,
    VolumeMount,
)
from webapp.domain.workspace import Limits
from webapp.engines import Engine, network_name

UID = 10001
T = TypeVar("T")


class Lab(Protocol):
    engine: Engine
    other_engine: Engine        # another instance of Berth on the same machine
    instance: str
    other_instance: str
    committed: str              # a reference that a test may commit to
    image: str                  # its main process obeys TERM (143) and prints "ready"; it has the file /only-in-image
    image_with_volume: str
    pulled: str                 # a reference that its registry has, and the engine has not

    def move_tag(self) -> str:
        """The registry gives the tag of `pulled` another image; the digest of the former one, sha256:…"""

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

    def run_foreign(self, name: str, cards: Sequence[str], labels: Mapping[str, str] | None = None) -> None:
        """Somebody runs a container without Berth that asks for these cards."""


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
