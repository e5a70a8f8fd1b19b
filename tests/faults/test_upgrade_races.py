"""F33: an upgrade while four processes write, two of each version, and two that upgrade: all of it or nothing."""

from __future__ import annotations

import multiprocessing
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import older
import pytest
from databases import Databases
from datakey import SEAL
from sqlalchemy import select

from webapp.domain.actor import Actor
from webapp.errors import AppError
from webapp.services import teams
from webapp.store.migrate import upgrade
from webapp.store.reads import people as reads
from webapp.store.revisions import OtherVersion, Revisions, own
from webapp.store.schema import current
from webapp.store.session import Store
from webapp.store.tables import Member, Team

BEFORE = Revisions(frozenset({"0001", "0002"}), "0002")
LONGEST_WAIT = 60.0     # seconds; only a dead-lock takes as long
AFTERWARDS = 5          # writes of the new version when it is let
Said = tuple[str, str, list[str], list[str]]    # who, what ended it, names that were written, errors


@pytest.fixture
def url(databases: Databases, tmp_path: Path) -> Iterator[str]:
    store = Store(databases.make("upgraded"), seal=SEAL)
    older.make(store, "0002", tmp_path, older.new_keys("0002"))
    store.close()       # no open connection may cross a fork
    yield databases.url("upgraded")
    databases.drop("upgraded")


def at_once(url: str, parts: list[tuple[Any, ...]]) -> list[Said]:
    context = multiprocessing.get_context("fork")
    together, results = context.Barrier(len(parts)), context.Queue()
    running = [context.Process(target=work, args=(url, together, results, *more), daemon=True)
               for work, *more in parts]
    for process in running:
        process.start()
    said = [results.get(timeout=2 * LONGEST_WAIT) for _ in running]
    for process in running:
        process.join(LONGEST_WAIT)
    return said


def write(url: str, together: Any, results: Any, name: str, revisions: Revisions) -> None:
    """Teams, whose table is the same in both. The old one until it is refused, the new one from when it is let."""
    store, written, errors = Store(url, revisions=revisions), list[str](), list[str]()
    is_old = revisions is BEFORE
    together.wait(LONGEST_WAIT)
    ended = ""
    while not ended:
        try:
            with store.write() as session:
                team = teams.create_team(session, Actor.house(), name=f"t{secrets.token_hex(6)}", now=older.NOW)
                alice = session.scalars(select(Member.id).where(Member.username == "alice")).one()
                teams.add_member(session, Actor.house(), team_id=team.id, member_id=alice, now=older.NOW)
            written.append(team.name)
            with store.read() as session:       # a page
                assert team.name in [one.name for one in reads.teams(session)]
            if not is_old and len(written) >= AFTERWARDS:
                ended = "done"
        except OtherVersion as error:
            if is_old:
                ended = error.code
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
            ended = "broken"
    store.close()
    results.put((name, ended, written, errors))


def migrate(url: str, together: Any, results: Any, name: str) -> None:
    store = Store(url, seal=SEAL)
    together.wait(LONGEST_WAIT)
    try:
        results.put((name, "upgraded" if upgrade(store) else "current", [], []))
    except AppError as error:
        results.put((name, error.code, [], [str(error)]))
    store.close()


def test_nobody_loses_a_write_and_nobody_sees_half_of_it(url: str) -> None:
    said = at_once(url, [
        (write, "old", BEFORE), (write, "old", BEFORE), (write, "new", own()), (write, "new", own()),
        (migrate, "migrate"), (migrate, "migrate"),
    ])
    assert [error for *_, errors in said for error in errors] == []
    assert Counter((name, ended) for name, ended, *_ in said) == {
        ("old", "database_ahead"): 2, ("new", "done"): 2, ("migrate", "upgraded"): 1, ("migrate", "current"): 1}
    store = Store(url, seal=SEAL)
    with store.read() as session:
        there = set(session.scalars(select(Team.name)))
    store.close()
    assert {name for _, _, written, _ in said for name in written} == there - {"vision"}
    assert current(store) == own().head


def test_two_that_upgrade_at_once_do_it_once(url: str) -> None:
    said = at_once(url, [(migrate, "migrate")] * 4)
    assert Counter(ended for _, ended, *_ in said) == {"upgraded": 1, "current": 3}
