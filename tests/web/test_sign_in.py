"""The way in and out: passwords, links, cookies, and what ends a session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask

from web.conftest import PASSWORD, Browser, Cast, Clock, signed_in
from webapp.domain.actor import Actor
from webapp.services import people
from webapp.store.session import Store
from webapp.store.tables import Role
from webapp.web.auth import local_path


def test_signing_in_opens_the_page_that_was_asked_for(anyone: Browser) -> None:
    asked = anyone.get("/launch")
    assert (asked.status_code, asked.headers["Location"]) == (303, "/sign-in?next=/launch")
    answer = anyone.sign_in("alice", next="/launch")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/launch")
    assert anyone.get("/launch").status_code == 200


def test_wrong_password_and_unknown_account_read_the_same(anyone: Browser) -> None:
    wrong, unknown = anyone.sign_in("alice", "nope nope nope"), anyone.sign_in("nobody-here", "nope nope nope")
    assert wrong.status_code == unknown.status_code == 422
    assert _without_names(wrong.text) == _without_names(unknown.text)
    assert 'value="alice"' in wrong.text        # what was typed is kept,
    assert "nope nope" not in wrong.text        # but never a password


@pytest.mark.parametrize("target", [
    "//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "\t//evil.example",
    "/\t/evil.example", "evil.example", "\\\\evil.example", "///evil.example", "",
])
def test_next_never_leaves_the_dashboard(anyone: Browser, target: str) -> None:
    answer = anyone.sign_in("alice", next=target)
    assert answer.headers["Location"] == "/"
    assert anyone.get("/sign-in", query_string={"next": target}).headers["Location"] == "/"


def test_next_keeps_a_path_of_ours() -> None:
    assert local_path("/workspaces/abc?tab=logs") == "/workspaces/abc?tab=logs"


def test_cookie_is_closed_to_scripts_and_other_sites(anyone: Browser) -> None:
    cookies = anyone.sign_in("alice").headers.getlist("Set-Cookie")
    session = next(cookie for cookie in cookies if cookie.startswith("berth-test="))
    assert "HttpOnly" in session and "SameSite=Lax" in session and "Path=/" in session and "Domain" not in session


def test_cookie_is_bound_to_https_where_the_dashboard_is(make_app: Callable[..., Flask]) -> None:
    browser = Browser(make_app(url="https://localhost"))
    browser.client.environ_base["wsgi.url_scheme"] = "https"
    cookies = browser.sign_in("alice", next="/").headers.getlist("Set-Cookie")
    assert any(cookie.startswith("__Host-berth-test=") and "Secure" in cookie for cookie in cookies)
    assert all("Secure" in cookie for cookie in cookies)


def test_two_instances_have_cookies_of_their_own(make_app: Callable[..., Flask]) -> None:
    names = {make_app(instance=name).config["SESSION_COOKIE_NAME"] for name in ("one1", "two2")}
    assert len(names) == 2


def test_signing_in_changes_the_csrf_token(anyone: Browser) -> None:
    before = anyone.token()
    anyone.sign_in("alice")
    stale = anyone.client.post("/sign-out", data={"csrf_token": before})
    assert stale.status_code == 400
    assert "no longer valid" in stale.text


def test_signing_out_closes_the_pages(alice: Browser) -> None:
    assert alice.post("/sign-out").headers["Location"] == "/sign-in"
    assert alice.get("/").status_code == 303


@pytest.mark.parametrize("end", ["deactivate", "role", "password"])
def test_session_ends_when(end: str, alice: Browser, store: Store, cast: Cast, clock: Clock) -> None:
    admin = Actor(cast.carol, is_admin=True)
    with store.write() as db:
        if end == "deactivate":
            people.deactivate_member(db, admin, cast.alice, now=clock())
        elif end == "role":
            people.set_role(db, admin, cast.alice, role=Role.ADMIN, now=clock())
        else:
            people.set_password(db, admin, cast.alice, old=None, new="quite another one", now=clock())
    assert alice.get("/").status_code == 303
    assert alice.get("/poll/workspaces").status_code == 401


def test_changing_the_password_ends_other_browsers_only(app: Flask, alice: Browser) -> None:
    elsewhere = signed_in(app, "alice")
    answer = alice.post("/me/password", {"old": PASSWORD, "new": "quite another one"})
    assert answer.status_code == 303
    assert alice.get("/me").status_code == 200
    assert elsewhere.get("/me").status_code == 303


def test_deactivated_account_cannot_sign_in(anyone: Browser, store: Store, cast: Cast, clock: Clock) -> None:
    with store.write() as db:
        people.deactivate_member(db, Actor(cast.carol, True), cast.alice, now=clock())
    assert anyone.sign_in("alice").status_code == 422


def test_many_wrong_passwords_close_the_account_to_strangers_not_to_its_owner(app: Flask, alice: Browser) -> None:
    stranger = Browser(app)
    answers = [stranger.sign_in("alice", f"guess number {n}").status_code for n in range(11)]
    assert answers == [422] * 10 + [429]
    late = stranger.sign_in("alice")
    assert late.status_code == 429 and int(late.headers["Retry-After"]) > 0
    alice.post("/sign-out")
    assert alice.sign_in("alice").status_code == 303        # this browser has been in before


def test_an_address_is_counted_whatever_it_says_of_itself(app: Flask) -> None:
    stranger = Browser(app)
    codes = {stranger.post("/sign-in", {"username": f"name-{n}", "password": "some wrong words"},
                           headers={"X-Forwarded-For": f"10.0.0.{n}"}).status_code for n in range(61)}
    assert codes == {422, 429}


def test_invite_makes_one_account(anyone: Browser, app: Flask, store: Store, cast: Cast, clock: Clock) -> None:
    with store.write() as db:
        token = people.make_invite(db, Actor(cast.carol, True), role=Role.MEMBER, now=clock())
    form = {"username": "dora", "display_name": "Dora", "password": PASSWORD}
    assert "works once" in anyone.get(f"/welcome/{token}").text
    wrong = anyone.post(f"/welcome/{token}", {**form, "username": "root"})
    assert wrong.status_code == 422 and 'value="Dora"' in wrong.text and "Choose another name" in wrong.text
    assert anyone.post(f"/welcome/{token}", form).headers["Location"] == "/"
    assert "Welcome, Dora" in anyone.get("/").text
    again = Browser(app).get(f"/welcome/{token}")
    assert again.status_code == 404 and "used already" in again.text
    assert Browser(app).post(f"/welcome/{token}", {**form, "username": "dora2"}).status_code == 404


def test_invite_ends(anyone: Browser, store: Store, cast: Cast, clock: Clock) -> None:
    with store.write() as db:
        token = people.make_invite(db, Actor(cast.carol, True), role=Role.MEMBER, now=clock())
    clock.forward(days=8)
    assert anyone.get(f"/welcome/{token}").status_code == 404


def test_language_follows_browser_cookie_and_account(anyone: Browser, app: Flask) -> None:
    assert "登录" in anyone.get("/sign-in", headers={"Accept-Language": "zh-CN,en;q=0.5"}).text
    anyone.post("/language", {"language": "zh_Hans_CN", "next": "/sign-in"})
    assert 'lang="zh-Hans-CN"' in anyone.get("/sign-in").text
    anyone.sign_in("alice")
    anyone.post("/language", {"language": "zh_Hans_CN", "next": "//evil.example"})
    assert "还没有工作区" in signed_in(app, "alice").get("/").text      # another browser, the same account
    assert anyone.post("/language", {"language": "../../etc"}).status_code == 422


def _without_names(text: str) -> str:
    for name in ("alice", "nobody-here"):
        text = text.replace(name, "NAME")
    return "\n".join(line for line in text.splitlines() if "csrf_token" not in line and "Request" not in line)


def test_copied_cookie_is_worth_nothing_after_sign_out(alice: Browser, app: Flask) -> None:
    copy = Browser(app)
    name = app.config["SESSION_COOKIE_NAME"]
    cookie = alice.client.get_cookie(name)
    assert cookie is not None
    copy.client.set_cookie(name, cookie.value)
    assert copy.get("/me").status_code == 200

    alice.post("/sign-out")

    assert copy.get("/me").headers["Location"].startswith("/sign-in")
