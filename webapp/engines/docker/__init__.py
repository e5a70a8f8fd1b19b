"""DockerEngine: the engine port on a Docker Engine, 20.10 to 29, by its HTTP API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import docker.errors
import structlog
from docker.utils import parse_repository_tag

from webapp.domain.container import (
    LABEL_INSTANCE,
    Container,
    ContainerDetail,
    ContainerSpec,
    EngineEvent,
    File,
    GpuUser,
    ImageFacts,
    Layer,
    PrivateImage,
    Room,
    is_foreign_gpu_user,
    is_made_for,
)
from webapp.domain.images import ImageOnEngine
from webapp.domain.workspace import Limits
from webapp.engines import BuildCallback, Capabilities, ExecResult, ProgressCallback
from webapp.engines.docker import changing, commit, observed
from webapp.engines.docker.archive import TAR_OVERHEAD, gathered, only_file, packed
from webapp.engines.docker.body import RLIMITS, container_body
from webapp.engines.docker.connection import ANSWER_SECONDS, Client, Connection
from webapp.engines.docker.events import EventStream
from webapp.engines.docker.gpus import asked_for, cdi_gpus
from webapp.engines.docker.host_rules import HostRules
from webapp.engines.docker.images import Images
from webapp.engines.docker.network import ensure_network, find_network, is_ours
from webapp.engines.docker.output import Frames, Tail, readable
from webapp.engines.docker.process import run_in_container
from webapp.engines.docker.rlimits import settable
from webapp.engines.findings import Finding
from webapp.engines.registries import DIRECT, RegistryAccess
from webapp.errors import EngineRejected, PortTaken

log = structlog.get_logger(__name__)

CHANGE_SECONDS = 120.0      # create, start, put, remove: under load an engine takes many seconds for each
LAYER_SECONDS = 300.0       # millions of small files
COMMIT_SECONDS = 1800.0     # a layer of 100 GB at 60 MB/s
STOP_MARGIN_SECONDS = 30.0  # beyond the grace: an engine under load takes that long to end a container
REMOVAL_SECONDS = 5.0       # how long a removal that is under way is waited for
MOST_LOG_BYTES = 256 * 1024
MOST_FILE_BYTES = 1024 * 1024

T = TypeVar("T")


class DockerEngine:
    """One Docker Engine. Safe to share between threads; the first call connects."""

    def __init__(self, url: str, *, instance: str, host: str, registries: RegistryAccess = DIRECT) -> None:
        self._connection = Connection(url, host)
        self._images = Images(self._connection, registries)
        self.instance = instance
        self._host = host
        self._rules = HostRules(instance, local=url.startswith("unix://"))
        self._events = EventStream(self._connection, instance)
        self._foreign: dict[str, tuple[str, ...]] = {}      # id of another's container → cards that it was given

    # -- the machine

    def describe(self) -> Capabilities:
        with self._connection.api() as api:
            version, info = api.version(), api.info()
            network = find_network(api, self.instance)
        findings = self._findings(is_made=network is not None and is_ours(network, self.instance))
        return Capabilities(
            engine_version=version.get("Version") or "",
            api_version=version.get("ApiVersion") or "",
            operating_system=info.get("OperatingSystem") or "",
            architecture=version.get("Arch") or "",
            cpus=info.get("NCPU") or 0,
            memory_bytes=info.get("MemTotal") or 0,
            cgroup_version=int(info.get("CgroupVersion") or 1),
            storage_driver=info.get("Driver") or "",
            network_guarded=not [finding for finding in findings if finding is not Finding.RLIMITS_LOWERED],
            findings=tuple(findings),
        )

    def _findings(self, *, is_made: bool) -> list[Finding]:
        network = self._rules.check() if is_made else Finding.NETWORK_MISSING
        lowered = Finding.RLIMITS_LOWERED if self._rlimits() != RLIMITS else None
        return [finding for finding in (network, lowered) if finding]

    def _rlimits(self) -> dict[str, int]:
        return settable(RLIMITS, self._connection.url)

    def prepare(self) -> None:
        with self._connection.api(CHANGE_SECONDS) as api:
            ensure_network(api, self.instance, host=self._host)
        finding = self._rules.ensure()
        if finding:
            log.warning("network.unguarded", host=self._host, finding=finding)

    def started_at(self) -> datetime | None:
        """The default bridge is made anew at each start (measured on 20.10), except under live-restore with containers
        running: those outlive the process. With `"bridge": "none"` there is none. Asked on a new connection: an engine
        that is ending and takes its containers down would answer on an old one, and refuses a new one.
        """
        with self._connection.newly_connected() as api:
            rows = api.networks(names=["bridge"])
        created = next((row.get("Created") for row in rows if row.get("Name") == "bridge"), None)
        return observed.parse_time(created)

    # -- what is there

    def list(self) -> Sequence[Container]:
        filters = {"label": f"{LABEL_INSTANCE}={self.instance}"}
        with self._connection.api() as api:
            return [observed.listed_container(row) for row in api.containers(all=True, filters=filters)]

    def gpu_users(self) -> Sequence[GpuUser]:
        with self._connection.api() as api:
            listed = [observed.listed_container(row) for row in api.containers()]
            rows = [row for row in listed if is_foreign_gpu_user(row.labels, self.instance)]
            asked = {row.id: self._cards_of_foreign(api, row.id) for row in rows}
        self._foreign = asked
        return [GpuUser(row.name, asked[row.id]) for row in rows if asked[row.id]]

    def _cards_of_foreign(self, api: Client, id_: str) -> tuple[str, ...]:
        """Inspected once: what a container was made with does not change."""
        if id_ in self._foreign:
            return self._foreign[id_]
        return asked_for(_unless_absent(lambda: api.inspect_container(id_)) or {})

    def inspect(self, name: str) -> ContainerDetail | None:
        with self._connection.api() as api:
            found = _unless_absent(lambda: api.inspect_container(name))
        return observed.inspected_container(found) if found else None

    def events(self, since: datetime, until: datetime | None = None) -> Iterator[EngineEvent]:
        return self._events.between(since, until)

    # -- images

    def image(self, reference: str) -> ImageFacts | None:
        return self._images.find(reference)

    def list_images(self) -> Mapping[str, ImageOnEngine]:
        return self._images.all()

    def ensure_image(self, reference: str, progress: ProgressCallback, *, digest: str | None = None) -> ImageFacts:
        return self._images.ensure(reference, progress, digest)

    def registry_digest(self, reference: str) -> str | None:
        return self._images.registry_digest(reference)

    def build(
        self, context: bytes, reference: str, *, arguments: Mapping[str, str], tell: BuildCallback,
    ) -> ImageFacts:
        return self._images.build(context, reference, arguments, tell)

    def tag(self, reference: str, name: str) -> None:
        self._images.tag(reference, name)

    def remove_image(self, reference: str) -> None:
        self._images.remove(reference)

    # -- the life of a container

    def create(self, spec: ContainerSpec) -> str:
        try:
            body = container_body(spec, self._rlimits(), self._cdi_gpus() if spec.gpus.uuids else frozenset())
        except ValueError as error:
            raise EngineRejected(host=self._host, detail=str(error)) from error
        with self._connection.api(CHANGE_SECONDS, image=spec.image) as api:
            try:
                created: dict[str, str] = api.create_container_from_config(body, spec.name)  # type: ignore[no-untyped-call]
                return created["Id"]
            except docker.errors.APIError as error:
                if error.status_code != 409:
                    raise
                return self._adopted(api, spec, error)

    def _cdi_gpus(self) -> frozenset[str]:
        """Asked at each creation: the list is made anew when the driver or the MIG slices change (promises.md 32)."""
        with self._connection.api() as api:
            return cdi_gpus(api.info())

    def _adopted(self, api: Client, spec: ContainerSpec, error: docker.errors.APIError) -> str:
        """Id of the container that has the name already, if it is the very one that `spec` is about."""
        found = _unless_absent(lambda: api.inspect_container(spec.name))
        if found is None:
            raise error     # gone again, or in the middle of its removal: not shown any more, the name still taken
        if not is_made_for(spec, (found.get("Config") or {}).get("Labels") or {}):
            detail = f"the name {spec.name} is taken by a container that is not this workspace's"
            raise EngineRejected(host=self._host, detail=detail)
        id_: str = found["Id"]
        return id_

    def start(self, name: str) -> None:
        try:
            with self._connection.api(CHANGE_SECONDS) as api:
                api.start(name)     # 304 = it runs already
        except PortTaken as error:
            if error.facts.get("port") is None:
                error.facts["port"] = self._ports_of(name)
            raise

    def _ports_of(self, name: str) -> str:
        """The container's own host ports, where the engine did not say which of them is taken."""
        detail = self.inspect(name)
        return ", ".join(str(port.host_port) for port in detail.ports) if detail else "?"

    def stop(self, name: str, grace_seconds: int) -> None:
        with self._connection.api(grace_seconds + STOP_MARGIN_SECONDS) as api:
            _unless_absent(lambda: api.stop(name, timeout=grace_seconds))

    def remove(self, name: str) -> None:
        """A removal under way counts as success once REMOVAL_SECONDS are over; the list shows it until it is gone."""
        with self._connection.api(CHANGE_SECONDS) as api:
            try:
                _unless_absent(lambda: api.remove_container(name, v=False, force=False))
            except docker.errors.APIError as error:
                if error.status_code != 409 or "already in progress" not in str(error.explanation):
                    raise
                _wait_until_absent(api, name)

    def remove_volume(self, name: str) -> None:
        with self._connection.api(CHANGE_SECONDS) as api:
            _unless_absent(lambda: api.remove_volume(name))

    def update(self, name: str, limits: Limits) -> None:
        with self._connection.api(CHANGE_SECONDS) as api:
            changing.update(api, name, limits)

    def memory_used(self, name: str) -> int | None:
        with self._connection.api() as api:
            return changing.memory_used(api, name)

    def layer(self, name: str) -> Layer:
        with self._connection.api(LAYER_SECONDS) as api:
            return changing.layer(api, name)

    def room(self) -> Room | None:
        with self._connection.api() as api:
            return changing.room(api, self._connection.url)

    def commit(self, name: str, reference: str, *, private: bool = False) -> ImageFacts:
        repository, tag = parse_repository_tag(reference)
        with self._connection.api(COMMIT_SECONDS) as api:
            container = api.inspect_container(name)
            image = _unless_absent(lambda: api.inspect_image(container["Image"]))  # type: ignore[no-untyped-call]
            changes = "\n".join(commit.changes(container, image, repository if private else ""))
            api.commit(name, repository=repository, tag=tag, pause=True, changes=changes)
        return self._images.present(reference)

    def names_in(self, repository: str) -> Sequence[str]:
        with self._connection.api() as api:
            return changing.names_in(api, repository)

    def private_images(self) -> Sequence[PrivateImage]:
        with self._connection.api() as api:
            return changing.private_images(api, self.instance)

    # -- into and out of a container

    def put(self, name: str, files: Sequence[File]) -> None:
        archive = packed(files, mtime=time.time())
        with self._connection.api(CHANGE_SECONDS) as api:
            api.put_archive(name, "/", archive)

    def read_file(self, name: str, path: str) -> bytes | None:
        with self._connection.api() as api:
            try:
                archive = self._archive(api, name, path)
            except docker.errors.NotFound as error:
                if "no such container" in str(error.explanation).lower():
                    raise
                return None
        return only_file(archive)

    def _archive(self, api: Client, name: str, path: str) -> bytes:
        """The tar of one file; a link is followed, a folder is None.

        Raises: EngineRejected: larger than 1 MiB, or no such container.
        """
        response = api.open_stream("GET", f"/containers/{name}/archive", {"path": path})
        with response:
            stat: dict[str, Any] = docker.utils.decode_json_header(response.headers["X-Docker-Container-Path-Stat"])
            content = gathered(response.iter_content(64 * 1024), MOST_FILE_BYTES + TAR_OVERHEAD)
        if stat.get("linkTarget"):
            return self._archive(api, name, stat["linkTarget"])     # the engine has resolved the whole chain
        if content is None or stat.get("size", 0) > MOST_FILE_BYTES:
            raise EngineRejected(host=self._host, detail=f"{path} is larger than 1 MiB")
        return content

    def exec(self, name: str, argv: Sequence[str], *, deadline_seconds: float, user: str = "") -> ExecResult:
        with self._connection.api(min(deadline_seconds, ANSWER_SECONDS)) as api:
            return run_in_container(api, name, argv, deadline_seconds=deadline_seconds, user=user)

    def logs(self, name: str, *, tail_lines: int) -> str:
        frames, tail = Frames(), Tail(MOST_LOG_BYTES)
        with self._connection.api() as api:
            parameters = {"stdout": 1, "stderr": 1, "tail": tail_lines}
            response = _unless_absent(lambda: api.open_stream("GET", f"/containers/{name}/logs", parameters))
            if response is None:
                return ""
            with response:
                for chunk in response.iter_content(64 * 1024):
                    for piece in frames.feed(chunk):
                        tail.add(piece)
        return readable(tail.bytes())

    def close(self) -> None:
        self._events.close()
        self._connection.close()


def _unless_absent(call: Callable[[], T]) -> T | None:
    """None for a 404: what is not there need not be removed, stopped or shown."""
    try:
        return call()
    except docker.errors.NotFound:
        return None


def _wait_until_absent(api: Client, name: str) -> None:
    deadline = time.monotonic() + REMOVAL_SECONDS
    while time.monotonic() < deadline and _unless_absent(lambda: api.inspect_container(name)):
        time.sleep(0.1)
