"""The dashboard on a database of its own: a fixed cast, a clock that stands, browsers that know CSRF tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from databases import Databases
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from webapp.domain.actor import Actor
from webapp.domain.house import HouseRules
from webapp.key_files import seal_of
from webapp.services import hosts, images, people, teams, volumes, workspaces
from webapp.services.secrets import Secrets
from webapp.settings import Settings, house_rules, load_settings
from webapp.store.migrate import upgrade
from webapp.store.session import Store
from webapp.store.tables import AgentState, Role, Workspace
from webapp.web import create_app
from webapp.web.limits import limiter

NOON = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
PASSWORD = "a few plain words"
CANARY = "canary-token-that-nobody-may-see"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEbtvKGtUgk3Kev+QjJjQ1cs1VQAV5UU3SQGcfAvmn0p alice@thinkpad"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILx4AZ6V5QbWSUYnU0lBqDEw1jCyvqYxgYvMhHZ4aPXK bob@laptop"
SECRETS = Secrets(jupyter_token=CANARY, host_private_key="PRIVATE-CANARY", host_public_key=OTHER_KEY.rpartition(" ")[0])


@dataclass
class Clock:
    moment: datetime = NOON

    def __call__(self) -> datetime:
        return self.moment

    def forward(self, **amount: float) -> None:
        self.moment += timedelta(**amount)


@dataclass
class Cast:
    """Ids of what the seeded database holds: alice and bob are in team vision, carol is the administrator."""

    alice: str = ""
    bob: str = ""
    carol: str = ""
    host: str = ""
    image: str = ""
    slim: str = ""
    team: str = ""
    volume: str = ""
    uids: dict[str, int] = field(default_factory=dict)


class Browser:
    """One person's browser. `post` sends the CSRF token that a page of this session holds."""

    def __init__(self, app: Flask) -> None:
        self.client: FlaskClient = app.test_client()

    def get(self, path: str, **kwargs: Any) -> TestResponse:
        return self.client.get(path, **kwargs)

    def post(self, path: str, data: dict[str, Any] | None = None, **kwargs: Any) -> TestResponse:
        return self.client.post(path, data={"csrf_token": self.token(), **(data or {})}, **kwargs)

    def token(self) -> str:
        for page in ("/me", "/sign-in"):
            found = re.search(r'name="csrf_token" value="([^"]+)"', self.get(page).text)
            if found:
                return found[1]
        raise AssertionError("no page has a CSRF token")

    def sign_in(self, username: str, password: str = PASSWORD, **more: str) -> TestResponse:
        return self.post("/sign-in", {"username": username, "password": password, **more})


@pytest.fixture(scope="session")
def seeded(databases: Databases) -> tuple[str, Cast]:
    """Name of a database with the cast in it; each test gets a copy."""
    store, cast = Store(databases.make("seeded")), Cast()
    upgrade(store)
    house = Actor.house()
    with store.write() as db:
        for username, role in (("alice", Role.MEMBER), ("bob", Role.MEMBER), ("carol", Role.ADMIN)):
            person = people.create_member(db, house, username=username, display_name=username.title(),
                                          password=PASSWORD, role=role, now=NOON)
            setattr(cast, username, person.id)
        cast.host = hosts.ensure_local(db, name="atlas", engine_url="unix:///x", now=NOON).id
        images.seed(db, now=NOON)
        cast.image = images.add(db, house, title="PyTorch", reference="example.org/berth:1", base=None,
                                cuda_version="12.8", has_jupyter=True, now=NOON).id
        cast.slim = images.add(db, house, title="Slim", reference="example.org/slim:1", base=None, cuda_version=None,
                               has_jupyter=False, now=NOON).id
        cast.team = teams.create_team(db, house, name="vision", now=NOON).id
        for member in (cast.alice, cast.bob):
            teams.add_member(db, house, team_id=cast.team, member_id=member, now=NOON)
        cast.volume = volumes.create_volume(db, house, name="imagenet", team_id=cast.team, host_folder=None,
                                            target=None, read_only=True, roots=(), now=NOON).id
        db.add(AgentState(id=1, epoch=1, started_at=NOON, alive_at=NOON))
    store.close()
    return "seeded", cast


@pytest.fixture
def cast(seeded: tuple[str, Cast]) -> Cast:
    return seeded[1]


@pytest.fixture
def settings(tmp_path: Path, databases: Databases, seeded: tuple[str, Cast]) -> Iterator[Settings]:
    state = tmp_path / "state"
    state.mkdir(mode=0o750)
    url = databases.make("web", like=seeded[0])
    yield load_settings({
        "BERTH_STATE_DIR": str(state), "BERTH_DATABASE_URL": url, "BERTH_URL": "http://localhost",
        "BERTH_LISTEN": "127.0.0.1:8000",
        "BERTH_WORKSPACE_HOST": "127.0.0.1", "BERTH_INSTANCE": "test", "BERTH_MAX_CPUS": "16",
        "BERTH_MAX_MEMORY": "64GiB", "BERTH_DEFAULT_CPUS": "2", "BERTH_DEFAULT_MEMORY": "8GiB",
    })
    databases.drop("web")


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings.database_url, seal=seal_of(settings))
    yield store
    store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_app(settings: Settings, store: Store, clock: Clock) -> Callable[..., Flask]:
    def make(**changes: Any) -> Flask:
        app = create_app(replace(settings, **changes), store, clock=clock)
        app.testing = False     # errors become answers, as in life
        limiter.reset()
        return app
    return make


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app()


@pytest.fixture
def anyone(app: Flask) -> Browser:
    return Browser(app)


def signed_in(app: Flask, username: str) -> Browser:
    browser = Browser(app)
    assert browser.sign_in(username).status_code == 303
    return browser


@pytest.fixture
def alice(app: Flask) -> Browser:
    return signed_in(app, "alice")


@pytest.fixture
def bob(app: Flask) -> Browser:
    return signed_in(app, "bob")


@pytest.fixture
def carol(app: Flask) -> Browser:
    return signed_in(app, "carol")


@pytest.fixture
def launch(store: Store, cast: Cast, settings: Settings) -> Callable[..., str]:
    """A workspace of alice's, as the agent would have written it; returns its id."""
    rules: HouseRules = house_rules(settings)

    def make(
        name: str = "run-1", *, owner: str = "alice", image: str = "", phase: str = "running",
        gpus: tuple[str, ...] = (), **columns: Any,
    ) -> str:
        with store.write() as db:
            mounts = ((cast.volume, True),) if owner != "carol" else ()
            request = workspaces.LaunchRequest(name=name, image_id=image or cast.image, mounts=mounts,
                                               gpu_uuids=gpus)
            row: Workspace = workspaces.launch(
                db, Actor(getattr(cast, owner), False), request, house=rules, now=NOON, new_secrets=lambda: SECRETS)
            row.phase, row.observed_generation, row.started_at = phase, row.generation, NOON
            for column, value in columns.items():
                setattr(row, column, value)
            return row.id
    return make
