"""The machine behind FakeEngine, in memory: containers, images, volumes, events. FakeEngine decides, this remembers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from webapp.domain.container import (
    Container,
    ContainerDetail,
    ContainerSpec,
    ContainerState,
    EngineEvent,
    File,
    ImageFacts,
    Making,
    PullProgress,
    Room,
    VolumeMount,
)
from webapp.domain.images import BuildOutput

MOST_EVENTS = 256       # what dockerd 20.10 remembers
Files = dict[str, File]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class FakeContainer:
    id: str
    name: str
    spec: ContainerSpec
    image_id: str
    created_at: datetime
    state: ContainerState = ContainerState.CREATED
    exit_code: int | None = None
    oom_seen: bool = False          # shown as oom_killed once it has ended, as Docker does
    error: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    layer: Files = field(default_factory=dict)
    log: str = ""
    memory_used: int = 0            # bytes

    @property
    def is_up(self) -> bool:
        return self.listed().is_up

    def listed(self) -> Container:
        return Container(self.id, self.name, self.image_id, self.state, dict(self.spec.labels), self.created_at)

    def inspected(self) -> ContainerDetail:
        return ContainerDetail(
            container=self.listed(),
            exit_code=None if self.is_up else self.exit_code,
            oom_killed=self.oom_seen and not self.is_up,
            error=self.error,
            started_at=self.started_at,
            finished_at=self.finished_at,
            ports=self.spec.ports,
            gpus=self.spec.gpus.uuids,
            cpu_millis=self.spec.limits.cpu_millis,
            memory_bytes=self.spec.limits.memory_bytes,
            making=Making(self.spec.image, self.spec.uid, dict(self.spec.environment), self.spec.mounts,
                          self.spec.limits.shm_bytes, self.spec.limits.pids),
        )


@dataclass(slots=True)
class FakeImage:
    facts: ImageFacts
    files: Files = field(default_factory=dict)
    layers: int = 1


class FakeMachine:
    """One machine. Two FakeEngines of different instances may share it, as two Berths share a Docker Engine."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self.now = now
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.containers: dict[str, FakeContainer] = {}      # by name
        self.volumes: dict[str, Files] = {}
        self.folders: dict[str, Files] = {}                 # by path on the host
        self.images: dict[str, FakeImage] = {}              # by reference; one without, by its id
        self.room: Room | None = Room(10**12, 10**12)
        self.registry: dict[str, ImageFacts] = {}           # what can be pulled
        self.pull_script: list[PullProgress] = [PullProgress(0, None), PullProgress(50, 100), PullProgress(100, 100)]
        self.build_script: list[BuildOutput] = []           # printed by each build beside its steps
        self.foreign: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {}    # not Berth's, by name: cards, labels
        self.taken_ports: set[int] = set()                  # listeners that are not containers
        self.on_start: Callable[[FakeContainer], None] = lambda container: None
        self.networks: set[str] = set()
        self.events: list[EngineEvent] = []
        self.noted = 0              # how many there were ever
        self.started_at = now()
        self.starts = 1                                     # how often the engine's process began
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return f"{next(self._numbers):064x}"

    # -- images

    def add_image(
        self,
        reference: str,
        *,
        volumes: tuple[str, ...] = (),
        files: Mapping[str, bytes] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> ImageFacts:
        """Have an image without a pull."""
        facts = ImageFacts(f"sha256:{self.new_id()}", 1_000_000, "amd64", volumes, dict(labels or {}))
        content = {path: File(path, 0o644, 0, 0, data) for path, data in (files or {}).items()}
        self.images[reference] = FakeImage(facts, content)
        return facts

    def tag(self, reference: str, image: FakeImage) -> None:
        """What had that name has none now."""
        former = self.images.get(reference)
        self.images[reference] = image
        if former is not None and former not in self.images.values():
            self.images[former.facts.id] = former

    def find_image(self, reference: str) -> FakeImage | None:
        by_id = (image for image in self.images.values() if image.facts.id == reference)
        return self.images.get(reference) or next(by_id, None)

    # -- containers

    def find(self, name: str) -> FakeContainer | None:
        """By name or whole id, as the engine takes both."""
        by_id = (container for container in self.containers.values() if container.id == name)
        return self.containers.get(name) or next(by_id, None)

    def add(self, spec: ContainerSpec, image: FakeImage) -> FakeContainer:
        container = FakeContainer(self.new_id(), spec.name, spec, image.facts.id, self.now())
        self.containers[spec.name] = container
        for mount in spec.mounts:
            if isinstance(mount, VolumeMount):
                self.volumes.setdefault(mount.volume, {})
        self.note(container, "create")
        return container

    def run(self, container: FakeContainer) -> None:
        container.state, container.error = ContainerState.RUNNING, ""
        container.started_at, container.oom_seen = self.now(), False
        self.note(container, "start")
        self.on_start(container)

    def end(self, container: FakeContainer, exit_code: int) -> None:
        container.state, container.exit_code, container.finished_at = ContainerState.EXITED, exit_code, self.now()
        self.note(container, "die")

    def drop(self, container: FakeContainer) -> None:
        del self.containers[container.name]
        self.note(container, "destroy")

    def holder_of(self, port: int) -> FakeContainer | None:
        up = (container for container in self.containers.values() if container.is_up)
        return next((c for c in up if any(p.host_port == port for p in c.spec.ports)), None)

    # -- files

    def store_for(self, container: FakeContainer, path: str) -> Files:
        """Where a path of a container lies: the mount that is nearest above it, else the container's own layer."""
        above = [m for m in container.spec.mounts if path == m.target or path.startswith(f"{m.target}/")]
        if not above:
            return container.layer
        mount = max(above, key=lambda m: len(m.target))
        if isinstance(mount, VolumeMount):
            return self.volumes[mount.volume]
        return self.folders.setdefault(mount.source, {})

    def file_in(self, container: FakeContainer, path: str) -> File | None:
        store = self.store_for(container, path)
        if path in store or store is not container.layer:
            return store.get(path)
        image = next((i for i in self.images.values() if i.facts.id == container.image_id), None)
        return image.files.get(path) if image else None

    def files_of(self, container: FakeContainer) -> Files:
        """Everything written into a container and its mounts."""
        mounted: Files = {}
        for mount in container.spec.mounts:
            mounted |= self.store_for(container, mount.target)
        return {**container.layer, **mounted}

    # -- the engine's process

    def note(self, container: FakeContainer, action: str) -> None:
        self.events.append(EngineEvent(self.now(), action, container.id, container.name))
        self.noted += 1
        del self.events[:-MOST_EVENTS]
        self.changed.notify_all()

    def restart(self, *, orderly: bool) -> None:
        """As measured on 20.10 without live-restore: all containers end; an orderly end leaves no event behind.

        After kill -9 the new process ends what still runs itself, and the events of that look like a stop by hand.
        """
        up = [container for container in self.containers.values() if container.is_up]
        if orderly:
            for container in up:
                self.end(container, 143)
        self.events.clear()
        if not orderly:
            for container in up:
                self.note(container, "kill")
                self.end(container, 143)
                self.note(container, "stop")
        self.started_at, self.starts = self.now() + timedelta(microseconds=1), self.starts + 1
        self.changed.notify_all()

    def follow(
        self, since: datetime, until: datetime | None, is_closed: Callable[[], bool]
    ) -> Iterator[EngineEvent]:
        """Events from `since` on; without `until` it waits for more, until closed or the engine's process ends."""
        starts, next_number = self.starts, 0
        while True:
            with self.changed:
                is_over = until is not None or self.starts != starts or is_closed()
                first = self.noted - len(self.events)
                fresh = [event for number, event in enumerate(self.events, first) if number >= next_number]
                next_number = self.noted
                if not fresh and not is_over:
                    self.changed.wait(1.0)
                    continue
            yield from (event for event in fresh if since <= event.at and (until is None or event.at <= until))
            if is_over:
                return
