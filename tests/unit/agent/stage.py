"""The agent on a stage: real services, a real database, the engine's twin, and a clock that only moves when told.

Nothing sleeps and no thread is needed: work is done where it is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

from sqlalchemy import event, select

from agent.rack import Rack, RackEngine
from webapp.agent import worker
from webapp.agent.context import HostContext
from webapp.agent.reconciler import HostLoop
from webapp.domain.actor import Actor
from webapp.domain.container import LABEL_PRIVATE_IMAGE, Container, ContainerState, ImageFacts
from webapp.domain.house import HouseRules
from webapp.domain.plan import container_name
from webapp.domain.wordings import WORDINGS
from webapp.domain.workspace import Desired, Phase, Service
from webapp.engines import Engine
from webapp.engines.fake_state import FakeContainer, FakeMachine
from webapp.errors import fill
from webapp.services import changes, inventory, observations, wishes, workspaces
from webapp.services.changes import ChangeRequest
from webapp.services.orders import LaunchRequest
from webapp.store.session import Store
from webapp.store.tables import GpuClaim, Image, Operation, PortClaim, Workspace

INSTANCE = "test1"
HOST = "gpu1"
IMAGE = "berth/workspace:full-1"
FAR = "registry.example.org/team/full:1"
PASSWD = b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
GROUP = b"root:x:0:\nusers:x:100:\n"
BESIDE = ("health", "torch")    # keys of work that changes no phase
LOOKS = frozenset({"list", "inspect", "image", "describe", "prepare", "logs", "read_file", "started_at", "events",
                   "gpu_users", "layer", "room", "memory_used", "private_images", "names_in", "list_images"})


class Clock:
    """Moves by a millisecond at each look, so that no two things happen at the same time; and when it is slept on."""

    def __init__(self, start: datetime) -> None:
        self.time = start

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def monotonic(self) -> float:
        return self.now().timestamp()

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class SameThread:
    """Hands that do their work at once."""

    def __init__(self) -> None:
        self.submitted: list[str] = []

    def submit(self, key: str, work: Callable[..., None], *arguments: object) -> None:
        self.submitted.append(key)
        work(*arguments)


class Stage:
    """One host with its agent. `take_over` lets a new agent begin, as after a crash."""

    def __init__(self, store: Store, cast: Any, house: HouseRules, start: datetime) -> None:
        self.store, self.cast, self.house = store, cast, house
        self.clock = Clock(start)
        self.machine = FakeMachine(now=self.clock.now)
        self.machine.add_image(IMAGE, labels={"berth.image.contract": "1"},
                               files={"/etc/passwd": PASSWD, "/etc/group": GROUP})
        self.rack = Rack(0)
        self.engine = RackEngine(self.rack, instance=INSTANCE, host=HOST, machine=self.machine)
        self.silent: set[Service] = set()       # services that never answer
        self.on_sleep: Callable[[], None] = lambda: None
        self.hands = SameThread()
        self.take_over()

    # -- the agent

    def take_over(self, engine: Engine | None = None, store: Store | None = None) -> HostContext:
        """A new agent, with its own epoch. `engine`, `store`: what it works on instead of the stage's own."""
        with self.store.write() as session:
            epoch = observations.next_epoch(session, now=self.clock.now())
        self.context = HostContext(
            host_id=self.cast.host_id, host_name=HOST, engine=engine or self.engine,
            store=store or self.store, instance=INSTANCE, epoch=epoch, house=self.house,
            volume_roots=(Path("/srv/berth-roots"),), bind_address="127.0.0.1", now=self.clock.now,
            monotonic=self.clock.monotonic, sleep=self._sleep, probe=self._answers,
        )
        self.context.cards.was_read.set()
        self.loop = HostLoop(self.context, Event(), self.hands)
        return self.context

    def settle(self, passes: int = 30) -> None:
        """Passes, without letting time go by between them, until one finds nothing to do."""
        for _ in range(passes):
            self.hands.submitted.clear()
            self.loop.one_pass()
            if not [key for key in self.hands.submitted if not key.startswith(BESIDE)]:
                return
        raise AssertionError(f"no rest after {passes} passes: {self.hands.submitted}")

    def live(self, seconds: float) -> None:
        """Passes as the loop's thread makes them, for so long: at once when work was done, else when one is due."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            self.hands.submitted.clear()
            pause = self.loop.one_pass()
            left = max(0.0, (end - self.clock.time).total_seconds())
            self.clock.sleep(0.0 if self.hands.submitted else min(pause, left))
        self.settle()

    def work_on(self, workspace: Workspace, context: HostContext | None = None) -> None:
        worker.work_on(context or self.context, workspace.id)

    def add_cards(self, size: int) -> Rack:
        """The host has so many cards, and they were looked at."""
        self.rack = self.engine.rack = Rack(size)
        self.look_at_cards()
        return self.rack

    def look_at_cards(self) -> None:
        with self.store.write() as session:
            assert inventory.record(session, self.cast.host_id, self.rack.look(), epoch=self.context.epoch,
                                    now=self.clock.now())

    def _sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.on_sleep()

    def _answers(self, service: Service, _address: str, port: int) -> bool:
        holder = self.machine.holder_of(port)
        return holder is not None and holder.state is ContainerState.RUNNING and service not in self.silent

    # -- people

    def launch(self, actor: Actor | None = None, name: str = "run-1", **typed: Any) -> Workspace:
        request = LaunchRequest(name=name, **{"image_id": self.cast.image_id, **typed})
        with self.store.write() as session:
            return workspaces.launch(
                session, actor or self.cast.alice, request, house=self.house, now=self.clock.now())

    def running(self, **typed: Any) -> Workspace:
        workspace = self.launch(**typed)
        self.settle()
        assert self.row(workspace).phase == Phase.RUNNING
        return workspace

    def start(self, workspace: Workspace) -> None:
        self.ask(workspaces.start, workspace)

    def stop(self, workspace: Workspace) -> None:
        self.ask(workspaces.stop, workspace)

    def remove(self, workspace: Workspace) -> None:
        self.ask(workspaces.remove, workspace)

    def change(self, workspace: Workspace, *, start: bool = False, **typed: Any) -> None:
        with self.store.write() as session:
            changes.change(session, self.cast.carol, workspace.id, ChangeRequest(**typed), house=self.house,
                           start=start, now=self.clock.now())

    def ask(self, wish: Callable[..., Any], workspace: Workspace) -> None:
        with self.store.write() as session:
            wish(session, self.cast.carol, workspace.id, now=self.clock.now())

    def do(self, service: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        with self.store.write() as session:
            return service(session, *arguments, **{"now": self.clock.now(), **keywords})

    def far_image(self) -> ImageFacts:
        """The cast's image is one of a registry, and the engine lacks it."""
        facts = self.machine.images.pop(IMAGE).facts
        self.machine.registry[FAR] = facts
        with self.store.write() as session:
            session.get_one(Image, self.cast.image_id).reference = FAR
        return facts

    # -- what is there

    def row(self, workspace: Workspace) -> Workspace:
        with self.store.read() as session:
            return session.get_one(Workspace, workspace.id)

    def operation(self, operation: Operation) -> Operation:
        with self.store.read() as session:
            return session.get_one(Operation, operation.id)

    def ports(self, workspace: Workspace) -> dict[str, int]:
        with self.store.read() as session:
            claims = session.scalars(select(PortClaim).where(PortClaim.workspace_id == workspace.id))
            return {claim.service: claim.port for claim in claims}

    def cards(self, workspace: Workspace) -> list[str]:
        """UUIDs that it has a claim on, ascending."""
        with self.store.read() as session:
            return list(session.scalars(select(GpuClaim.gpu_uuid).where(GpuClaim.workspace_id == workspace.id)
                                        .order_by(GpuClaim.gpu_uuid)))

    def containers(self) -> Sequence[Container]:
        return [container.listed() for container in self.machine.containers.values()]

    def name(self, workspace: Workspace, revision: int = 1) -> str:
        return container_name(INSTANCE, workspace.id, revision)

    def deeds(self) -> list[str]:
        """Calls that changed something on the engine, since `forget_calls`."""
        return [" ".join(call) for call in self.engine.calls if call[0] not in LOOKS]

    def forget_calls(self) -> None:
        self.engine.calls.clear()

    def said(self, workspace: Workspace) -> str | None:
        """The reason as a person would read it; a fact that its sentence wants and lacks is an error here."""
        return sentence(self.row(workspace).reason)

    def noted(self, workspace: Workspace) -> str | None:
        return sentence(self.row(workspace).note)

    def steps(self, workspace: Workspace) -> dict[str, str]:
        return {step["name"]: step["state"] for step in self.row(workspace).progress["steps"]}


def sentence(written: dict[str, Any] | None) -> str | None:
    return fill(WORDINGS[written["code"]].title, written["facts"]) if written else None


def make_fast(store: Store) -> Store:
    """No waiting for the disk: a test that is cut off needs its database no more. A test's PostgreSQL never does."""
    if store.is_sqlite:
        event.listen(store.engine, "connect", _no_sync)
    return store


def _no_sync(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def check(stage: Stage) -> None:
    """What must hold at every moment, whatever happened."""
    with stage.store.read() as session:
        rows = {row.id: row for row in session.scalars(select(Workspace))}
        claims = list(session.scalars(select(PortClaim)))
        cards = list(session.scalars(select(GpuClaim)))
    up = [container for container in stage.machine.containers.values() if container.is_up]
    held = [port.host_port for container in up for port in container.spec.ports]
    assert len(held) == len(set(held)), f"a port with two holders: {held}"
    owners = [container.spec.labels["berth.workspace"] for container in up]
    assert len(owners) == len(set(owners)), f"two containers of one workspace run: {owners}"
    assert len({claim.port for claim in claims}) == len(claims)
    assert not {claim.workspace_id for claim in [*claims, *cards]} - set(rows), "a claim of nobody"
    assert len({claim.gpu_uuid for claim in cards}) == len(cards), "a card with two holders"
    for row in rows.values():
        mine, named = {claim.gpu_uuid for claim in cards if claim.workspace_id == row.id}, set(row.gpu_uuids)
        if wishes.is_to_run(row):       # beside them it may hold those that it moves away from
            assert named <= mine and len(named) == row.gpu_count, f"some of its cards: {mine} of {named}"
        elif not row.before_change:
            assert len(named) in (0, row.gpu_count)
    check_images(stage)


def check_images(stage: Stage) -> None:
    """What was written is somewhere whole: in a container that ran, or in the image that the next one is made from."""
    for container in stage.machine.containers.values():
        assert stage.machine.find_image(container.image_id), f"the image of {container.name} is gone"


def trespassing(stage: Stage) -> set[str]:
    """Names of containers that run with a card that their workspace does not hold."""
    with stage.store.read() as session:
        claims = {(claim.workspace_id, claim.gpu_uuid) for claim in session.scalars(select(GpuClaim))}
    return {
        container.name for container in stage.machine.containers.values() if container.is_up
        if not {(container.spec.labels["berth.workspace"], uuid) for uuid in container.spec.gpus.uuids} <= claims
    }


def check_at_rest(stage: Stage) -> None:
    """What must hold when there is nothing to do any more: wish and world agree, and nothing is left over."""
    check(stage)
    assert not trespassing(stage), "it runs with a card that it does not hold"
    with stage.store.read() as session:
        rows = list(session.scalars(select(Workspace)))
        claims = list(session.scalars(select(PortClaim)))
    claimed = {(claim.workspace_id, claim.port) for claim in claims}
    for row in rows:
        mine = [c for c in stage.machine.containers.values() if c.spec.labels.get("berth.workspace") == row.id]
        up = [container for container in mine if container.is_up]
        assert row.observed_generation == row.generation, f"{row.phase} answers an older wish"
        assert bool(up) == (row.phase == Phase.RUNNING), f"{row.phase} with {[c.state for c in mine]}"
        assert not [c for c in mine if c.state is ContainerState.CREATED and row.phase == Phase.FAILED]
        for container in up:
            assert {(row.id, port.host_port) for port in container.spec.ports} <= claimed, "it runs without its claim"
            assert row.container_id == container.id
        _check_cards(stage, row, up)
        if row.desired == Desired.REMOVED:
            _check_gone(stage, row, claimed)
        if row.desired == Desired.STOPPED:
            assert row.phase == Phase.STOPPED
        if row.phase == Phase.RUNNING:
            assert len(mine) == 1, f"left over beside the running one: {[c.name for c in mine]}"
            assert row.before_change is None
            _check_spec(stage, row, mine[0])


def _check_spec(stage: Stage, row: Workspace, container: FakeContainer) -> None:
    """It runs with what is asked for, whatever was changed; and of its private images only its own is left."""
    limits = container.spec.limits
    assert (limits.cpu_millis, limits.memory_bytes, limits.shm_bytes) == (
        row.cpu_millis, row.memory_bytes, row.shm_bytes)
    private = {image.facts.id for name, image in stage.machine.images.items() if f"w-{row.id}:" in name
               or image.facts.labels.get(LABEL_PRIVATE_IMAGE, "").endswith(f"w-{row.id}")}
    assert private <= {container.image_id}, "a private image is left over"


def _check_cards(stage: Stage, row: Workspace, up: Sequence[FakeContainer]) -> None:
    """Claims, the container's label, what the engine was asked for and what the row says are one."""
    held = stage.cards(row)
    if row.phase != Phase.RUNNING:
        assert held == [], f"{row.phase} and still holding {held}"
    for container in up:
        assert list(container.spec.gpus.uuids) == held == sorted(row.gpu_uuids)
        assert container.spec.labels["berth.gpus"] == ",".join(held)
        assert len(held) == row.gpu_count


def assert_failed_and_clean(stage: Stage, workspace: Workspace, code: str) -> None:
    row = stage.row(workspace)
    assert (row.phase, row.reason and row.reason["code"]) == (Phase.FAILED, code)
    assert stage.said(workspace), "no sentence for people"
    assert stage.containers() == []
    check_at_rest(stage)


def _check_gone(stage: Stage, row: Workspace, claimed: set[tuple[str, int]]) -> None:
    assert row.phase == Phase.REMOVED
    left = [name for kind in (stage.machine.containers, stage.machine.volumes, stage.machine.images) for name in kind
            if f"w-{row.id}" in name]
    assert not left, f"left of a removed workspace: {left}"
    assert row.id not in {workspace_id for workspace_id, _ in claimed}
