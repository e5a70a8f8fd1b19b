"""FakeEngine: a shipped twin of the engine, in memory. It obeys tests/engine/contract.py as DockerEngine does.

For demos without Docker, and for tests, which turn its knobs: `fail_next`, `down`, `taken_ports`, `end`, `on_exec` …
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from webapp.domain.container import (
    LABEL_INSTANCE,
    LABEL_PRIVATE_IMAGE,
    Container,
    ContainerDetail,
    ContainerSpec,
    ContainerState,
    EngineEvent,
    File,
    GpuUser,
    ImageFacts,
    Layer,
    PrivateImage,
    Room,
    VolumeMount,
    is_foreign_gpu_user,
    is_made_for,
    marks_a_container,
)
from webapp.domain.plan import private_repository
from webapp.domain.workspace import Limits
from webapp.engines import Capabilities, ExecResult, network_name
from webapp.engines.docker.body import container_body
from webapp.engines.fake_images import FakeImages
from webapp.engines.fake_state import FakeContainer, FakeImage, FakeMachine
from webapp.errors import EngineRejected, EngineUnreachable, ImageNotFound, PortTaken

ENDED_BY_TERM = 143     # 128 + SIGTERM: what tini makes of it


class FakeEngine(FakeImages):
    """One instance's view of one FakeMachine; without `machine` it has one of its own."""

    def __init__(self, *, instance: str, host: str, machine: FakeMachine | None = None) -> None:
        self.machine = machine or FakeMachine()
        self.down = False                           # True: no call is answered
        self.calls: list[tuple[str, ...]] = []      # name of the call, then what it was about
        self.on_exec: Callable[[str, Sequence[str]], ExecResult | None] = lambda name, argv: None
        self.instance = instance
        self._host = host
        self._closed = False
        self._failures: dict[str, deque[tuple[Exception, bool]]] = defaultdict(deque)

    # -- knobs

    @property
    def taken_ports(self) -> set[int]:
        """Ports on which something else of the machine listens."""
        return self.machine.taken_ports

    @property
    def images(self) -> dict[str, FakeImage]:
        return self.machine.images

    def fail_next(self, call: str, error: Exception, *, after: bool = False) -> None:
        """The next `call` raises `error`; with `after` it is carried out first, and only its answer is lost."""
        self._failures[call].append((error, after))

    def end(self, name: str, exit_code: int, *, oom: bool = False, by_hand: bool = False) -> None:
        """Main process ends: by itself, by the kernel for want of memory, or by `docker stop`."""
        with self.machine.lock:
            container = self._present(name)
            if oom:
                self.oom_child(name)
            if by_hand:
                self.machine.note(container, "kill")
            self.machine.end(container, exit_code)
            if by_hand:
                self.machine.note(container, "stop")

    def oom_child(self, name: str) -> None:
        """The kernel ends a child for want of memory; the main process goes on."""
        with self.machine.lock:
            container = self._present(name)
            container.oom_seen = True
            self.machine.note(container, "oom")

    def remove_by_hand(self, name: str) -> None:
        with self.machine.lock:
            container = self._present(name)
            if container.is_up:
                self.end(name, 137, by_hand=True)
            self.machine.drop(container)

    def rename_by_hand(self, name: str, new_name: str) -> None:
        with self.machine.lock:
            container = self.machine.containers.pop(name)
            container.name = new_name
            self.machine.containers[new_name] = container
            self.machine.note(container, "rename")

    def restart_engine(self, *, orderly: bool = True) -> None:
        """dockerd ends (orderly: SIGTERM, else SIGKILL) and starts again, without live-restore."""
        with self.machine.lock:
            self.machine.restart(orderly=orderly)

    def files(self, name: str) -> dict[str, File]:
        """What was written into a container and its mounts, by path."""
        with self.machine.lock:
            return self.machine.files_of(self._present(name))

    def print_log(self, name: str, text: str) -> None:
        with self.machine.lock:
            self._present(name).log += text

    def run_foreign(self, name: str, *gpus: str, labels: Mapping[str, str] | None = None) -> None:
        """Somebody runs a container without Berth that asks for these cards: UUIDs, indexes, or "all"."""
        with self.machine.lock:
            self.machine.foreign[name] = (gpus, dict(labels or {}))

    def end_foreign(self, name: str) -> None:
        with self.machine.lock:
            del self.machine.foreign[name]

    # -- the machine

    def describe(self) -> Capabilities:
        with self._call("describe"):
            guarded = network_name(self.instance) in self.machine.networks
            return Capabilities("fake", "fake", "Fake", "amd64", 64, 256 * 2**30, 2, "fake", guarded)

    def prepare(self) -> None:
        with self._call("prepare"):
            self.machine.networks.add(network_name(self.instance))

    def started_at(self) -> datetime | None:
        with self._call("started_at"):
            return self.machine.started_at

    # -- what is there

    def list(self) -> Sequence[Container]:
        with self._call("list"):
            rows = [container.listed() for container in self.machine.containers.values()]
            return [row for row in rows if row.labels.get(LABEL_INSTANCE) == self.instance]

    def gpu_users(self) -> Sequence[GpuUser]:
        with self._call("gpu_users"):
            up = {container.name: (container.spec.gpus.uuids, container.spec.labels)
                  for container in self.machine.containers.values() if container.is_up}
            given = {**up, **self.machine.foreign}
            return [GpuUser(name, gpus) for name, (gpus, labels) in given.items()
                    if gpus and is_foreign_gpu_user(labels, self.instance)]

    def inspect(self, name: str) -> ContainerDetail | None:
        with self._call("inspect", name):
            container = self.machine.find(name)
            return container.inspected() if container else None

    def events(self, since: datetime, until: datetime | None = None) -> Iterator[EngineEvent]:
        with self._call("events"):
            pass
        for event in self.machine.follow(since, until, lambda: self._closed or self.down):
            if self._mine(event):
                yield event

    def _mine(self, event: EngineEvent) -> bool:
        """The label is on the event in Docker; here a container that is gone is known by Berth's way of naming."""
        container = self.machine.find(event.container_id)
        if container is None:
            return event.container_name.startswith(f"{network_name(self.instance)}-")
        return container.spec.labels.get(LABEL_INSTANCE) == self.instance

    # -- the life of a container

    def create(self, spec: ContainerSpec) -> str:
        with self._call("create", spec.name):
            try:
                container_body(spec)
            except ValueError as error:
                raise self._rejected(str(error)) from error
            image = self.machine.find_image(spec.image)
            if image is None:
                raise ImageNotFound(host=self._host, image=spec.image, detail=f"No such image: {spec.image}")
            found = self.machine.containers.get(spec.name)
            if found is None:
                return self.machine.add(spec, image).id
            if not is_made_for(spec, found.spec.labels):
                raise self._rejected(f"the name {spec.name} is taken by a container that is not this workspace's")
            return found.id

    def put(self, name: str, files: Sequence[File]) -> None:
        with self._call("put", name):
            container = self._present(name)
            for file in files:
                self.machine.store_for(container, file.path)[file.path] = file

    def read_file(self, name: str, path: str) -> bytes | None:
        with self._call("read_file", name, path):
            file = self.machine.file_in(self._present(name), path)
            return file.content if file else None

    def start(self, name: str) -> None:
        with self._call("start", name):
            container = self._present(name)
            if container.is_up:
                return
            for port in container.spec.ports:
                if port.host_port in self.machine.taken_ports or self.machine.holder_of(port.host_port):
                    container.error = f"Bind for {port.host_address}:{port.host_port} failed: port is already allocated"
                    raise PortTaken(host=self._host, port=port.host_port, detail=container.error)
            self.machine.run(container)

    def stop(self, name: str, grace_seconds: int) -> None:
        with self._call("stop", name):
            container = self.machine.find(name)
            if container and container.is_up:
                self.end(name, ENDED_BY_TERM, by_hand=True)

    def update(self, name: str, limits: Limits) -> None:
        with self._call("update", name):
            container = self._present(name)
            container.spec = replace(container.spec, limits=replace(
                container.spec.limits, cpu_millis=limits.cpu_millis, memory_bytes=limits.memory_bytes))

    def memory_used(self, name: str) -> int | None:
        with self._call("memory_used", name):
            return self._present(name).memory_used if self._present(name).is_up else None

    def layer(self, name: str) -> Layer:
        with self._call("layer", name):
            container = self._present(name)
            image = self.machine.find_image(container.image_id)
            written = sum(len(file.content or b"") for file in container.layer.values())
            return Layer(written, image.layers if image else 0)

    def room(self) -> Room | None:
        with self._call("room"):
            return self.machine.room

    def commit(self, name: str, reference: str, *, private: bool = False) -> ImageFacts:
        with self._call("commit", name, reference):
            container = self._present(name)
            base = self.machine.find_image(container.image_id)
            before = base.facts if base else ImageFacts("", 1_000_000, "amd64", (), {})
            labels = {**before.labels, **container.spec.labels}
            blanked = {key: "" if marks_a_container(key) else value for key, value in labels.items()}
            blanked[LABEL_PRIVATE_IMAGE] = reference.rpartition(":")[0] if private else ""
            facts = replace(before, id=f"sha256:{self.machine.new_id()}", labels=blanked, digests=(),
                            created_at=self.machine.now())
            files = {**(base.files if base else {}), **container.layer}
            self.machine.tag(reference, FakeImage(facts, files, (base.layers if base else 0) + 1))
            return facts

    def names_in(self, repository: str) -> Sequence[str]:
        with self._call("names_in", repository):
            return sorted(key for key in self.machine.images if key.startswith(f"{repository}:"))

    def private_images(self) -> Sequence[PrivateImage]:
        with self._call("private_images"):
            prefix = private_repository(self.instance, "")
            found = [(key, image.facts) for key, image in self.machine.images.items()]
            rows = [PrivateImage(_repository(key, facts), key, facts.id) for key, facts in found]
            return [row for row in rows if row.repository.startswith(prefix)]

    def remove(self, name: str) -> None:
        with self._call("remove", name):
            container = self.machine.find(name)
            if container is None:
                return
            if container.is_up:
                raise self._rejected(f"You cannot remove a running container {container.id}")
            self.machine.drop(container)

    def remove_volume(self, name: str) -> None:
        with self._call("remove_volume", name):
            mounts = [mount for container in self.machine.containers.values() for mount in container.spec.mounts]
            if any(isinstance(mount, VolumeMount) and mount.volume == name for mount in mounts):
                raise self._rejected(f"remove {name}: volume is in use")
            self.machine.volumes.pop(name, None)

    def exec(self, name: str, argv: Sequence[str], *, deadline_seconds: float, user: str = "") -> ExecResult:
        """`cat PATH` and `nvidia-smi -L` work; all else is what `on_exec` says, by default a success without output."""
        with self._call("exec", name, *argv):
            container = self._present(name)
            if container.state is not ContainerState.RUNNING:
                raise self._rejected(f"Container {container.id} is not running")
            answer = self.on_exec(name, argv)
            if answer is None and argv[0] == "cat":
                return self._cat(container, argv[1])
            if answer is None and tuple(argv) == ("nvidia-smi", "-L"):
                return self._nvidia_smi(container)
            return answer or ExecResult(0, "")

    def _cat(self, container: FakeContainer, path: str) -> ExecResult:
        file = self.machine.file_in(container, path)
        if file is None or file.content is None:
            return ExecResult(1, f"cat: can't open '{path}': No such file or directory\n")
        return ExecResult(0, file.content.decode("utf-8", errors="replace"))

    def _nvidia_smi(self, container: FakeContainer) -> ExecResult:
        cards = enumerate(container.spec.gpus.uuids)
        listed = "".join(f"GPU {index}: NVIDIA Fake (UUID: {uuid})\n" for index, uuid in cards)
        return ExecResult(0, listed) if listed else ExecResult(127, "nvidia-smi: not found\n")

    def logs(self, name: str, *, tail_lines: int) -> str:
        with self._call("logs", name):
            container = self.machine.find(name)
            return "".join(container.log.splitlines(keepends=True)[-tail_lines:]) if container else ""

    def close(self) -> None:
        self._closed = True
        with self.machine.changed:
            self.machine.changed.notify_all()

    # -- below the calls

    @contextmanager
    def _call(self, call: str, *about: str) -> Iterator[None]:
        """Write the call down, fail if it should, keep others out while it is carried out."""
        self.calls.append((call, *about))
        if self.down:
            raise EngineUnreachable(host=self._host, detail="Connection refused")
        error, after = self._failures[call].popleft() if self._failures[call] else (None, False)
        if error and not after:
            raise error
        with self.machine.lock:
            yield
        if error:
            raise error

    def _present(self, name: str) -> FakeContainer:
        container = self.machine.find(name)
        if container is None:
            raise self._rejected(f"No such container: {name}")
        return container

    def _rejected(self, detail: str) -> EngineRejected:
        return EngineRejected(host=self._host, detail=detail)


def _repository(key: str, facts: ImageFacts) -> str:
    """Of one without a name what its label says."""
    return facts.labels.get(LABEL_PRIVATE_IMAGE, "") if key == facts.id else key.rpartition(":")[0]
