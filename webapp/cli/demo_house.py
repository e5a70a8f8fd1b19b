"""The demo's house: settings that no real instance shares, its simulated host and its sample members."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from webapp.cli import demo_mark
from webapp.cli.demo_mark import MEMBERS, Mark, NotADemo
from webapp.cli.house import ACTOR, now
from webapp.domain.mounts import parse_host_folder
from webapp.engines.docker.belongings import belongings
from webapp.errors import InvalidInput, NotFound, SettingsError
from webapp.services import people
from webapp.settings import Settings, default_state_dir, load_settings, write_once
from webapp.simulation import presets, state
from webapp.simulation.install import state_file_in
from webapp.store.reads import people as reads
from webapp.store.session import Store

LISTEN = "127.0.0.1:8100"
PORTS = "19000-19999"       # beside what other instances hand out, and below what Linux picks by itself
PRESET = "four"

_EASY = "abcdefghjkmnpqrstuvwxyz23456789"     # nothing that looks like another


class NoDemo(NotFound):
    """No demo was started from that folder yet, or it was cleaned away."""

    title = "There is no demo in %(folder)s. Start one: ./run demo"     # English, as all of the command line


@dataclass(frozen=True, slots=True)
class Demo:
    settings: Settings
    mark: Mark


def defaults(given: Mapping[str, str]) -> dict[str, str]:
    """The demo's values of the variables that `given` leaves open; the instance comes from the mark."""
    listen = given.get("BERTH_LISTEN", "").strip() or LISTEN
    own = {
        "BERTH_STATE_DIR": f"{default_state_dir()}-demo",
        "BERTH_LISTEN": listen,
        "BERTH_URL": f"http://localhost:{listen.rpartition(':')[2]}",
        "BERTH_PORTS": PORTS,
        "BERTH_SIMULATED_GPUS": "mounted",
    }
    return {name: value for name, value in own.items() if not given.get(name, "").strip()}


def enter(environ: MutableMapping[str, str], *, may_begin: bool) -> Demo:
    """`environ` made the demo's: web, agent and every command read it from there.

    Args:    may_begin: make the mark where there is none; else there has to be one.
    Raises:  SettingsError, NoDemo, NotADemo, EngineUnreachable, EngineRejected.
    """
    environ.update(defaults(environ))
    folder = Path(environ["BERTH_STATE_DIR"].strip())
    mark = demo_mark.read(folder)
    if mark is None and not may_begin:
        raise NoDemo(folder=folder)
    wanted = environ.get("BERTH_INSTANCE", "").strip()
    if mark is not None and wanted not in ("", mark.instance):
        raise SettingsError(name="BERTH_INSTANCE", why=f"the demo in {folder} is “{mark.instance}”. Unset it")
    environ["BERTH_INSTANCE"] = wanted or (mark.instance if mark else _new_instance())
    settings = load_settings(environ)
    _refuse_other_database(settings)
    if mark is None:
        mark = _begin(settings, is_instance_given=bool(wanted))
    return Demo(settings, mark)


def furnish(store: Store, *, demo: Demo) -> None:
    """Makes what is missing: the simulated host, and the sample members."""
    if demo.settings.simulated_gpus != "no":
        with suppress(state.SimulationTaken):
            state.create(state_file_in(demo.settings.state_dir), presets.preset(PRESET, demo.mark.instance))
    with store.write() as session:
        there = {row.username for row in reads.members(session)}
        for username, password in demo.mark.passwords.items():
            if username not in there:
                people.create_member(
                    session, ACTOR, username=username, display_name=username.title(), password=password,
                    role=MEMBERS[username], now=now())


def _begin(settings: Settings, *, is_instance_given: bool) -> Mark:
    """The mark, written before anything else is made. Nothing of another instance may be there."""
    folder = settings.state_dir
    if any(folder.iterdir()):
        raise NotADemo(folder=folder, why="other things lie in it")
    _refuse_unmountable(folder)
    if is_instance_given and belongings(settings.engine_url, settings.instance, host="the engine"):
        raise SettingsError(name="BERTH_INSTANCE", why=f"the engine has something of “{settings.instance}”. Unset it")
    mark = Mark(settings.instance, {name: _new_password() for name in MEMBERS})
    demo_mark.write(folder, mark)
    # For commands that are given the state folder alone, without “demo” before them.
    write_once(folder / "instance", mark.instance, 0o644)
    return mark


def _refuse_unmountable(folder: Path) -> None:
    """Now rather than at the first launch: containers get the simulated host's folder."""
    try:
        parse_host_folder(str(state_file_in(folder).parent), ["/"])
    except InvalidInput:
        raise SettingsError(name="BERTH_STATE_DIR", why=(
            f"workspaces of a demo see a part of {folder}, and no folder of the system may be mounted. Choose another, "
            "such as /var/lib/berth-demo")) from None


def _refuse_other_database(settings: Settings) -> None:
    if settings.database_url != f"sqlite:///{settings.state_dir / 'berth.db'}":
        raise SettingsError(name="BERTH_DATABASE_URL", why="a demo keeps its database in its state folder. Unset it")


def _new_instance() -> str:
    return "demo" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(6))


def _new_password() -> str:
    return "-".join("".join(secrets.choice(_EASY) for _ in range(4)) for _ in range(3))
