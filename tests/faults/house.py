"""A house of its own for a test: database, people, images and one agent process, on a real engine.

Intents are written by the services, as web writes them; what the agent made of them is read from the rows, from the
engine and from inside the workspace.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import parts
import requests
from databases import IS_POSTGRESQL, databases
from sqlalchemy import select

from faults import agents
from faults.agents import Process
from faults.namespaces import inside
from faults.ports import block_of_ports
from faults.sshkeys import KeyPair, new_key
from faults.toolkit import Toolkit
from faults.waiting import until
from faults.workspace import Workspace, now
from webapp.domain.actor import Actor
from webapp.domain.container import LABEL_PRIVATE_IMAGE
from webapp.domain.house import HouseRules
from webapp.domain.workspace import Phase
from webapp.key_files import seal_of
from webapp.services import hosts, images, keys, people, workspaces
from webapp.services import secrets as service_secrets
from webapp.settings import Settings, house_rules, load_settings
from webapp.simulation import install
from webapp.store.migrate import upgrade
from webapp.store.session import Store
from webapp.store.tables import AgentState, Host, Image, Role
from webapp.store.tables import Workspace as RowOfWorkspace

PASSWORD = "correct horse battery"      # of everybody in a test


@dataclass(frozen=True)
class Ground:
    """An engine, and the network namespace that it lives in (None = the machine's own)."""

    url: str
    docker: docker.DockerClient     # straight to the engine, as somebody with a shell uses it
    namespace: str | None = None

    @property
    def prefix(self) -> tuple[str, ...]:
        """Before a command line that is to run beside the engine."""
        return ("nsenter", f"--net=/var/run/netns/{self.namespace}") if self.namespace else ()

    def connect(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        def connected() -> socket.socket:
            return socket.create_connection((address, port), timeout=10)

        return inside(self.namespace, connected) if self.namespace else connected()


@dataclass(frozen=True)
class Person:
    id: str
    username: str
    uid: int
    actor: Actor
    key: KeyPair


class House:
    def __init__(
        self, folder: Path, ground: Ground, instance: str, ports: tuple[int, int], *, url: str | None = None,
        settings: Mapping[str, str] | None = None, toolkit: Toolkit | None = None,
        begin: Callable[[House], None] | None = None,
    ) -> None:
        """`url`: where the agent finds the engine, when that is not where the ground is.   `toolkit`: of its cards.

        `begin`: fills the database, as it is to be found; else it is a new one.
        """
        self.folder, self.ground, self.instance, self.toolkit = folder, ground, instance, toolkit
        cards = {"SIMULATED_GPUS": "requested"} if toolkit else {}
        self.environment = self._environment(url or ground.url, ports, {**cards, **(settings or {})})
        self.settings: Settings = load_settings(self.environment)
        self._show_cards(self.settings.state_dir)
        self.store = Store(self.settings.database_url, seal=seal_of(self.settings))
        self.agent: Process | None = None
        self.rival: Process | None = None
        self.web: Process | None = None
        (begin or _new)(self)

    @property
    def docker(self) -> docker.DockerClient:
        return self.ground.docker

    @property
    def rules(self) -> HouseRules:
        return house_rules(self.settings)

    # -- who and what

    def add_person(self, username: str, *, role: Role = Role.MEMBER) -> Person:
        key = new_key(self.folder / f"key-{username}")
        with self.store.write() as session:
            row = people.create_member(session, Actor.house(), username=username, display_name=username.title(),
                                       password=PASSWORD, role=role, now=now())
            actor = Actor(row.id, is_admin=role is Role.ADMIN)
            keys.add_keys(session, actor, member_id=row.id, text=key.public, title="test", now=now())
        return Person(row.id, username, row.uid, actor, key)

    def add_image(self, reference: str, *, jupyter: bool = False) -> Image:
        with self.store.write() as session:
            return images.add(session, Actor.house(), title=f"Image {reference}"[:60], reference=reference, base=None,
                              cuda_version=None, has_jupyter=jupyter, now=now())

    def launch(
        self, owner: Person, image: Image, name: str, *,
        new_secrets: Callable[[], service_secrets.Secrets] = service_secrets.new_secrets, **wishes: Any,
    ) -> Workspace:
        """`wishes`: fields of LaunchRequest."""
        request = workspaces.LaunchRequest(name=name, image_id=image.id, **{"memory": "256MiB", "cpus": "1", **wishes})
        with self.store.write() as session:
            row = workspaces.launch(session, owner.actor, request, house=self.rules, now=now(), new_secrets=new_secrets)
        return Workspace(self, owner, row.id)

    # -- its processes

    def start_agent(self, *, entry: Sequence[str] = agents.PLAIN, **more: str) -> Process:
        """`more`: variables for this one, without the prefix BERTH_TEST_."""
        environment = {**self.environment, **{f"BERTH_TEST_{key.upper()}": value for key, value in more.items()}}
        agent = Process(entry, environment, self.folder / "agent.log", prefix=self.ground.prefix)
        self.agent = agent
        agent.wait_started(lambda: "agent.started" in agent.said())
        return agent

    def start_rival(self, *, entry: Sequence[str] = agents.PLAIN) -> Process:
        """An agent on the same rows whose lock is another one, as of another machine: the newer one has the say."""
        state = self.folder / "rival"
        state.mkdir(mode=0o750, exist_ok=True)
        self._show_cards(state)
        shutil.copy(self.settings.state_dir / "data_key", state)
        environment = {**self.environment, "BERTH_STATE_DIR": str(state),
                       "BERTH_DATABASE_URL": self.settings.database_url}
        rival = Process(entry, environment, self.folder / "rival.log", prefix=self.ground.prefix)
        self.rival = rival
        rival.wait_started(lambda: "agent.started" in rival.said())
        return rival

    def restart_agent(self) -> None:
        """And wait until the new one has looked at everything."""
        self.stop_agent()
        self.start_agent()
        self.wait_for_first_pass()

    def wait_for_first_pass(self) -> None:
        """Of the present agent."""
        began = self.agent_state().started_at
        until(lambda: (self.host().seen_at or began) > began, what=self.how_it_is)

    def agent_state(self) -> AgentState:
        with self.store.read() as session:
            return session.get_one(AgentState, 1)

    def host(self) -> Host:
        with self.store.read() as session:
            return session.scalars(select(Host)).one()

    def wait_for_cards(self) -> None:
        """Until an agent has read them."""
        until(lambda: self.host().gpus_seen_at, what=self.how_it_is)

    def workspaces(self) -> list[RowOfWorkspace]:
        """Those that are not gone."""
        with self.store.read() as session:
            return list(session.scalars(select(RowOfWorkspace).where(RowOfWorkspace.phase != Phase.REMOVED)))

    def start_web(self) -> Process:
        """At `settings.url`."""
        self.web = Process(agents.WEB, self.environment, self.folder / "web.log")
        self.web.wait_started(self._web_answers)
        return self.web

    def _web_answers(self) -> bool:
        try:
            return requests.get(f"{self.settings.url}/healthz", timeout=5).ok
        except requests.ConnectionError:
            return False

    def stop_agent(self) -> None:
        if self.agent is not None:
            self.agent.stop()

    def how_it_is(self) -> str:
        """For the message of a test that fails."""
        said = [agent.said()[-4000:] for agent in (self.agent, self.rival) if agent]
        return "\n-- the rival --\n".join(said) or "no agent was started"

    def close(self) -> None:
        with contextlib.closing(self.store):
            for process in (self.agent, self.rival, self.web):
                if process is not None:
                    process.stop()

    # -- what of this instance is on the engine

    def containers(self) -> list[Any]:
        """Sparse: one call, no inspect."""
        mine = {"label": f"berth.instance={self.instance}"}
        return list(self.docker.containers.list(all=True, filters=mine, sparse=True))

    def volumes(self) -> list[str]:
        found = self.docker.api.volumes(filters={"name": f"berth-{self.instance}-"})["Volumes"] or []
        return [volume["Name"] for volume in found if volume["Name"].startswith(f"berth-{self.instance}-")]

    def private_images(self) -> list[str]:
        tags = itertools.chain.from_iterable(row.get("RepoTags") or () for row in self.docker.api.images())
        return [tag for tag in tags if tag.startswith(f"berth-{self.instance}/")]

    def nameless_images(self) -> list[str]:
        """Kept for a move, and without the name that they were given."""
        found = self.docker.api.images(filters={"dangling": True, "label": LABEL_PRIVATE_IMAGE})
        return [row["Id"] for row in found if row["Labels"][LABEL_PRIVATE_IMAGE].startswith(f"berth-{self.instance}/")]

    def _show_cards(self, state_dir: Path) -> None:
        """The agent reads the simulated host below its state folder; here it is the one below the engine."""
        link = install.state_file_in(state_dir).parent
        if self.toolkit and not link.exists():
            link.symlink_to(self.toolkit.state_file.parent)

    def _environment(self, url: str, ports: tuple[int, int], settings: Mapping[str, str]) -> dict[str, str]:
        state = self.folder / "state"
        state.mkdir(mode=0o750)
        own = {"STATE_DIR": str(state), "ENGINE": url, "INSTANCE": self.instance,
               "PORTS": f"{ports[0]}-{ports[1] - 1}", "LISTEN": f"127.0.0.1:{ports[1]}",
               "URL": f"http://localhost:{ports[1]}", **settings}
        foreign = {key: value for key, value in os.environ.items()
                   if not key.startswith("BERTH_") or key.startswith("BERTH_TEST_")}
        return {**foreign, **{f"BERTH_{key}": value for key, value in own.items()}}


def _new(house: House) -> None:
    upgrade(house.store)
    with house.store.write() as session:
        hosts.ensure_local(session, name="local", engine_url=house.settings.engine_url, now=now())


@contextlib.contextmanager
def open_house(
    folder: Path, ground: Ground, *, url: str | None = None, settings: Mapping[str, str] | None = None,
    toolkit: Toolkit | None = None, begin: Callable[[House], None] | None = None,
) -> Iterator[House]:
    """What an engine or PostgreSQL that tests share has of it goes at the end; an engine of its own goes whole."""
    with contextlib.ExitStack() as stack:
        instance = f"{parts.INSTANCE_PREFIX}own000"
        if ground.namespace is None:
            instance = stack.enter_context(parts.instance(ground.url))
        ports = stack.enter_context(block_of_ports())
        if IS_POSTGRESQL:
            name = f"house-{ports[0]}"
            server = stack.enter_context(databases(folder))
            settings = {"DATABASE_URL": server.make(name), **(settings or {})}
            stack.callback(server.drop, name)
        house = House(folder, ground, instance, ports, url=url, settings=settings, toolkit=toolkit, begin=begin)
        yield stack.enter_context(contextlib.closing(house))
