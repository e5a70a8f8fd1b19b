"""The cast: alice and bob are members of the team `vision`, dave of none, carol is the admin; one host, two images.

Made once through the services on a migrated database, then copied for each test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from argon2 import PasswordHasher
from databases import Databases
from datakey import SEAL

from webapp.domain.actor import Actor
from webapp.domain.house import HouseRules
from webapp.domain.ports import PortRange
from webapp.domain.sizes import GIB
from webapp.domain.workspace import Phase
from webapp.services import hosts, images, observations, passwords, people, secrets, teams, workspaces
from webapp.services.orders import LaunchRequest
from webapp.store.migrate import upgrade
from webapp.store.session import Store
from webapp.store.tables import Role, Workspace

NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Cast:
    alice: Actor
    bob: Actor
    dave: Actor
    carol: Actor
    team_id: str
    host_id: str
    image_id: str           # with JupyterLab
    slim_image_id: str      # SSH only
    epoch: int              # of the agent


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """The cost of a hash is its purpose, but not here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        yield


@pytest.fixture(scope="session")
def template(databases: Databases, cheap_passwords: None) -> tuple[str, Cast]:
    """Name of a database with the cast in it, to be copied."""
    store = Store(databases.make("template"))
    upgrade(store)
    cast = _assemble(store)
    store.close()
    return "template", cast


@pytest.fixture
def cast(template: tuple[str, Cast]) -> Cast:
    return template[1]


@pytest.fixture(scope="session")
def reused_store(databases: Databases) -> Store:
    """One engine for all tests: what SQLAlchemy compiled for one is there for the next."""
    return Store(databases.url("test"), seal=SEAL)


@pytest.fixture
def store(databases: Databases, template: tuple[str, Cast], reused_store: Store) -> Iterator[Store]:
    """The database with the cast in it and nothing else."""
    databases.make("test", like=template[0])
    yield reused_store
    reused_store.close()
    databases.drop("test")


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def alice(cast: Cast) -> Actor:
    return cast.alice


@pytest.fixture
def bob(cast: Cast) -> Actor:
    return cast.bob


@pytest.fixture
def dave(cast: Cast) -> Actor:
    return cast.dave


@pytest.fixture
def carol(cast: Cast) -> Actor:
    return cast.carol


@pytest.fixture
def house() -> HouseRules:
    return HouseRules(
        ports=PortRange(20000, 20999), default_cpu_millis=2000, max_cpu_millis=8000, default_memory_bytes=8 * GIB,
        max_memory_bytes=32 * GIB,
    )


@pytest.fixture
def do(store: Store, now: datetime) -> Callable[..., Any]:
    """do(service, actor, …) = the service in a transaction of its own, now."""
    def run(service: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with store.write() as session:
            return service(session, *args, **{"now": now, **kwargs})
    return run


@pytest.fixture
def launch(do: Callable[..., Any], cast: Cast, house: HouseRules) -> Callable[..., Workspace]:
    """launch(alice, "run-1", memory="4GiB", …)"""
    def run(actor: Actor, name: str = "run-1", **typed: Any) -> Workspace:
        request = LaunchRequest(name=name, **{"image_id": cast.image_id, **typed})
        workspace: Workspace = do(workspaces.launch, actor, request, house=house)
        return workspace
    return run


@pytest.fixture
def seen(store: Store, cast: Cast, now: datetime) -> Callable[..., None]:
    """seen(workspace, Phase.RUNNING) = what the agent records; the present intent is answered by it."""
    def record(workspace: Workspace, phase: Phase, **changes: Any) -> None:
        with store.write() as session:
            row = session.get_one(Workspace, workspace.id)
            generation = row.generation
            assert observations.record(
                session, row.id, generation=generation, epoch=cast.epoch, now=now,
                changes={"phase": phase, "observed_generation": generation, **changes})
    return record


@pytest.fixture
def gone(store: Store, cast: Cast, now: datetime) -> Callable[[Workspace], None]:
    """gone(workspace) = the agent saw that nothing of it is left."""
    def record(workspace: Workspace) -> None:
        with store.write() as session:
            generation = session.get_one(Workspace, workspace.id).generation
            assert observations.record_removed(
                session, workspace.id, generation=generation, epoch=cast.epoch, now=now)
    return record


@pytest.fixture
def row(store: Store) -> Callable[..., Any]:
    """row(Table, key) as it is in the database now."""
    def get(table: type, key: Any) -> Any:
        with store.read() as session:
            return session.get_one(table, key)
    return get


@pytest.fixture
def public_key() -> Callable[[], str]:
    """A new line for a .pub file at each call."""
    return lambda: secrets.new_secrets().host_public_key


def _assemble(store: Store) -> Cast:
    root = Actor.house()
    with store.write() as session:
        def person(username: str, role: Role = Role.MEMBER) -> Actor:
            member = people.create_member(
                session, root, username=username, display_name=username.title(), password=PASSWORD, role=role, now=NOW)
            return Actor(member.id, is_admin=role == Role.ADMIN)

        alice, bob, dave, carol = person("alice"), person("bob"), person("dave"), person("carol", Role.ADMIN)
        team = teams.create_team(session, carol, name="vision", now=NOW)
        for member in (alice, bob):
            teams.add_member(session, carol, team_id=team.id, member_id=str(member.member_id), now=NOW)
        host = hosts.ensure_local(session, name="gpu1", engine_url="unix:///run/docker.sock", now=NOW)
        image, slim = (
            images.register_prepared(
                session, root, base=f"example/{name}:1", title=name.title(), reference=f"berth/workspace:{name}-1",
                cuda_version=None, has_jupyter=name == "full", now=NOW)
            for name in ("full", "slim")
        )
        epoch = observations.next_epoch(session, now=NOW)
        return Cast(alice, bob, dave, carol, team.id, host.id, image.id, slim.id, epoch)
