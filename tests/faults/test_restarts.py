"""The agent, or the engine below it, goes away and comes back, while workspaces run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import parts
import pytest

from faults import standin
from faults.conftest import MakeHouse
from faults.house import Ground, House, Person
from faults.invariants import check_always, check_at_rest, until_at_rest
from faults.own_engine import OwnEngine, own_engine
from faults.workspace import Workspace, now
from webapp.domain.workspace import Phase
from webapp.store.tables import Image

pytestmark = pytest.mark.docker
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an engine of its own in a network namespace needs root")

LossyProxy = parts.load(Path(__file__).parents[1] / "engine" / "lossy_proxy.py").LossyProxy


# -- the agent


def test_workspaces_do_not_notice_that_agent_and_web_end(make_house: MakeHouse, slim_image: str) -> None:
    house = make_house("both-end")
    alice = house.add_person("alice")
    by_ssh, echo = house.launch(alice, house.add_image(slim_image), "a"), house.launch(
        alice, house.add_image(standin.WORKSPACE), "b")
    house.start_agent()
    house.start_web()
    rows = [workspace.until(Phase.RUNNING) for workspace in (by_ssh, echo)]
    before = [_run_of(workspace) for workspace in (by_ssh, echo)]

    with _talk(by_ssh) as hears_more, house.ground.connect(echo.ports()["ssh"]) as connection:
        assert _echoes(connection) and hears_more()
        assert house.agent is not None and house.web is not None
        house.agent.kill()
        house.web.stop()
        house.start_agent().kill()
        house.start_agent()
        house.start_web()
        house.wait_for_first_pass()
        assert hears_more() and _echoes(connection)

    assert [_run_of(workspace) for workspace in (by_ssh, echo)] == before
    assert [(row.phase, row.started_at) for row in (by_ssh.row(), echo.row())] == [
        (row.phase, row.started_at) for row in rows]
    check_at_rest(house)


def test_two_reconciliations_in_a_row_change_nothing(make_house: MakeHouse) -> None:
    house = make_house("twice")
    alice, image = house.add_person("alice"), house.add_image(standin.WORKSPACE)
    house.start_agent()
    running, stopped = house.launch(alice, image, "a"), house.launch(alice, image, "b")
    running.until(Phase.RUNNING)
    stopped.until(Phase.RUNNING)
    stopped.stop().until(Phase.STOPPED)
    before = _everything(running, stopped)

    for _ in range(2):
        house.restart_agent()

    assert _everything(running, stopped) == before


def test_second_agent_does_not_start_beside_the_first(make_house: MakeHouse) -> None:
    house = make_house("two-agents")
    first = house.start_agent()
    with pytest.raises(AssertionError, match="runs already"):
        house.start_agent()
    house.agent = first
    assert first.is_alive


# -- silence: the engine is there, and nobody hears it


def test_silent_engine_frees_nothing_and_workspaces_are_found_again(make_house: MakeHouse, ground: Ground) -> None:
    with LossyProxy(ground.url) as proxy:
        house = make_house("silence", url=proxy.url)
        workspace = _running(house)
        before, ports = _run_of(workspace), workspace.ports()

        with _away(Path(proxy.path)):
            row = workspace.until_row(lambda row: row.phase == Phase.UNKNOWN)
            assert row.reason is not None and row.reason["code"] == "engine_unreachable"
            assert workspace.ports() == ports and workspace.greets()
            assert house.host().unreachable_since is not None
            workspace.stop()                    # a wish is taken, and waits

        workspace.until(Phase.STOPPED)
        workspace.start()
        row = workspace.until(Phase.RUNNING)
        assert row.reason is None and house.host().unreachable_since is None
        assert (workspace.ports(), _run_of(workspace)[0]) == (ports, before[0])
        house.stop_agent()


def test_workspace_runs_on_through_a_silence(make_house: MakeHouse, ground: Ground) -> None:
    with LossyProxy(ground.url) as proxy:
        house = make_house("short-silence", url=proxy.url)
        workspace = _running(house)
        before = _run_of(workspace)

        with _away(Path(proxy.path)):
            workspace.until_row(lambda row: row.phase == Phase.UNKNOWN)
        row = workspace.until(Phase.RUNNING)

        assert _run_of(workspace) == before and row.reason is None
        check_at_rest(house)
        house.stop_agent()


# -- the engine


@dataclass(frozen=True)
class OwnHouse:
    """On an engine of its own, in a network namespace of its own."""

    engine: OwnEngine
    house: House
    alice: Person
    image: Image

    def launch(self, name: str) -> Workspace:
        return self.house.launch(self.alice, self.image, name)


@pytest.fixture(scope="module")
def own(make_house: MakeHouse) -> Iterator[OwnHouse]:
    with own_engine("restart") as (engine, ground):
        house = make_house("own", ground=ground)
        yield OwnHouse(engine, house, house.add_person("alice"), house.add_image(standin.WORKSPACE))
        house.close()       # before its engine goes


@pytest.fixture
def at_work(own: OwnHouse) -> OwnHouse:
    """With a living agent."""
    if own.house.agent is None or not own.house.agent.is_alive:
        own.house.start_agent()
    return own


def _terminate(engine: OwnEngine) -> None:
    engine.terminate()
    engine.start_again()


def _kill(engine: OwnEngine) -> None:
    """The new one ends what it finds, as a hand would (measured on 20.10)."""
    engine.kill()
    engine.start_again()


def _power_cut(engine: OwnEngine) -> None:
    """Engine and workspaces at once."""
    engine.kill()
    engine.start()


@needs_root
@pytest.mark.parametrize("restart", [_terminate, _kill, _power_cut])
def test_workspaces_are_started_again_after_the_engine(
    at_work: OwnHouse, restart: Callable[[OwnEngine], None]
) -> None:
    way = restart.__name__.strip("_").replace("_", "-")
    wanted, unwanted = at_work.launch(way), at_work.launch(f"{way}-unwanted")
    for workspace in (wanted, unwanted):
        workspace.until(Phase.RUNNING)
    unwanted.stop().until(Phase.STOPPED)
    wanted.run("sh", "-c", "echo kept > /opt/layer")
    container, moment = _run_of(wanted)[0], now()

    restart(at_work.engine)

    row = wanted.until_row(lambda row: row.phase == Phase.RUNNING and row.started_at is not None
                           and row.started_at > moment)
    assert row.note is not None and row.note["code"] == "restarted_engine" and row.reason is None
    assert wanted.greets() and _run_of(wanted)[0] == container
    assert wanted.read_file("/opt/layer") == b"kept\n"
    assert unwanted.row().phase == Phase.STOPPED
    until_at_rest(at_work.house)
    for workspace in (wanted, unwanted):
        workspace.remove()
    for workspace in (wanted, unwanted):
        workspace.until(Phase.REMOVED)


@needs_root
def test_frozen_engine_holds_up_nobody(at_work: OwnHouse) -> None:
    """It takes connections and never answers: each call ends at its deadline, 30 s."""
    house, workspace = at_work.house, at_work.launch("frozen")
    workspace.until(Phase.RUNNING)
    before = _run_of(workspace)
    at_work.engine.freeze()
    try:
        workspace.until_row(lambda row: row.phase == Phase.UNKNOWN)
        assert now() - house.agent_state().alive_at < timedelta(seconds=15)   # its sign of life goes on
        assert workspace.greets() and len(workspace.ports()) == 1

        began = time.monotonic()
        house.stop_agent()
        assert time.monotonic() - began < 15
        house.start_agent()                                             # and another one comes up meanwhile
    finally:
        at_work.engine.thaw()

    workspace.until(Phase.RUNNING)
    assert _run_of(workspace) == before
    check_at_rest(house)
    workspace.remove().until(Phase.REMOVED)


# -- looking


def _running(house: House) -> Workspace:
    alice, image = house.add_person("alice"), house.add_image(standin.WORKSPACE)
    house.start_agent()
    workspace = house.launch(alice, image, "one")
    workspace.until(Phase.RUNNING)
    check_always(house)
    return workspace


def _run_of(workspace: Workspace) -> tuple[str, str]:
    """Container and when it was started: another run would differ."""
    container = workspace.container()
    return container.id, container.attrs["State"]["StartedAt"]


def _everything(*workspaces: Workspace) -> list[Any]:
    """Rows and containers, whole."""
    return [({key: value for key, value in vars(one.row()).items() if not key.startswith("_")},
             one.container().attrs["State"], one.container().attrs["HostConfig"]) for one in workspaces]


@contextlib.contextmanager
def _talk(workspace: Workspace) -> Iterator[Callable[[], bool]]:
    """An SSH session that says the time again and again; the function waits until it says one that is not past."""
    argv = [*workspace.ssh_argv(), "while :; do date +%s.%N; sleep 0.1; done"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as session:
        def hears_more() -> bool:
            assert session.stdout is not None
            moment = time.time()
            return any(float(line) > moment for line in session.stdout)

        yield hears_more
        assert session.poll() is None
        session.terminate()


def _echoes(connection: Any) -> bool:
    """The stand-in sends back what it gets, after its greeting."""
    word = os.urandom(8).hex().encode()
    connection.sendall(word)
    heard = b""
    while word not in heard:
        heard += connection.recv(1024)
    return True


@contextlib.contextmanager
def _away(path: Path) -> Iterator[None]:
    """Nobody can connect to the socket; who is connected stays so."""
    aside = path.with_suffix(".away")
    path.rename(aside)
    try:
        yield
    finally:
        aside.rename(path)
