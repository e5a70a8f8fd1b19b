"""What people see while the database is upgraded under the pages, or undoes or loses what they wrote (F6, F33)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, text
from sqlalchemy.exc import OperationalError

from web.conftest import KEY, Browser, Cast
from webapp.store.failures import CommitUnknown
from webapp.store.revisions import own
from webapp.store.session import Store
from webapp.store.tables import SshKey, Workspace
from webapp.web import again
from webapp.web.pages import keys, launch

DEADLOCK = type("DeadlockDetected", (Exception,), {"sqlstate": "40P01"})("deadlock detected")
LOST_RACE = OperationalError("UPDATE", {}, DEADLOCK)
BROKEN = OperationalError("UPDATE", {}, Exception("server closed the connection"), connection_invalidated=True)
FULL = OperationalError("UPDATE", {}, Exception("database or disk is full"))


@pytest.fixture
def revision(store: Store) -> Callable[[str | None], None]:
    def put(found: str | None) -> None:
        with store.engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": found})
    return put


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "PAUSES_SECONDS", (0.0, 0.0))


def failing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *errors: Exception | None) -> list[str]:
    """The service raises these in turn, after it has done its work; None = it works. Returns its calls."""
    real, left, calls = getattr(owner, name), list(errors), list[str]()

    def service(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        done = real(*args, **kwargs)
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return done

    monkeypatch.setattr(owner, name, service)
    return calls


def number_of(store: Store, table: Any) -> int:
    with store.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


class TestUpgrade:
    @pytest.mark.parametrize("found", ["9999", "0002"])
    def test_every_page_and_form_says_so_and_nothing_is_written(
        self, alice: Browser, app: Flask, store: Store, revision: Any, found: str,
    ) -> None:
        token = alice.token()
        revision(found)
        for path in ("/", "/launch", "/keys", "/workspaces/x", "/house"):
            answer = alice.get(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30"), path
            assert "Berth is being upgraded" in answer.text and "Workspaces do not notice" in answer.text
            assert found not in answer.text
        answer = alice.client.post("/keys", data={"csrf_token": token, "text": KEY})
        assert answer.status_code == 503
        revision(own().head)
        assert number_of(store, SshKey) == 0
        assert alice.get("/").status_code == 200, "and it goes on when its tables are back"

    def test_polls_get_a_problem_that_they_may_try_again(self, alice: Browser, revision: Any) -> None:
        revision("9999")
        answer = alice.get("/poll/workspaces")
        problem = json.loads(answer.text)
        assert (answer.status_code, problem["code"], problem["retry"]) == (503, "database_ahead", True)

    def test_load_balancers_are_told(self, anyone: Browser, revision: Any) -> None:
        revision("9999")
        assert anyone.get("/healthz").status_code == 503

    def test_what_needs_no_database_is_still_there(self, anyone: Browser, revision: Any) -> None:
        path = anyone.get("/sign-in").text.split('href="/static/vendor/tabler')[1].split('"')[0]
        revision("9999")
        assert anyone.get(f"/static/vendor/tabler{path}").status_code == 200


@pytest.mark.parametrize("path", ["/", "/keys", "/sign-in"])
def test_database_that_is_away_altogether_is_a_page(
    alice: Browser, store: Store, monkeypatch: pytest.MonkeyPatch, path: str,
) -> None:
    def away() -> None:
        raise OperationalError("SELECT", {}, Exception("connection refused"))
    monkeypatch.setattr(Store, "read", lambda _: away())
    answer = alice.get(path)
    assert answer.status_code == 503 and "The database is busy" in answer.text


class TestOnceMore:
    @pytest.mark.parametrize("errors", [(LOST_RACE,), (BROKEN,), (LOST_RACE, LOST_RACE)])
    def test_what_was_undone_is_asked_again(
        self, alice: Browser, store: Store, monkeypatch: pytest.MonkeyPatch, errors: tuple[Exception, ...],
    ) -> None:
        calls = failing(monkeypatch, keys.service, "add_keys", *errors)
        assert alice.post("/keys", {"text": KEY}).status_code == 303
        assert (len(calls), number_of(store, SshKey)) == (len(errors) + 1, 1)

    def test_but_not_for_ever(self, alice: Browser, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = failing(monkeypatch, keys.service, "add_keys", *[LOST_RACE] * 9)
        assert alice.post("/keys", {"text": KEY}).status_code == 503
        assert (len(calls), number_of(store, SshKey)) == (3, 0)

    def test_what_would_fail_again_is_not(
        self, alice: Browser, store: Store, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        calls = failing(monkeypatch, keys.service, "add_keys", FULL)
        assert alice.post("/keys", {"text": KEY}).status_code == 503
        assert (len(calls), number_of(store, SshKey)) == (1, 0)

    def test_page_that_is_only_read_as_well(self, alice: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = failing(monkeypatch, keys.people, "keys_of", BROKEN)
        assert alice.get("/keys").status_code == 200 and len(calls) == 2

    def test_what_was_written_is_not_written_twice(
        self, app: Flask, alice: Browser, store: Store, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The page after the deed fails: the deed is done."""
        calls = failing(monkeypatch, keys.service, "add_keys")

        def broken(*_: object, **__: object) -> None:
            raise BROKEN
        monkeypatch.setattr(keys, "redirect", broken)
        assert alice.post("/keys", {"text": KEY}).status_code == 503
        assert (len(calls), number_of(store, SshKey)) == (1, 1)

    def test_nobody_knows_is_said_and_not_tried_again(
        self, alice: Browser, cast: Cast, store: Store, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        calls = failing(monkeypatch, launch.workspaces, "launch", CommitUnknown())
        answer = alice.post("/launch", {"name": "run-1", "image_id": cast.image, "gpu_way": "none"})
        assert answer.status_code == 503 and "Look before you ask for it again" in answer.text
        assert (len(calls), number_of(store, Workspace)) == (1, 0)
