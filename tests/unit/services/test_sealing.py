"""Secrets in the database are sealed: a dump opens nothing, keys are replaced, and what is lost is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from datakey import KEY, SEAL
from sqlalchemy import text

from webapp.services import sealing
from webapp.services.orders import LaunchRequest
from webapp.services.workspaces import launch
from webapp.store import sealing as seals
from webapp.store.sealing import MARK, DataKeyMissing, Seal, key_id
from webapp.store.session import Store
from webapp.store.tables import WorkspaceSecret

NEW, OTHER = "e" * 64, "f" * 64


def using(store: Store, *keys: str) -> Seal:
    seal = Seal(lambda: keys)
    seals.use(store.engine.dialect, seal)
    return seal


def stored(store: Store) -> list[str]:
    """Every sealed text, as a dump shows it."""
    with store.read() as session:
        rows = session.execute(text("SELECT jupyter_token, host_private_key FROM workspace_secrets")).all()
    return [value for row in rows for value in row]


@pytest.fixture(autouse=True)
def put_back(store: Store) -> Iterator[None]:
    """Its engine is that of all tests."""
    yield
    seals.use(store.engine.dialect, SEAL)


@pytest.fixture
def secret(store: Store, cast: Any, house: Any, now: Any) -> tuple[str, str]:
    """(token, private key) of a workspace, as services gave them."""
    with store.write() as session:
        made = launch(session, cast.alice, LaunchRequest(name="run-1", image_id=cast.image_id), house=house, now=now)
        row = session.get_one(WorkspaceSecret, made.id)
        return row.jupyter_token, row.host_private_key


def test_nothing_readable_is_stored(store: Store, secret: tuple[str, str]) -> None:
    assert all(value.startswith(f"{MARK}{key_id(KEY)}:") for value in stored(store)) and len(stored(store)) == 2
    assert not any(part in value for part in secret for value in stored(store))
    if store.sqlite_path is not None:
        files = [store.sqlite_path, store.sqlite_path.with_name(store.sqlite_path.name + "-wal")]
        content = b"".join(path.read_bytes() for path in files if path.exists())
        assert MARK.encode() in content
        for canary in (secret[0], secret[1].splitlines()[2]):
            assert canary.encode() not in content


def test_same_text_is_never_stored_the_same(store: Store) -> None:
    seal = using(store, KEY)
    first, second = seal.close("a", "text"), seal.close("a", "text")
    assert first != second and seal.open("a", first) == seal.open("a", second) == "text"


@pytest.mark.parametrize("change", [
    lambda sealed: sealed[:-9] + ("A" if sealed[-9] != "A" else "B") + sealed[-8:], lambda sealed: sealed[:-8],
    lambda sealed: sealed.replace(key_id(KEY), key_id(OTHER)), lambda sealed: f"{MARK}{key_id(KEY)}:",
    lambda sealed: f"{MARK}:", lambda sealed: f"{MARK}{key_id(KEY)}:\N{SNOWMAN}",
])
def test_damaged_text_is_refused(change: Callable[[str], str]) -> None:
    seal = Seal(lambda: (KEY,))
    with pytest.raises(DataKeyMissing):
        seal.open("a", change(seal.close("a", "text")))


def test_text_opens_for_its_purpose_only() -> None:
    seal = Seal(lambda: (KEY,))
    with pytest.raises(DataKeyMissing):
        seal.open("b", seal.close("a", "text"))


def test_key_that_came_later_is_found() -> None:
    keys = [KEY]
    runs = Seal(lambda: tuple(keys))
    old = runs.close("a", "text")
    keys.insert(0, NEW)
    assert runs.open("a", Seal(lambda: tuple(keys)).close("a", "new")) == "new" and runs.open("a", old) == "text"


def test_process_that_only_seals_follows_each_rotation() -> None:
    """Else what it sealed would open with no key any more after the second."""
    keys = [KEY]
    runs = Seal(lambda: tuple(keys))
    runs.close("a", "text")
    for newest in (NEW, OTHER):
        keys[:] = [newest, keys[0]]
        assert runs.close("a", "text").startswith(f"{MARK}{key_id(newest)}:")
    assert Seal(lambda: tuple(keys)).open("a", runs.close("a", "text")) == "text"


def test_rotation_meanwhile_breaks_no_sealing() -> None:
    """Threads of one web process, and a file that is another one at each look."""
    turns = itertools.cycle([(KEY, NEW), (NEW, KEY), (OTHER, NEW)])
    runs, all_of_them = Seal(lambda: next(turns)), Seal(lambda: (KEY, NEW, OTHER))
    with ThreadPoolExecutor(8) as pool:
        sealed = list(pool.map(lambda _: runs.close("a", "text"), range(2000)))
    assert {all_of_them.open("a", one) for one in sealed} == {"text"}


def test_rotation_writes_all_anew_and_then_needs_the_old_key_no_more(store: Store, secret: tuple[str, str]) -> None:
    using(store, NEW, KEY)
    with store.write() as session:
        assert sealing.reseal(session, known=(key_id(NEW), key_id(KEY))) == 2
        assert sealing.reseal(session, known=(key_id(NEW), key_id(KEY))) == 0
    using(store, NEW)
    with store.read() as session:
        row = session.query(WorkspaceSecret).one()
        assert (row.jupyter_token, row.host_private_key) == secret


def test_plain_text_of_an_older_berth_is_read_and_then_sealed(store: Store, secret: tuple[str, str]) -> None:
    with store.write() as session:
        session.execute(text("UPDATE workspace_secrets SET jupyter_token = 'plain', host_private_key = 'key'"))
    with store.read() as session:
        assert session.query(WorkspaceSecret).one().jupyter_token == "plain"
    with store.write() as session:
        assert sealing.keys_in_use(session)[sealing.PLAIN] == 2
        assert sealing.reseal(session, known=(key_id(KEY),)) == 2
        assert session.query(WorkspaceSecret).one().host_private_key == "key"
    assert all(value.startswith(MARK) for value in stored(store))


def test_what_no_key_opens_is_left_counted_and_forgotten_when_asked(store: Store, secret: tuple[str, str]) -> None:
    before = stored(store)
    using(store, OTHER)
    with store.read() as session, pytest.raises(DataKeyMissing):
        session.query(WorkspaceSecret).one()
    with store.write() as session:
        assert sealing.reseal(session, known=(key_id(OTHER),)) == 0
        assert sealing.keys_in_use(session) == {key_id(KEY): 2}
    assert stored(store) == before
    with store.write() as session:
        assert sealing.forget(session, known=(key_id(OTHER), key_id(KEY))) == 0
        assert sealing.forget(session, known=(key_id(OTHER),)) == 1
    assert stored(store) == []
