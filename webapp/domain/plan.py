"""plan(wanted, seen) → the one next step for a workspace. Pure: the hard rules of its life are tested in microseconds.

The agent carries out the step, looks again (or knows what it just did) and asks for the next one. A crash between any
two steps loses nothing: the next plan starts from what the engine shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from webapp.domain.container import (
    LABEL_GPUS,
    LABEL_INSTANCE,
    LABEL_LIMITS,
    LABEL_PORTS,
    LABEL_REVISION,
    LABEL_SHAPE,
    LABEL_WORKSPACE,
    Container,
    ContainerState,
)
from webapp.domain.workspace import RESTING, Desired, Phase, Service

LONGEST_WAIT = timedelta(seconds=90)    # before a next try; one further away means that the clock was set back
_VANISHING = frozenset({ContainerState.DEAD, ContainerState.REMOVING})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the row says: the intent, and what the agent recorded last."""

    instance: str
    workspace_id: str
    desired: Desired
    generation: int
    attempted_generation: int           # the intent that failures and next_try_at are about
    observed_generation: int
    phase: Phase
    revision: int                       # 0 = none recorded
    container_id: str | None
    private_image: str | None
    ports: Mapping[Service, int]
    next_try_at: datetime | None
    claimed: tuple[str, ...] = ()       # UUIDs of the cards it holds, ascending; held until it is seen down
    gpus: tuple[str, ...] = ()          # of these the ones that it is to have: all, but while it moves to others
    shape: str = ""                     # domain.moving.shape
    shape_unlabelled: str | None = None     # of containers that say nothing of theirs; None = as it is wanted
    limits: str = ""                    # domain.moving.limits
    applied_limits: tuple[str, str] | None = None       # id of a container, its limits as they were changed last

    @property
    def gpu_label(self) -> str:
        return ",".join(self.gpus)

    @property
    def port_label(self) -> str:
        return ",".join(f"{service}={port}" for service, port in sorted(self.ports.items()))

    @property
    def is_observed(self) -> bool:
        """Its container was started, or its end seen, for this very intent."""
        return self.observed_generation == self.generation

    @property
    def is_settled(self) -> bool:
        """This intent has ended; only a new one changes anything (no resurrection against anybody's will)."""
        return self.is_observed and self.phase in RESTING

    @property
    def is_answered(self) -> bool:
        """It has ended, or it runs: what is left to do is tidying up, which must not harm it when it fails."""
        return self.is_settled or (self.is_observed and self.phase in (Phase.RUNNING, Phase.UNKNOWN))

    def waits_until(self, now: datetime) -> datetime | None:
        """When to try again; None = now. A new intent waits for nothing that the one before had to wait for."""
        at = self.next_try_at
        if at is None or self.attempted_generation != self.generation:
            return None
        return at if now < at <= now + LONGEST_WAIT else None


@dataclass(frozen=True, slots=True)
class Seen:
    """The workspace's own containers, newest revision first, and what is known beside."""

    containers: tuple[Container, ...]
    image_ready: bool = False       # the one that the next container is made from is on the host
    is_weighed: bool = False        # what is in the newest can be kept

    def with_container(self, container: Container) -> Seen:
        others = (other for other in self.containers if other.name != container.name)
        return replace(self, containers=tuple(sorted((container, *others), key=_revision, reverse=True)))

    def with_state(self, name: str, state: ContainerState) -> Seen:
        changed = (replace(one, state=state) if one.name == name else one for one in self.containers)
        return replace(self, containers=tuple(changed))

    def without(self, name: str) -> Seen:
        return replace(self, containers=tuple(one for one in self.containers if one.name != name))


@dataclass(frozen=True, slots=True)
class EnsureImage:
    """Have the image on the host, pulled if need be."""


@dataclass(frozen=True, slots=True)
class Create:
    revision: int
    from_private_image: str | None      # None = the image of the catalogue


@dataclass(frozen=True, slots=True)
class Start:
    """Write the files and start."""

    name: str


@dataclass(frozen=True, slots=True)
class AwaitReady:
    name: str


@dataclass(frozen=True, slots=True)
class Examine:
    """It ended while it should run: find out why (domain/endings.py)."""

    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    name: str


@dataclass(frozen=True, slots=True)
class Weigh:
    """Find out whether there is room to keep what is in it, before it is stopped for that."""

    name: str


@dataclass(frozen=True, slots=True)
class Update:
    """Give a container that may go on the CPU and memory that are wanted."""

    name: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Keep what is in the container's layer as a private image, for a container that must be made anew."""

    name: str
    reference: str


@dataclass(frozen=True, slots=True)
class Remove:
    name: str


@dataclass(frozen=True, slots=True)
class ReleaseGpus:
    """No container with them is up: give its cards back, but for those that it has now moved to."""

    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Remove the private volume and the private images, then record that it is gone."""


@dataclass(frozen=True, slots=True)
class Record:
    """Nothing left to do on the engine: write the phase down."""

    phase: Phase
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do now. `until` = look again then; None = when something changes."""

    until: datetime | None = None


Step = (
    EnsureImage | Create | Start | AwaitReady | Examine | Stop | Weigh | Update | Commit | Remove | ReleaseGpus
    | CleanUp | Record | Rest
)


def container_name(instance: str, workspace_id: str, revision: int) -> str:
    return f"berth-{instance}-w-{workspace_id}-r{revision}"


def private_repository(instance: str, workspace_id: str) -> str:
    return f"berth-{instance}/w-{workspace_id}"


def private_image(instance: str, workspace_id: str, revision: int) -> str:
    """Name of the image that the container of `revision` was made from, after a move."""
    return f"{private_repository(instance, workspace_id)}:r{revision}"


def own_containers(wanted: Wanted, listed: tuple[Container, ...]) -> tuple[Container, ...]:
    """The containers that may be touched: right labels *and* right name or recorded id; labels can be copied."""
    own = (one for one in listed if _is_own(wanted, one))
    return tuple(sorted(own, key=_revision, reverse=True))


def trespassers(wanted: Wanted, listed: tuple[Container, ...]) -> tuple[Container, ...]:
    """Own containers that run with a card that the workspace does not hold (any more).

    No lock reaches into an engine: an agent that was held up may start what another has given up meanwhile.
    """
    held = frozenset(wanted.claimed)
    return tuple(one for one in own_containers(wanted, listed) if one.is_up and not one.gpu_uuids <= held)


def plan(wanted: Wanted, seen: Seen, *, now: datetime) -> Step:
    until = wanted.waits_until(now)
    if until is not None:
        return Rest(until)
    if wanted.desired is Desired.REMOVED:
        return _towards_removed(wanted, seen)
    if wanted.desired is Desired.STOPPED:
        return _towards_stopped(wanted, seen)
    return _towards_running(wanted, seen)


def _towards_removed(wanted: Wanted, seen: Seen) -> Step:
    if step := _take_down(wanted, seen):
        return step
    for container in seen.containers:
        return Remove(container.name)
    return Rest() if wanted.phase is Phase.REMOVED else CleanUp()


def _towards_stopped(wanted: Wanted, seen: Seen) -> Step:
    if step := _take_down(wanted, seen):
        return step
    return Rest() if wanted.is_settled else Record(Phase.STOPPED)


def _take_down(wanted: Wanted, seen: Seen) -> Step | None:
    """Stop what is up, then give the cards back; None = both are done.

    One that is being removed proves nothing: its processes may hang in the driver (promises.md 49).
    """
    for container in seen.containers:
        if container.is_up:
            return Stop(container.name)
    if not wanted.claimed:
        return None
    for container in seen.containers:
        if not container.is_down:
            return Remove(container.name)
    return ReleaseGpus()


def _towards_running(wanted: Wanted, seen: Seen) -> Step:
    if wanted.is_settled:
        return _leave_down(wanted, seen)
    current = _current(wanted, seen)
    if current is None:
        return _make(wanted, seen)
    if current.state in _VANISHING:
        return Remove(current.name)
    if current.is_up:
        return _after_start(wanted, seen, current)
    if not current.was_started or _is_start_due(wanted):
        return _rival(current, seen) or _update(wanted, current) or Start(current.name)
    return Examine(current.name)


def _is_start_due(wanted: Wanted) -> bool:
    """Of a container that is down: somebody asked for it, or it was examined and is to be tried again."""
    return not wanted.is_observed or (wanted.phase is Phase.STARTING and wanted.next_try_at is not None)


def _leave_down(wanted: Wanted, seen: Seen) -> Step:
    """Stopped or failed, and nobody asked again: what is up has no claim to run, what never ran holds nothing."""
    if step := _take_down(wanted, seen):
        return step
    for container in seen.containers:
        if not container.was_started:
            return Remove(container.name)
    return Rest()


def _make(wanted: Wanted, seen: Seen) -> Step:
    """No container fits. Keep the layer of one that ran; throw away one that never did."""
    for container in seen.containers:
        if not container.was_started or container.state in _VANISHING:
            return Remove(container.name)
    if not seen.containers and wanted.is_observed:      # it was started, nobody asked again, it is gone: by hand
        return Record(Phase.STOPPED, reason="removed_outside")
    revision = max([wanted.revision, *map(_revision, seen.containers)]) + 1
    if not seen.containers:
        return Create(revision, wanted.private_image) if seen.image_ready else EnsureImage()
    newest = seen.containers[0]
    if not (seen.is_weighed or seen.image_ready):
        return Weigh(newest.name)
    if newest.is_up:
        return Stop(newest.name)
    reference = private_image(wanted.instance, wanted.workspace_id, revision)
    return Create(revision, reference) if seen.image_ready else Commit(newest.name, reference)


def _rival(current: Container, seen: Seen) -> Step | None:
    """Another container of the same workspace that is up would write to the same volumes."""
    for other in seen.containers:
        if other.name != current.name and other.is_up:
            return Stop(other.name)
    return None


def _update(wanted: Wanted, current: Container) -> Step | None:
    """CPU and memory alone make no container anew. What one from before the label has is set once, with a new intent.
    """
    if wanted.applied_limits is not None and wanted.applied_limits[0] == current.id:
        has: str | None = wanted.applied_limits[1]
    else:
        has = current.labels.get(LABEL_LIMITS)
    if has is None and wanted.is_observed:
        return None
    return Update(current.name) if has != wanted.limits else None


def _after_start(wanted: Wanted, seen: Seen, current: Container) -> Step:
    is_recorded = wanted.is_observed and wanted.phase is Phase.RUNNING and wanted.container_id == current.id
    if not is_recorded:
        return _rival(current, seen) or _update(wanted, current) or AwaitReady(current.name)
    for other in seen.containers:                      # only now is the old one of a move removed
        if other.name != current.name:
            return Stop(other.name) if other.is_up else Remove(other.name)
    if wanted.claimed != wanted.gpus:                   # and only now has it no use for the old cards
        return ReleaseGpus(keep=wanted.gpus)
    return Rest()


def _current(wanted: Wanted, seen: Seen) -> Container | None:
    """The newest that fits. Not one behind a newer one that ran: what was done in that would be lost."""
    for container in seen.containers:
        if fits(wanted, container):
            return container
        if container.was_started:
            return None
    return None


def fits(wanted: Wanted, container: Container) -> bool:
    """Whether it may go on as it is, but for CPU and memory."""
    labels = container.labels
    has_shape = labels.get(LABEL_SHAPE, wanted.shape_unlabelled)
    return (
        labels.get(LABEL_PORTS) == wanted.port_label
        and labels.get(LABEL_GPUS, "") == wanted.gpu_label
        and has_shape in (wanted.shape, None)
    )


def _is_own(wanted: Wanted, container: Container) -> bool:
    labels, revision = container.labels, container.revision
    is_labelled = (
        labels.get(LABEL_INSTANCE) == wanted.instance
        and labels.get(LABEL_WORKSPACE) == wanted.workspace_id
        and revision is not None
        and labels.get(LABEL_REVISION) == str(revision)
    )
    name = container_name(wanted.instance, wanted.workspace_id, revision or 0)
    return is_labelled and (container.name == name or container.id == wanted.container_id)


def _revision(container: Container) -> int:
    return container.revision or 0
