import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest
import races
from datakey import SEAL
from sqlalchemy import func, select

from webapp.domain.ports import PortRange
from webapp.domain.workspace import Service
from webapp.errors import NoFreePort
from webapp.services import ports, workspaces
from webapp.services.orders import LaunchRequest
from webapp.store.session import Store
from webapp.store.tables import Event, PortClaim

FEW = PortRange(20000, 20003)


@pytest.fixture
def claimed(store):
    def read(workspace) -> dict[str, int]:
        with store.read() as session:
            claims = session.scalars(select(PortClaim).where(PortClaim.workspace_id == workspace.id))
            return {claim.service: claim.port for claim in claims}
    return read


@pytest.fixture
def end(do, gone):
    def run(actor, workspace) -> None:
        do(workspaces.remove, actor, workspace.id)
        gone(workspace)
    return run


def test_launch_claims_one_port_per_service(launch, alice, claimed):
    assert claimed(launch(alice)) == {Service.SSH: 20000, Service.JUPYTER: 20001}


def test_port_that_was_given_back_goes_last(launch, alice, claimed, end, house):
    first = launch(alice, "a")
    end(alice, first)
    assert claimed(launch(alice, "b")) == {Service.SSH: 20002, Service.JUPYTER: 20003}


def test_longest_unused_goes_first(store, cast, launch, alice, now):
    a, b, c = launch(alice, "a"), launch(alice, "b"), launch(alice, "c")
    with store.write() as session:
        ports.release_all(session, b.id, now)                           # 20002, 20003
        ports.release_all(session, a.id, now + timedelta(hours=1))      # 20000, 20001
        taken = [ports.claim(session, cast.host_id, workspace.id, service, ports=FEW, now=now)
                 for workspace in (a, b) for service in Service]
    assert taken == [20002, 20003, 20000, 20001]
    assert c


def test_ports_stay_claimed_until_the_workspace_is_seen_gone(do, launch, alice, claimed, gone):
    workspace = launch(alice)
    do(workspaces.remove, alice, workspace.id)
    assert len(claimed(workspace)) == 2
    gone(workspace)
    assert claimed(workspace) == {}


def test_stopped_workspace_keeps_its_ports(do, launch, alice, claimed):
    workspace = launch(alice)
    do(workspaces.stop, alice, workspace.id)
    assert len(claimed(workspace)) == 2


def test_full_range_refuses_and_leaves_nothing(do, launch, alice, cast, house, store):
    launch(alice, "a")
    three = replace(house, ports=PortRange(20000, 20002))
    with pytest.raises(NoFreePort) as caught:
        do(workspaces.launch, alice, LaunchRequest("b", cast.image_id), house=three)
    assert caught.value.facts == {"first": 20000, "last": 20002}
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(PortClaim)) == 2


def test_port_held_by_another_program_is_replaced(store, do, cast, launch, alice, claimed):
    workspace = launch(alice)
    again = [do(ports.replace, cast.host_id, workspace.id, Service.SSH, taken=20000, ports=FEW) for _ in range(2)]
    assert again == [20002, 20002]
    assert claimed(workspace) == {Service.SSH: 20002, Service.JUPYTER: 20001}
    with store.read() as session:
        event = session.scalars(select(Event).where(Event.action == "port.replace")).one()
    assert (event.details["old"], event.details["new"]) == (20000, 20002)


def test_replaced_port_is_not_handed_out_next(do, cast, launch, alice, claimed):
    workspace = launch(alice)
    do(ports.replace, cast.host_id, workspace.id, Service.SSH, taken=20000, ports=FEW)
    assert claimed(launch(alice, "b"))[Service.SSH] == 20003


def test_lost_race_takes_the_next_port(store, cast, launch, alice, now, monkeypatch):
    """As on PostgreSQL, where two may choose the same port: the primary key decides."""
    holder, other = launch(alice, "a"), launch(alice, "b")
    choose = ports._longest_unused

    def stale(session, host_id, ports_, lost):
        return choose(session, host_id, ports_, lost) if lost else 20000

    monkeypatch.setattr(ports, "_longest_unused", stale)
    with store.write() as session:
        ports.release_all(session, other.id, now)
        won = ports.claim(session, cast.host_id, other.id, Service.SSH, ports=PortRange(20000, 20009), now=now)
    assert won == 20004 and holder


def _race(url: str, workspace_id: str, host_id: str, now, start, results) -> None:
    store = Store(url, seal=SEAL)
    start.wait()
    try:
        with store.write() as session:
            port = ports.claim(session, host_id, workspace_id, Service.SSH, ports=PortRange(30000, 30000), now=now)
        results.put(port)
    except NoFreePort:
        results.put(None)
    store.close()


def test_two_processes_race_for_the_last_port(store, cast, launch, alice, now):
    contenders = [launch(alice, "a"), launch(alice, "b")]
    with store.write() as session:
        for workspace in contenders:
            ports.release_all(session, workspace.id, now)
    store.close()       # no open connection may cross a fork
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(2), context.SimpleQueue()
    racers = [context.Process(target=_race, args=(str(store.url), one.id, cast.host_id, now, start, results))
              for one in contenders]
    [racer.start() for racer in racers]
    [racer.join() for racer in racers]
    assert sorted([results.get(), results.get()], key=str) == [30000, None]


def test_two_threads_race_for_the_last_port(store, cast, launch, alice, now):
    contenders = [launch(alice, "a"), launch(alice, "b")]
    with store.write() as session:
        for workspace in contenders:
            ports.release_all(session, workspace.id, now)
    start = Barrier(2)

    def claim(workspace, last: int) -> bool:
        start.wait()
        try:
            with store.write() as session:
                ports.claim(session, cast.host_id, workspace.id, Service.SSH, ports=PortRange(last, last), now=now)
            return True
        except NoFreePort:
            return False

    with ThreadPoolExecutor(2) as pool:
        for last in range(30000, 30020):
            assert sorted(pool.map(claim, contenders, (last, last))) == [False, True]
            with store.write() as session:
                [ports.release_all(session, one.id, now) for one in contenders]


def test_80_concurrent_launches_never_share_a_port(store, cast, alice, house, now):
    def launch(n: int) -> None:
        with store.write() as session:
            workspaces.launch(session, alice, LaunchRequest(f"run-{n}", cast.image_id), house=house, now=now)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(launch, range(80)))
    with store.read() as session:
        claims = session.scalars(select(PortClaim.port)).all()
    assert len(claims) == len(set(claims)) == 160


@pytest.mark.parametrize("wishes", [
    [{"gpus": "3"}, {"gpus": "2"}],
    [{"gpu_uuids": ("{0}", "{1}")}, {"gpu_uuids": ("{1}", "{0}")}],
])
def test_two_processes_race_for_cards(store, cast, alice, house, now, wishes):
    """Thousands of rounds of more of them are in tests/faults/test_gpu_races.py."""
    ground = races.Ground(str(store.url), alice, cast.host_id, cast.image_id, house, cast.epoch, now)
    cards = ground.with_cards(3)
    named = [{key: tuple(one.format(*cards) for one in value) if key == "gpu_uuids" else value
              for key, value in wish.items()} for wish in wishes]
    store.close()       # no open connection may cross a fork
    rounds = races.race(ground, named, 3)
    races.check(rounds)
    assert [len(one.won) for one in rounds] == [1, 1, 1]
