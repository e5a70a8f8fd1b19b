"""The contract's lab on a real engine."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import docker
from conftest import TINY, TINY_WITH_VOLUME
from contract_lab import UID
from faults.registry import Registry

from webapp.domain.container import File
from webapp.domain.ports import PortRange
from webapp.engines.docker import DockerEngine


class DockerLab:
    image = TINY
    image_with_volume = TINY_WITH_VOLUME

    def __init__(
        self, url: str, api: docker.APIClient, instances: tuple[str, str], ports: PortRange, registry: Registry,
    ) -> None:
        self.api = api
        self.instance, self.other_instance = instances
        self.committed = f"berth-{self.instance}-committed:1"
        self.engine = DockerEngine(url, instance=self.instance, host="gpu1")
        self.other_engine = DockerEngine(url, instance=self.other_instance, host="gpu1")
        self._registry = registry
        self._ports = itertools.cycle(range(ports.first, ports.last + 1))

    @property
    def pulled(self) -> str:
        return self._registry.reference("pulled")

    def move_tag(self) -> str:
        former = self._registry.image("pulled").digest
        self._registry.move("pulled")
        return former

    @contextmanager
    def listen(self, port: int) -> Iterator[None]:
        with socket.create_server(("127.0.0.1", port)):
            yield

    def free_port(self) -> int:
        return next(self._ports)

    def finish(self, name: str, exit_code: int) -> None:
        self._tell(name, "exit", str(exit_code))

    def run_out_of_memory(self, name: str) -> None:
        self._tell(name, "oom")

    def child_out_of_memory(self, name: str) -> None:
        self._tell(name, "oom-child")

    def say(self, name: str, text: str) -> None:
        self._tell(name, "say", text)

    def remove_by_hand(self, name: str) -> None:
        self.api.remove_container(name, force=True)

    def run_foreign(self, name: str, cards: Sequence[str], labels: Mapping[str, str] | None = None) -> None:
        """Asked for in the one way that needs no card and no toolkit; all the others: test_gpu_words.py."""
        environment = {"BERTH_SIMULATED_GPUS": ",".join(cards)} if cards else {}
        host = self.api.create_host_config(network_mode="none")
        self.api.create_container(TINY, name=name, environment=environment, labels=dict(labels or {}), host_config=host)
        self.api.start(name)

    def _tell(self, name: str, what: str, text: str = "") -> None:
        self.engine.put(name, [File(f"/tmp/{what}", 0o600, UID, UID, text.encode())])

    def sweep(self) -> None:
        """Whatever a test left of both instances."""
        mine = (f"berth-{self.instance}-", f"berth-{self.other_instance}-")
        for row in self.api.containers(all=True):
            if row["Names"] and row["Names"][0].removeprefix("/").startswith(mine):
                self.api.remove_container(row["Id"], force=True, v=True)
        for volume in self.api.volumes()["Volumes"] or []:
            if volume["Name"].startswith(mine):
                self.api.remove_volume(volume["Name"])
        pulled = self.pulled.rpartition(":")[0]
        names = [name for row in self.api.images() for name in (*(row["RepoTags"] or ()), *(row["RepoDigests"] or ()))]
        for name in names:
            if name == self.committed or name.startswith((f"{pulled}:", f"{pulled}@")):
                with contextlib.suppress(docker.errors.NotFound):      # a digest goes with the last tag
                    self.api.remove_image(name, force=True)
