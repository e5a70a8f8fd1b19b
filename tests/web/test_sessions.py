"""Sessions of browsers: each with an id of its own, listed, ended one by one, and over when nobody comes."""

from __future__ import annotations

import re

import pytest
from flask import Flask
from sqlalchemy import text

from web.conftest import PASSWORD, Browser, Cast, Clock, signed_in
from web.test_launch_gpus import said
from webapp.services import sessions
from webapp.store.session import Store
from webapp.store.tables import BrowserSession
from webapp.web.browsers import browser_of

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0 Safari/537.36"


def cookie(browser: Browser, app: Flask) -> str:
    found = browser.client.get_cookie(app.config["SESSION_COOKIE_NAME"])
    return found.value if found else ""


def rows(store: Store) -> list[BrowserSession]:
    with store.read() as db:
        return db.query(BrowserSession).order_by(BrowserSession.created_at, BrowserSession.id).all()


def test_own_ones_are_listed_and_ended_one_by_one(app: Flask, alice: Browser, bob: Browser) -> None:
    other = Browser(app)
    other.client.environ_base.update({"HTTP_USER_AGENT": FIREFOX, "REMOTE_ADDR": "192.0.2.7"})
    other.sign_in("alice")
    page = alice.get("/me").text
    assert "Firefox, Linux" in page and "192.0.2.7" in page and said(page).count("this one") == 1
    (ending,) = re.findall(r'action="(/me/sessions/[^"]+/end)"', page)
    assert bob.post(ending).status_code == 404 and other.get("/me").status_code == 200
    assert alice.post(ending).status_code == 303
    assert other.get("/me").status_code == 303 and alice.get("/me").status_code == 200
    assert alice.post(ending).status_code == 404


def test_all_others_are_ended_at_once(app: Flask, alice: Browser, bob: Browser) -> None:
    others = [signed_in(app, "alice") for _ in range(2)]
    assert alice.post("/me/sessions/end-others").status_code == 303
    assert [browser.get("/me").status_code for browser in others] == [303, 303]
    assert alice.get("/me").status_code == bob.get("/me").status_code == 200


def test_signing_out_ends_this_one_alone(app: Flask, alice: Browser) -> None:
    other = signed_in(app, "alice")
    alice.post("/sign-out")
    assert alice.get("/me").status_code == 303 and other.get("/me").status_code == 200


def test_each_sign_in_has_a_token_of_its_own_and_only_its_hash_is_kept(
    app: Flask, alice: Browser, store: Store,
) -> None:
    before = cookie(alice, app)
    alice.post("/sign-out")
    alice.sign_in("alice")
    assert cookie(alice, app) != before
    with alice.client.session_transaction() as session:
        token = session["_user_id"]
    kept = [row.token_hash for row in rows(store)]
    assert sessions.hash_of(token) in kept and token not in str(kept) and len(token) > 40


@pytest.mark.parametrize("forged", ["", "x", "a.1", "\N{SNOWMAN}", "x" * 5000])
def test_made_up_token_is_nobodys(app: Flask, anyone: Browser, forged: str) -> None:
    with anyone.client.session_transaction() as session:
        session["_user_id"], session["_fresh"] = forged, True
    assert anyone.get("/me").status_code == 303


def test_it_is_over_two_weeks_after_the_last_visit(alice: Browser, clock: Clock, store: Store) -> None:
    for _ in range(3):
        clock.forward(days=13)
        assert alice.get("/me").status_code == 200
    clock.forward(days=14, minutes=2)
    assert alice.get("/me").status_code == 303


def test_last_visit_is_written_once_a_minute(alice: Browser, clock: Clock, store: Store) -> None:
    (before,) = rows(store)
    clock.forward(seconds=59)
    alice.get("/me")
    assert rows(store)[0].seen_at == before.seen_at
    clock.forward(seconds=2)
    alice.get("/me")
    assert rows(store)[0].seen_at > before.seen_at


def test_rows_of_sessions_that_are_over_go_with_the_next_sign_in(app: Flask, store: Store, clock: Clock) -> None:
    for _ in range(3):
        browser = signed_in(app, "alice")
        browser.post("/sign-out")
    signed_in(app, "alice")
    assert len(rows(store)) == 1


def test_new_secret_key_ends_sessions_and_nothing_else(alice: Browser, app: Flask, store: Store, cast: Cast) -> None:
    app.secret_key = "n" * 64
    assert alice.get("/me").status_code == 303
    assert alice.sign_in("alice", PASSWORD).status_code == 303 and alice.get("/me").status_code == 200


def test_new_role_needs_a_new_session(alice: Browser, carol: Browser, cast: Cast, app: Flask) -> None:
    before = cookie(alice, app)
    carol.post(f"/house/members/{cast.alice}/role", {"role": "admin"})
    assert alice.get("/house").status_code == 303
    alice.sign_in("alice")
    assert alice.get("/house").status_code == 200 and cookie(alice, app) != before


def test_hostile_browser_is_text(app: Flask, store: Store) -> None:
    browser = Browser(app)
    browser.client.environ_base["HTTP_USER_AGENT"] = "<script>alert(1)</script>" + "x" * 5000
    browser.sign_in("alice")
    page = browser.get("/me").text
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    with store.read() as db:
        assert len(db.execute(text("SELECT browser FROM sessions")).scalar_one()) == sessions.MOST_BROWSER


@pytest.mark.parametrize(("agent", "name"), [
    (FIREFOX, "Firefox, Linux"), (CHROME, "Chrome, Windows"), (f"{CHROME} Edg/141.0", "Edge, Windows"),
    ("curl/8.1", "curl"), ("", "unknown browser"), ("\x00\u202e", "unknown browser"),
])
def test_browsers_are_named(app: Flask, agent: str, name: str) -> None:
    with app.test_request_context(headers={"Accept-Language": "en"}):
        assert browser_of(agent) == name
