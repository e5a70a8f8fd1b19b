"""Pages about SSH: who is connected and how that is ended, names of keys, and workspaces that lack the present ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from web.conftest import KEY, NOON, Browser, Cast
from web.test_launch_gpus import said
from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind
from webapp.services import keys, operations
from webapp.store.session import Store
from webapp.store.tables import Host, Operation, SshKey

Launch = Callable[..., str]
ONE = {"id": "30-11050", "since": (NOON - timedelta(hours=2)).isoformat(), "address": "192.0.2.7"}


@pytest.fixture
def key(store: Store, cast: Cast) -> SshKey:
    with store.write() as db:
        return keys.add_keys(db, Actor(cast.alice, False), member_id=cast.alice, text=KEY, title="laptop", now=NOON)[0]


def asked(store: Store, kind: OperationKind) -> list[Operation]:
    with store.read() as db:
        return db.query(Operation).filter_by(kind=kind).all()


def answer(store: Store, workspace_id: str, *connections: dict[str, Any]) -> None:
    """As the agent does it."""
    with store.write() as db:
        operation = operations.request(db, Actor.house(), OperationKind.SSH_CONNECTIONS, workspace_id=workspace_id,
                                       arguments={}, now=NOON)
        assert operations.take(db, operation.id, NOON)
        operations.finish(db, operation.id, now=NOON, result={"connections": list(connections)})


def test_page_has_the_agent_look_and_says_what_it_saw(
    alice: Browser, launch: Launch, store: Store, key: SshKey,
) -> None:
    page = f"/workspaces/{launch()}/connections"
    assert "data-measure" in alice.get(page).text and asked(store, OperationKind.SSH_CONNECTIONS) == []
    assert alice.post(page).status_code == 303
    [operation] = asked(store, OperationKind.SSH_CONNECTIONS)
    assert "Being looked at." in alice.get(page).text and "data-measure" not in alice.get(page).text
    answer(store, str(operation.workspace_id), {**ONE, "fingerprint": key.fingerprint})
    text = said(alice.get(page).text)
    assert "192.0.2.7" in text and "laptop" in text and "2 hr. ago" in text and "Being looked at" not in text


def test_key_that_was_removed_and_what_is_not_known_are_told_apart(
    alice: Browser, launch: Launch, store: Store,
) -> None:
    workspace = launch()
    answer(store, workspace, {**ONE, "fingerprint": "SHA256:gone"}, {**ONE, "id": "40-1", "address": None,
                                                                    "fingerprint": None})
    text = said(alice.get(f"/workspaces/{workspace}/connections").text)
    assert "removed SHA256:gone" in text and text.count("not known") >= 2


def test_one_or_all_are_ended(alice: Browser, launch: Launch, store: Store) -> None:
    workspace = launch()
    answer(store, workspace, {**ONE, "fingerprint": None})
    page = f"/workspaces/{workspace}/connections"
    assert alice.post(f"{page}/cut", {"connection": ONE["id"]}).status_code == 303
    [cut] = asked(store, OperationKind.SSH_CUT)
    assert cut.arguments == {"connections": [ONE["id"]]} and "Being ended." in alice.get(page).text
    assert alice.post(f"{page}/cut").status_code == 303
    [cut] = asked(store, OperationKind.SSH_CUT)
    assert cut.arguments == {"connections": None}


def test_made_up_connection_is_refused_with_a_sentence(alice: Browser, launch: Launch, store: Store) -> None:
    refused = alice.post(f"/workspaces/{launch()}/connections/cut", {"connection": "$(reboot)-1"})
    assert refused.status_code == 422 and "That is no connection" in refused.text
    assert asked(store, OperationKind.SSH_CUT) == []


def test_others_find_no_such_page_and_administrators_do(bob: Browser, carol: Browser, launch: Launch) -> None:
    page = f"/workspaces/{launch()}/connections"
    for get in (page, f"/poll{page}"):
        assert bob.get(get).status_code == 404 and carol.get(get).status_code == 200
    for post in (page, f"{page}/cut"):
        assert bob.post(post).status_code == 404


def test_stopped_one_has_nobody_and_asks_nobody(alice: Browser, launch: Launch, store: Store) -> None:
    page = f"/workspaces/{launch(phase='stopped', desired='stopped')}/connections"
    assert "It does not run" in alice.get(page).text and "data-measure" not in alice.get(page).text
    alice.post(page)
    assert asked(store, OperationKind.SSH_CONNECTIONS) == []


def test_key_gets_another_name(alice: Browser, bob: Browser, store: Store, key: SshKey) -> None:
    assert bob.post(f"/keys/{key.id}/name", {"title": "mine"}).status_code == 404
    assert alice.post(f"/keys/{key.id}/name", {"title": "  desk  "}).status_code == 303
    assert "desk" in alice.get("/keys").text
    refused = alice.post(f"/keys/{key.id}/name", {"title": " "})
    assert refused.status_code == 422 and f'id="name-{key.id}-wrong"' in refused.text and "open" in refused.text
    with store.read() as db:
        assert db.get_one(SshKey, key.id).title == "desk"


def test_workspace_that_lacks_the_keys_is_named_until_it_has_them(
    alice: Browser, launch: Launch, store: Store, cast: Cast,
) -> None:
    workspace = launch("train")
    with store.write() as db:
        keys.add_keys(db, Actor(cast.alice, False), member_id=cast.alice, text=KEY, title="", now=NOON)
    assert "train does not have these keys yet." in said(alice.get("/keys").text)
    assert "They are being written." in said(alice.get("/poll/keys").text)
    with store.write() as db:
        db.get_one(Host, cast.host).unreachable_since = NOON
    assert "atlas does not answer since" in said(alice.get("/poll/keys").text)
    [operation] = asked(store, OperationKind.WORKSPACE_KEYS)
    with store.write() as db:
        operations.take(db, operation.id, NOON)
        operations.finish(db, operation.id, now=NOON)
    assert "train" not in alice.get("/poll/keys").text and workspace
