"""Everybody at once: people, administrators and the agent do what they do, each in a transaction of its own.

Nothing but errors with a name may come of it: no dead-lock, no row that is refused only by the database.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import pytest
from sqlalchemy import select

from webapp.domain.gpu import Gpu, Inventory
from webapp.domain.operation import OperationKind
from webapp.domain.workspace import Desired, Phase, Service
from webapp.errors import AppError
from webapp.services import (
    changes,
    hosts,
    images,
    inventory,
    keys,
    observations,
    operations,
    people,
    ports,
    secrets,
    teams,
    volumes,
    wishes,
    workspaces,
)
from webapp.services.changes import ChangeRequest
from webapp.services.orders import LaunchRequest
from webapp.store.tables import (
    AgentState,
    GpuClaim,
    Member,
    Operation,
    PortClaim,
    Role,
    SshKey,
    Team,
    Volume,
    Workspace,
    WorkspaceMount,
)

CARDS = tuple(f"GPU-0000000{number}-aaaa-bbbb-cccc-000000000001" for number in range(4))
LOOK = inventory.Look(
    Inventory(tuple(Gpu(uuid, index, "NVIDIA A100") for index, uuid in enumerate(CARDS))), {}, simulated=True)
THREADS = 8


class Crowd:
    """One thread's part: `act` does one thing, chosen by chance among everything that people and the agent do."""

    def __init__(self, store: Any, cast: Any, house: Any, now: Any, seed: int) -> None:
        self.store, self.cast, self.house, self.now = store, cast, house, now
        self.random, self.number = Random(seed), count(seed * 10_000)
        self.people = [cast.alice, cast.bob, cast.dave]
        self.lines = [secrets.new_secrets().host_public_key for _ in range(3)]

    def act(self) -> str:
        deed = self.random.choice(DEEDS)
        with suppress(AppError), self.store.write() as session:
            deed(self, session)
        return deed.__name__

    def some(self, session: Any, column: Any, *where: Any) -> Any:
        found = session.scalars(select(column).where(*where)).all()
        return self.random.choice(found) if found else "nobody"

    # -- people

    def launch(self, session: Any) -> None:
        volume = self.some(session, Volume.id)
        request = LaunchRequest(
            f"run-{next(self.number)}", self.cast.image_id, gpus=str(self.random.choice((0, 0, 1, 2))),
            mounts=((volume, True),) if volume != "nobody" and self.random.random() < 0.3 else ())
        workspaces.launch(session, self.random.choice(self.people), request, house=self.house, now=self.now)

    def launch_named(self, session: Any) -> None:
        request = LaunchRequest(f"run-{next(self.number)}", self.cast.image_id,
                                gpu_uuids=tuple(self.random.sample(CARDS, 2)))
        workspaces.launch(session, self.random.choice(self.people), request, house=self.house, now=self.now)

    def wish(self, session: Any) -> None:
        wish = self.random.choice((workspaces.start, workspaces.stop, workspaces.remove))
        wish(session, self.cast.carol, self.some(session, Workspace.id), now=self.now)

    def change(self, session: Any) -> None:
        volume, choose = self.some(session, Volume.id), self.random.choice
        request = ChangeRequest(
            memory=choose(("", "4GiB", "8GiB")), shm=choose(("", "1GiB")), gpus=choose(("", "0", "1", "2", "3")),
            mounts=choose((None, (), ((volume, True),))))
        changes.change(session, self.cast.carol, self.some(session, Workspace.id), request, house=self.house,
                       start=choose((True, False)), now=self.now)

    def add_key(self, session: Any) -> None:
        person = self.random.choice(self.people)
        keys.add_keys(session, person, member_id=person.member_id, text=self.random.choice(self.lines), title="",
                      now=self.now)

    def remove_key(self, session: Any) -> None:
        keys.remove_key(session, self.cast.carol, self.some(session, SshKey.id), now=self.now)

    def ask_for_logs(self, session: Any) -> None:
        operations.request(session, self.cast.carol, OperationKind.WORKSPACE_LOGS, arguments={}, now=self.now,
                           workspace_id=self.some(session, Workspace.id))

    # -- administrators

    def deactivate(self, session: Any) -> None:
        people.deactivate_member(session, self.cast.carol, self.random.choice(self.people).member_id, now=self.now)

    def reactivate(self, session: Any) -> None:
        people.reactivate_member(session, self.cast.carol, self.random.choice(self.people).member_id, now=self.now)

    def set_role(self, session: Any) -> None:
        people.set_role(session, self.cast.carol, self.random.choice(self.people).member_id, now=self.now,
                        role=self.random.choice(list(Role)))

    def create_member(self, session: Any) -> None:
        name = f"p{self.random.randrange(50)}"
        people.create_member(session, self.cast.carol, username=name, display_name=name,
                             password="correct horse battery", role=Role.MEMBER, now=self.now)

    def create_team(self, session: Any) -> None:
        teams.create_team(session, self.cast.carol, name=f"p{self.random.randrange(50)}", now=self.now)

    def join(self, session: Any) -> None:
        teams.add_member(session, self.cast.carol, team_id=self.some(session, Team.id),
                         member_id=self.random.choice(self.people).member_id, now=self.now)

    def leave(self, session: Any) -> None:
        teams.remove_member(session, self.cast.carol, team_id=self.some(session, Team.id),
                            member_id=self.random.choice(self.people).member_id, now=self.now)

    def create_volume(self, session: Any) -> None:
        volumes.create_volume(session, self.cast.carol, name=f"v{self.random.randrange(9)}", host_folder=None,
                              team_id=self.some(session, Team.id), target=None, read_only=False, roots=(), now=self.now)

    def remove_volume(self, session: Any) -> None:
        volumes.remove_volume(session, self.cast.carol, self.some(session, Volume.id), now=self.now)

    def add_image(self, session: Any) -> None:
        reference = f"example/{self.random.randrange(9)}:1"
        images.add(session, self.cast.carol, title=reference, reference=reference, base=None, cuda_version=None,
                   has_jupyter=True, now=self.now)

    def register(self, session: Any) -> None:
        hosts.ensure_local(session, name="gpu1", engine_url=f"unix:///run/{self.random.randrange(2)}.sock",
                           now=self.now)

    # -- the agent

    def record(self, session: Any) -> None:
        row = session.get(Workspace, self.some(session, Workspace.id, Workspace.phase != Phase.REMOVED))
        if row is None:
            return
        answer = {"generation": row.generation, "epoch": self._epoch(session), "now": self.now}
        if row.desired == Desired.REMOVED:
            observations.record_removed(session, row.id, **answer)
        elif row.desired == Desired.STOPPED:
            observations.release_gpus(session, row.id, **answer)
        else:
            observations.record(session, row.id, **answer, changes={
                "phase": self.random.choice((Phase.RUNNING, Phase.STOPPED)), "observed_generation": row.generation})

    def undo(self, session: Any) -> None:
        row = session.get(Workspace, self.some(session, Workspace.id, Workspace.before_change.is_not(None)))
        if row is not None and row.before_change["ran"]:
            observations.undo_change(session, row.id, generation=row.generation, epoch=self._epoch(session),
                                     now=self.now, changes={}, why="disk_full")

    def move(self, session: Any) -> None:
        row = session.get(Workspace, self.some(session, Workspace.id, Workspace.phase == Phase.RUNNING))
        if row is not None:
            observations.release_gpus(session, row.id, generation=row.generation, epoch=self._epoch(session),
                                      keep=row.gpu_uuids, now=self.now)

    def look(self, session: Any) -> None:
        inventory.record(session, self.cast.host_id, LOOK, epoch=self._epoch(session), now=self.now)

    def silence(self, session: Any) -> None:
        observations.record_host_silent(session, self.cast.host_id, trouble="no answer", epoch=self._epoch(session),
                                        now=self.now)

    def sound(self, session: Any) -> None:
        observations.record_host_seen(session, self.cast.host_id, capabilities=None, epoch=self._epoch(session),
                                      now=self.now)

    def seed(self, session: Any) -> None:
        observations.record_home_seeded(session, self.cast.host_id, self.random.choice(self.people).member_id,
                                        now=self.now)

    def work(self, session: Any) -> None:
        waiting = self.some(session, Operation.id, Operation.state == "waiting")
        if operations.take(session, waiting, self.now):
            operations.finish(session, waiting, now=self.now, result={})

    def live(self, session: Any) -> None:
        observations.still_alive(session, epoch=self._epoch(session), now=self.now)
        operations.expire(session, now=self.now)
        operations.sweep(session, now=self.now)

    def begin(self, session: Any) -> None:
        if self.random.random() < 0.2:
            observations.next_epoch(session, now=self.now)

    def other_port(self, session: Any) -> None:
        ssh = select(PortClaim.host_id, PortClaim.workspace_id, PortClaim.port).where(PortClaim.service == Service.SSH)
        held = session.execute(ssh).all()
        if held:
            host_id, workspace_id, port = self.random.choice(held)
            ports.replace(session, host_id, workspace_id, Service.SSH, taken=port, ports=self.house.ports, now=self.now)

    def _epoch(self, session: Any) -> int:
        return session.scalar(select(AgentState.epoch))


DEEDS = (
    Crowd.launch, Crowd.launch, Crowd.launch, Crowd.launch_named, Crowd.wish, Crowd.wish, Crowd.wish, Crowd.add_key,
    Crowd.change, Crowd.change, Crowd.undo, Crowd.undo, Crowd.move,
    Crowd.remove_key, Crowd.ask_for_logs, Crowd.deactivate, Crowd.reactivate, Crowd.reactivate, Crowd.set_role,
    Crowd.create_member, Crowd.create_team, Crowd.join, Crowd.join, Crowd.leave, Crowd.create_volume,
    Crowd.remove_volume, Crowd.add_image, Crowd.register, Crowd.record, Crowd.record, Crowd.record, Crowd.look,
    Crowd.silence, Crowd.sound, Crowd.seed, Crowd.work, Crowd.live, Crowd.begin, Crowd.other_port)


@pytest.mark.parametrize("deeds", [
    40, pytest.param(300, marks=pytest.mark.postgresql), pytest.param(2000, marks=pytest.mark.soak)])
def test_nobody_locks_anybody_out(deeds, store, cast, house, now):
    with store.write() as session:
        assert inventory.record(session, cast.host_id, LOOK, epoch=cast.epoch, now=now)

    def take_part(seed: int) -> set[str]:
        crowd = Crowd(store, cast, house, now, seed)
        return {crowd.act() for _ in range(deeds)}

    with ThreadPoolExecutor(THREADS) as pool:
        done = set.union(*pool.map(take_part, range(THREADS)))
    assert done == {deed.__name__ for deed in DEEDS}
    check(store)


def check(store: Any) -> None:
    with store.read() as session:
        rows = {row.id: row for row in session.scalars(select(Workspace))}
        members = {row.id: row for row in session.scalars(select(Member))}
        assert any(row.role == Role.ADMIN and row.deactivated_at is None for row in members.values())
        numbers = sorted(row.uid for row in members.values())
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "a number was left out, or given twice"
        for row in rows.values():
            cards = session.scalars(select(GpuClaim.gpu_uuid).where(GpuClaim.workspace_id == row.id)).all()
            if wishes.is_to_run(row):       # beside them those that it moves away from
                assert set(row.gpu_uuids) <= set(cards) and len(row.gpu_uuids) == row.gpu_count
            if members[row.owner_id].deactivated_at is not None:
                assert row.desired != Desired.RUNNING, "it runs although its owner may not"
        mounted = session.scalars(select(WorkspaceMount.volume_id)).all()
        assert set(mounted) <= set(session.scalars(select(Volume.id)))
