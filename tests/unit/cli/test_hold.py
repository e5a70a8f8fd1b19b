"""berth hold: what differs is shown, decided on and released; each refusal is a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from unit.boxes import UP, box, recorded
from unit.cli.conftest import Berth
from unit.test_hold import shown

from webapp.domain.actor import Actor
from webapp.domain.container import ContainerDetail
from webapp.domain.hold import Present, compare
from webapp.domain.plan import Wanted
from webapp.domain.workspace import Desired, Phase
from webapp.errors import Forbidden
from webapp.key_files import seal_of
from webapp.services import hold, hosts, observations
from webapp.settings import load_settings
from webapp.store.session import Store

STOPPED = recorded(Desired.STOPPED, Phase.STOPPED)
Saw = Callable[..., None]


@pytest.fixture
def saw(house: Berth) -> Saw:
    """saw(row, container, …) = what an agent finds on hold, a moment ago."""
    store = Store(load_settings().database_url, seal=seal_of(load_settings()))
    now = datetime.now(UTC)
    with store.write() as session:
        host = hosts.ensure_local(session, name="gpu1", engine_url="unix:///run/docker.sock", now=now)
        epoch = observations.next_epoch(session, now=now)
    store.close()

    def record(row: Wanted | None = None, *containers: ContainerDetail, ago: float = 0) -> None:
        findings = compare([row] if row else [], containers, instance="test1")
        with store.write() as session:
            assert hold.record(session, host.id, findings, Present(frozenset(), frozenset()), epoch=epoch,
                               now=datetime.now(UTC) - timedelta(seconds=ago))
        store.close()
    return record


def document(berth: Berth) -> dict[str, Any]:
    done = berth("hold", "--json")
    assert done.code == 0
    return dict(json.loads(done.out))


def put_on(berth: Berth) -> None:
    assert berth("hold", "on", "--why", "we look first").code == 0


def test_without_a_hold_it_says_so(house: Berth) -> None:
    assert house("hold").out == "Berth is not on hold.\n"
    assert document(house)["on_hold"] is False
    for verb in (["release"], ["decide", "run-1", "keep"]):
        done = house("hold", *verb)
        assert done.code in (3, 4) and done.err


def test_put_on_by_hand_it_says_since_when_and_why(house: Berth) -> None:
    put_on(house)
    out = house("hold").out
    assert "On hold since" in out and "we look first" in out and "No agent has looked yet" in out
    again = house("hold", "on", "--why", "again")
    assert again.code == 4 and "already" in again.err
    assert house("hold", "on", "--why", " ").code in (2, 4)


def test_difference_is_shown_with_its_choices(house: Berth, saw: Saw) -> None:
    put_on(house)
    saw(STOPPED, shown(box(UP)))
    [found] = document(house)["findings"]
    assert (found["kind"], found["workspace"], found["host"]) == ("runs_but_stopped", "run-1", "gpu1")
    assert set(found["choices"]) == {"adopt", "keep"} and found["decision"] is None
    assert "will be stopped" in found["choices"]["keep"]
    assert "Runs, and should not by the database" in house("hold").out


def test_what_cannot_be_taken_over_says_why(house: Berth, saw: Saw) -> None:
    put_on(house)
    saw(None, shown(box(UP)))
    [found] = document(house)["findings"]
    assert set(found["choices"]) == {"forget"} and "belongs to nobody" in found["why_not_adopt"]
    done = house("hold", "decide", "run-1", "adopt")
    assert done.code == 4 and "belongs to nobody" in done.err


@pytest.mark.parametrize("name", ["run-1", "abc"])
def test_decision_says_what_it_comes_to(house: Berth, saw: Saw, name: str) -> None:
    put_on(house)
    saw(None, shown(box(UP)))
    done = house("hold", "decide", name, "forget")
    assert done.code == 0 and "never touches it" in done.out
    assert document(house)["findings"][0]["decision"] == "forget"


def test_unknown_names_and_decisions_are_refused(house: Berth, saw: Saw) -> None:
    put_on(house)
    saw(STOPPED, shown(box(UP)))
    assert house("hold", "decide", "run-9", "keep").code == 3
    assert house("hold", "decide", "run-1", "burn").code == 2
    assert house("hold", "decide", "run-1", "forget").code == 4


def test_change_after_a_decision_is_told(house: Berth, saw: Saw) -> None:
    put_on(house)
    saw(STOPPED, shown(box(UP)))
    house("hold", "decide", "run-1", "keep")
    saw(STOPPED, shown(box(UP, 2)))
    assert "changed since “keep” was decided" in house("hold").out


def test_end_is_refused_as_long_as_something_is_open(house: Berth, saw: Saw) -> None:
    put_on(house)
    blind = house("hold", "release")
    assert blind.code == 4 and "gpu1" in blind.err
    saw(None, shown(box(UP)), ago=60)
    assert house("hold", "release", "--keep-rest").code == 4
    saw(None, shown(box(UP)))
    undecided = house("hold", "release")
    assert undecided.code == 4 and "run-1" in undecided.err
    done = house("hold", "release", "--keep-rest")
    assert done.code == 0 and "decided on: 1" in done.out
    assert document(house)["on_hold"] is False


def test_two_of_one_name_are_told_apart(house: Berth, saw: Saw) -> None:
    put_on(house)
    first = box(UP)
    second = replace(first, id="id-2", name=first.name.replace("abc", "xyz"),
                     labels={**first.labels, "berth.workspace": "xyz"})
    saw(None, shown(first), shown(second))
    done = house("hold", "decide", "run-1", "forget")
    assert done.code == 2 and "abc" in done.err and "xyz" in done.err
    assert house("hold", "decide", "xyz", "forget").code == 0


def test_only_administrators_decide(house: Berth) -> None:
    store = Store(load_settings().database_url, seal=seal_of(load_settings()))
    with pytest.raises(Forbidden), store.write() as session:
        hold.put_on(session, Actor("m1", is_admin=False), why="mine", now=datetime.now(UTC))
    store.close()
