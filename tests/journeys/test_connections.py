"""SSH connections of a real sshd: told of with key and address, ended one by one, and not to be opened again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from faults.sshkeys import KeyPair, new_key
from faults.waiting import until
from faults.workspace import Workspace, now

from journeys.team import TeamHouse
from journeys.test_workspace import _with_key
from webapp.domain.operation import OperationState
from webapp.domain.sshkeys import parse_public_keys
from webapp.domain.workspace import Phase
from webapp.services import connections, keys
from webapp.store.tables import Operation

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def one(team: TeamHouse) -> Workspace:
    workspace = team.launch(team.alice, team.slim)
    workspace.until(Phase.RUNNING)
    return workspace


@contextmanager
def connected(workspace: Workspace, *command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*workspace.ssh_argv(), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def shown(workspace: Workspace, wish: Any = connections.look, **named: Any) -> list[dict[str, Any]]:
    store, actor = workspace.house.store, workspace.owner.actor
    with store.write() as session:
        operation: str = wish(session, actor, workspace.id, now=now(), **named).id

    def result() -> list[dict[str, Any]] | None:
        with store.read() as session:
            row = session.get_one(Operation, operation)
            assert row.state != OperationState.FAILED, row.reason
            return (row.result or {}).get("connections") if row.state == OperationState.DONE else None

    until(lambda: result() is not None, what=workspace.how_it_is)
    return result() or []


def fingerprint(pair: KeyPair) -> str:
    return parse_public_keys(pair.public)[0].fingerprint


def test_open_ones_are_listed_and_ended(one: Workspace) -> None:
    assert shown(one) == []
    with connected(one, "echo in; sleep 300") as first, connected(one, "echo in; sleep 300") as second:
        for process in (first, second):
            assert process.stdout is not None and process.stdout.readline() == "in\n"
        both = shown(one)
        assert [row["fingerprint"] for row in both] == [fingerprint(one.owner.key)] * 2
        assert all(row["address"] for row in both), both
        left = shown(one, connections.cut, connections=[both[0]["id"]])
        until(lambda: first.poll() is not None or second.poll() is not None, what=one.how_it_is)
        assert [row["id"] for row in shown(one)] == [both[1]["id"]] and len(left) <= 2
        assert [first.poll(), second.poll()].count(None) == 1
        shown(one, connections.cut, connections=None)
        until(lambda: first.poll() == second.poll() == 255, what=one.how_it_is)
    assert shown(one) == [] and one.ssh("true").returncode == 0


def test_tunnel_without_a_program_is_listed_and_ended(one: Workspace) -> None:
    with connected(one, "-N") as tunnel:
        until(lambda: len(shown(one)) == 1, what=one.how_it_is)
        shown(one, connections.cut, connections=None)
        until(lambda: tunnel.poll() == 255, what=one.how_it_is)


def test_connection_of_a_removed_key_is_seen_and_cannot_be_opened_again(team: TeamHouse, one: Workspace) -> None:
    second = new_key(team.house.folder / "lost-laptop")
    alice, by_second = team.alice, Workspace(team.house, _with_key(team.alice, second), one.id)
    with team.house.store.write() as session:
        row = keys.add_keys(session, alice.actor, member_id=alice.id, text=second.public, title="", now=now())[0]
    until(lambda: by_second.ssh("true").returncode == 0, what="the new key")
    with connected(by_second, "echo in; sleep 300") as process:
        assert process.stdout is not None and process.stdout.readline() == "in\n"
        with team.house.store.write() as session:
            keys.remove_key(session, alice.actor, row.id, now=now())
        until(lambda: by_second.ssh("true").returncode == 255, what="the end of the removed key")
        assert process.poll() is None
        assert [row["fingerprint"] for row in shown(one)] == [fingerprint(second)]
        shown(one, connections.cut, connections=None)
        until(lambda: process.poll() == 255, what=one.how_it_is)
