"""The engine port: containers on one machine. Adapters: `docker` (real) and `fake` (its shipped twin).

Every call is idempotent and ends within its deadline. SDK errors leave as `EngineUnreachable` (no answer: it may have
happened, look before deciding), `EngineRejected` (and its kinds PortTaken, DiskFull) or `ImageNotFound`.
Both adapters obey tests/engine/contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from webapp.domain.container import (
    Container,
    ContainerDetail,
    ContainerSpec,
    EngineEvent,
    File,
    GpuUser,
    ImageFacts,
    Layer,
    PrivateImage,
    PullProgress,
    Room,
)
from webapp.domain.images import BuildOutput, ImageOnEngine
from webapp.domain.workspace import Limits
from webapp.engines.registries import DIRECT, RegistryAccess

ProgressCallback = Callable[[PullProgress], None]
BuildCallback = Callable[[BuildOutput], None]       # also called while nothing is printed

NETWORK_PREFIX = "berth-"


def network_name(instance: str) -> str:
    """The one network that `prepare` makes; a spec can name no other kind."""
    return f"{NETWORK_PREFIX}{instance}"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this engine and its machine are, as far as Berth asks."""

    engine_version: str
    api_version: str
    operating_system: str
    architecture: str
    cpus: int
    memory_bytes: int
    cgroup_version: int
    storage_driver: str
    network_guarded: bool           # the rules that keep workspaces from the host's services are in place
    findings: tuple[str, ...] = field(default_factory=tuple)   # values of engines/findings.Finding, for the doctor


@dataclass(frozen=True, slots=True)
class ExecResult:
    exit_code: int                  # 126 or 127: the program could not be started, the output says why
    output: str                     # stdout and stderr, the first 64 KiB, undecodable bytes replaced
    timed_out: bool = False         # still running at the deadline, and nobody ended it; exit_code is 124 then


class Engine(Protocol):
    """One machine's containers. Names and labels are the caller's; only `instance`'s own things are listed."""

    def describe(self) -> Capabilities: ...

    def prepare(self) -> None:
        """Make the instance's network (no traffic between workspaces) and its host rules; idempotent.

        Where rules may not be set, `describe().network_guarded` stays False and a finding says so.
        """

    def started_at(self) -> datetime | None:
        """When the engine's process began, as far as it tells (None = it does not).

        A container that ended before ended with or before an earlier process: not by a hand that used this engine. The
        events cannot say that: a dockerd that was killed ends what it finds running when it starts again, with events
        like those of `docker stop` (measured on 20.10).
        """

    def list(self) -> Sequence[Container]:
        """All containers, running or not, that carry this instance's label. Sparse: no inspect."""

    def gpu_users(self) -> Sequence[GpuUser]:
        """Running containers that are none of this instance's and were given cards: somebody else's work.

        Left out is what says `berth.ignore=gpus` on a label, such as a monitor that sees every card and uses none.
        """

    def inspect(self, name: str) -> ContainerDetail | None:
        """None = there is no such container."""

    def events(self, since: datetime, until: datetime | None = None) -> Iterator[EngineEvent]:
        """Container events of this instance. Without `until` it follows for ever, and ends when the engine goes."""

    def ensure_image(self, reference: str, progress: ProgressCallback, *, digest: str | None = None) -> ImageFacts:
        """The image's facts; pulled first when the engine lacks it, or has another than `digest` ("sha256:…").

        By a digest the image comes that had the tag once, wherever that points now; the engine has it under
        `reference` then. `progress` is called at least once a second and may raise, which ends the pull.

        Raises ImageNotFound, RegistryRefused, PullFailed, DiskFull.
        """

    def image(self, reference: str) -> ImageFacts | None: ...

    def list_images(self) -> Mapping[str, ImageOnEngine]:
        """All that have a name, by their names as people write them, with tag or digest."""

    def registry_digest(self, reference: str) -> str | None:
        """What its registry has under that tag now; None where it does not say."""

    def build(
        self, context: bytes, reference: str, *, arguments: Mapping[str, str], tell: BuildCallback,
    ) -> ImageFacts:
        """Build the tar archive `context` (a Dockerfile and its files) and name the image. What it builds on is there.

        `tell` is called at least once a second and may raise, which ends the build. Raises BuildFailed, DiskFull.
        """

    def tag(self, reference: str, name: str) -> None:
        """Give the image another name too; the name is taken from the one that has it. Raises ImageNotFound."""

    def create(self, spec: ContainerSpec) -> str:
        """Container id. A name that exists already (409) is adopted if it is the same container: its id is returned."""

    def put(self, name: str, files: Sequence[File]) -> None:
        """Write files and folders into a created or running container, in one archive, volumes included."""

    def read_file(self, name: str, path: str) -> bytes | None:
        """Content of one file of a container, up to 1 MiB; None = no such file. Works before start."""

    def start(self, name: str) -> None:
        """Started already = success. Raises PortTaken, EngineRejected."""

    def stop(self, name: str, grace_seconds: int) -> None:
        """TERM, wait, KILL. Not running or absent = success."""

    def update(self, name: str, limits: Limits) -> None:
        """CPU and memory of a container, up or not; what runs in it goes on. Swap adds nothing, before and after.

        Not looked at is whether less memory is in use: the kernel ends a program, or refuses (cgroup v1).
        """

    def memory_used(self, name: str) -> int | None:
        """Bytes of a running container that no limit can take back without ending a program: all but the cache of
        files. None = not known.
        """

    def layer(self, name: str) -> Layer:
        """What a container has written. The engine counts file by file: seconds, where there are many."""

    def room(self) -> Room | None:
        """On the disk with images and layers. None = not known: an engine of another machine, another store."""

    def commit(self, name: str, reference: str, *, private: bool = False) -> ImageFacts:
        """Image of a container's layer; labels `berth.*` and NVIDIA_* environment blanked.

        A `private` one says in a label of which repository it is (`private_images`); another one never does.
        """

    def names_in(self, repository: str) -> Sequence[str]:
        """Of all images in a repository, with their tags."""

    def private_images(self) -> Sequence[PrivateImage]:
        """All of this instance, by name; and nameless ones that a private commit has left."""

    def remove(self, name: str) -> None:
        """Remove a stopped or created container. Absent = success. Volumes stay."""

    def remove_volume(self, name: str) -> None:
        """Absent = success."""

    def remove_image(self, reference: str) -> None:
        """The name, and the image when it has no other. Absent = success. Raises ImageHeld."""

    def exec(self, name: str, argv: Sequence[str], *, deadline_seconds: float, user: str = "") -> ExecResult:
        """Run a program in a running container; back by the deadline whatever it does. Raises EngineRejected."""

    def logs(self, name: str, *, tail_lines: int) -> str:
        """Last lines, oldest first, at most 256 KiB, control characters and undecodable bytes replaced. Absent = ''."""

    def close(self) -> None: ...


def open_engine(url: str, *, instance: str, host: str, registries: RegistryAccess = DIRECT) -> Engine:
    """Adapter for `url`: unix://…, tcp://… or fake://. `host` names the machine in errors."""
    if url.startswith("fake:"):
        from webapp.engines.fake import FakeEngine

        return FakeEngine(instance=instance, host=host)
    from webapp.engines.docker import DockerEngine

    return DockerEngine(url, instance=instance, host=host, registries=registries)
