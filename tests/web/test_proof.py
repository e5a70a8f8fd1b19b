"""Dangerous things want the password again after a while, and lose nothing that was typed."""

from __future__ import annotations

import re
from html import unescape

import pytest
from flask import Flask

from web.conftest import PASSWORD, Browser, Cast, Clock, signed_in
from webapp.store.session import Store
from webapp.store.tables import Member


def role_of(store: Store, member_id: str) -> str:
    with store.read() as db:
        return db.get_one(Member, member_id).role


def hidden(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in found if name not in ("csrf_token", "username", "next")}


@pytest.fixture
def late(carol: Browser, clock: Clock) -> Browser:
    """An administrator who signed in a while ago."""
    clock.forward(minutes=16)
    return carol


def test_soon_after_the_sign_in_nothing_is_asked(carol: Browser, cast: Cast, clock: Clock, store: Store) -> None:
    clock.forward(minutes=14)
    assert carol.post(f"/house/members/{cast.bob}/role", {"role": "admin"}).status_code == 303
    assert role_of(store, cast.bob) == "admin"


@pytest.mark.parametrize("do", ["role", "password", "deactivate", "activate"])
def test_later_nothing_is_done_before_the_password(do: str, late: Browser, cast: Cast, store: Store) -> None:
    asked = late.post(f"/house/members/{cast.bob}/{do}", {"role": "admin", "new": "a new horse battery"})
    assert asked.status_code == 403 and "Is it you?" in asked.text and role_of(store, cast.bob) == "member"
    assert Browser(late.client.application).sign_in("bob").status_code == 303


def test_form_goes_on_whole_once_the_password_is_right(late: Browser, cast: Cast, store: Store) -> None:
    path = f"/house/members/{cast.bob}/role"
    page = late.post(path, {"role": "admin", "odd": "ä\"<b>"}).text
    sent = hidden(page)
    assert sent == {"proof_path": path, "role": "admin", "odd": "ä\"<b>"}
    wrong = late.post("/prove", {**sent, "proof_password": "not the password"})
    assert wrong.status_code == 422 and "That is not your password." in wrong.text and hidden(wrong.text) == sent
    assert "not the password" not in wrong.text and role_of(store, cast.bob) == "member"
    on = late.post("/prove", {**sent, "proof_password": PASSWORD})
    assert (on.status_code, on.headers["Location"]) == (307, path)
    assert late.post(path, sent).status_code == 303 and role_of(store, cast.bob) == "admin"


def test_it_is_this_browser_alone_that_was_proven(late: Browser, app: Flask, cast: Cast, clock: Clock) -> None:
    other = signed_in(app, "carol")
    clock.forward(minutes=16)
    late.post("/prove", {"proof_path": "/", "proof_password": PASSWORD})
    assert late.post(f"/house/members/{cast.bob}/activate").status_code == 303
    assert other.post(f"/house/members/{cast.bob}/activate").status_code == 403


@pytest.mark.parametrize("path", [
    "//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", ""])
def test_it_never_leads_away(late: Browser, path: str) -> None:
    on = late.post("/prove", {"proof_path": path, "proof_password": PASSWORD})
    assert (on.status_code, on.headers["Location"]) == (307, "/")


def test_guessing_ends(late: Browser) -> None:
    codes = [late.post("/prove", {"proof_path": "/", "proof_password": f"guess {n}"}).status_code for n in range(11)]
    assert codes == [422] * 10 + [429]


def test_members_are_refused_before_they_are_asked(alice: Browser, cast: Cast, clock: Clock) -> None:
    clock.forward(minutes=16)
    refused = alice.post(f"/house/members/{cast.bob}/role", {"role": "admin"})
    assert refused.status_code == 403 and "Is it you?" not in refused.text
