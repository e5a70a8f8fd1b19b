"""`berth up`: sets up what is missing, then the supervisor takes this process over."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from webapp.agent.exclusion import wait_for_the_last_one
from webapp.cli import children, lock, web_account, workspace_image
from webapp.cli.failure import OTHER_VERSION, AddressTaken
from webapp.cli.house import ACTOR, now
from webapp.cli.steps import Steps
from webapp.engines import recipe
from webapp.engines.recipe import NoRecipe
from webapp.key_files import DATA_KEY, check_registry_auth, load_data_keys, load_secret_key, seal_of
from webapp.services import hosts, images, sealing
from webapp.settings import Settings, load_settings
from webapp.simulation import state as simulation
from webapp.simulation.install import state_file_in
from webapp.store.migrate import upgrade
from webapp.store.reads import house as reads
from webapp.store.schema import reaching
from webapp.store.session import Store

Furnish = Callable[[Store], None]

END_SECONDS = 8.0       # an `up` that was killed may have left a web process and an agent that are still ending


@click.command(name="up")
def command() -> None:
    """Set up what is missing, then run web and agent until Ctrl-C. Workspaces outlive it.

    Migrates the database, makes the workspace image if the engine lacks it, starts web and agent again when they
    die, and prints the address; with no administrator yet, also a one-time link that makes the first.
    """
    start()


def start(*, furnish: Furnish | None = None) -> None:
    """Never comes back: this process becomes the supervisor.

    Args:    furnish: fills a house that is set up before web and agent begin.
    """
    steps = Steps()
    settings = load_settings()
    lock.take(settings.state_dir)
    load_secret_key(settings)
    load_data_keys(settings)
    check_registry_auth(settings)
    _wait_for_port(settings)
    store = Store(settings.database_url, seal=seal_of(settings))
    _wait_for_agent(settings, store)
    with steps.step("database"):
        upgrade(store)
        _seed(store, settings)
        _seal(store, settings, steps)
        if furnish:
            furnish(store)
    _check_simulation(settings)
    _prepare_image(store, settings, steps)
    store.close()
    plan = _plan(settings, steps)
    _become_supervisor(plan)


def _seed(store: Store, settings: Settings) -> None:
    with store.write() as session:
        images.seed(session, now=now())
        hosts.ensure_local(session, name=socket.gethostname(), engine_url=settings.engine_url, now=now())


def _seal(store: Store, settings: Settings, steps: Steps) -> None:
    """What an older Berth wrote in plain text; what no key opens is said: somebody may still have that key."""
    known = seal_of(settings).known
    with store.write() as session:
        sealing.reseal(session, known=known)
        lost = sum(count for key, count in sealing.keys_in_use(session).items() if key not in known)
    if lost:
        steps.warn(f"{lost} secrets in the database were sealed with a key that is not in "
                   f"{settings.state_dir / DATA_KEY}. Put the former file back, or run: berth key forget")


def _check_simulation(settings: Settings) -> None:
    """Raises NoSimulation, SimulationUnreadable: better now than an agent that ends again and again."""
    if settings.simulated_gpus != "no":
        simulation.read(state_file_in(settings.state_dir))


def _prepare_image(store: Store, settings: Settings, steps: Steps) -> None:
    """Without an image there is still a dashboard, where the reason stays visible: so this stops nothing."""
    try:
        with store.read() as session:
            if reads.deleted_bases(session) & {recipe.default_base(), recipe.LOCAL_BASE}:
                return      # somebody did not want it
        with steps.step("workspace image") as say:
            prepared = workspace_image.ensure(settings.engine_url, None, jupyter=True, progress=say,
                                              registries=workspace_image.registries_of(settings))
            workspace_image.register(store, prepared, ACTOR, now=now())
    except (workspace_image.ImageNotMade, NoRecipe) as error:
        steps.warn(str(error))
        steps.warn("Going on without: nothing can be launched until “berth image prepare” worked.")


def _plan(settings: Settings, steps: Steps) -> dict[str, Any]:
    account, why = web_account.prepare(settings)
    if why:
        steps.warn(f"web runs as root, because {why}. Whoever breaks into it has the server: see the README.")
    web: dict[str, Any] = {"name": "web", "command": children.web_command(settings)}
    if account:
        web |= {"uid": account.uid, "gid": account.gid}
    agent = {"name": "agent", "command": children.agent_command()}
    announce = {"name": "announce", "command": children.announce_command(), "once": True}
    return {"children": [agent, web, announce], "final": [OTHER_VERSION]}


def _wait_for_port(settings: Settings) -> None:
    """Raises AddressTaken: better one sentence now than a web process that dies again and again."""
    host, port = settings.listen_address
    deadline = time.monotonic() + END_SECONDS
    while True:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                return
        except OSError as error:
            if time.monotonic() >= deadline or isinstance(error, socket.gaierror):
                raise AddressTaken(address=settings.listen, why=(error.strerror or str(error)).lower()) from error
            time.sleep(0.2)


def _wait_for_agent(settings: Settings, store: Store) -> None:
    """Before anything is upgraded: an older one would be ended by that, and ours refused as long as it lives.

    Raises:  AgentAlreadyRuns, AgentRunsElsewhere, DatabaseUnreachable.
    """
    with reaching(store):
        wait_for_the_last_one(settings.state_dir, store, seconds=END_SECONDS)


def _become_supervisor(plan: dict[str, Any]) -> None:
    """Same process id, same lock, a tenth of the memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, children.supervisor_command(json.dumps(plan)))  # noqa: S606
