"""What every answer carries, and who is not let through."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy.exc import DBAPIError, InternalError, OperationalError

from web.conftest import Browser, Clock
from webapp.web.pages import home


def test_policy_lets_nothing_inline_run(alice: Browser) -> None:
    headers = alice.get("/").headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and "form-action 'self';" in policy
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/launch", "/keys", "/me", "/sign-in", "/nope"])
def test_pages_hold_no_inline_style_or_script(alice: Browser, path: str) -> None:
    text = alice.get(path).text
    assert "style=" not in text and " onclick" not in text
    assert all("src=" in tag for tag in text.split("<script")[1:])


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "x@localhost", "[::1", "10.0.0.1"])
def test_other_host_names_are_refused(anyone: Browser, host: str) -> None:
    answer = anyone.get("/sign-in", headers={"Host": host})
    assert answer.status_code in (400, 421)
    assert "Set-Cookie" not in answer.headers


def test_who_comes_by_the_listening_address_is_sent_to_the_name_before_a_cookie(anyone: Browser) -> None:
    answer = anyone.get("/sign-in?next=/launch", headers={"Host": "127.0.0.1:8000"})
    assert answer.status_code == 307
    assert answer.headers["Location"] == "http://localhost/sign-in?next=/launch"
    assert "Set-Cookie" not in answer.headers
    assert anyone.client.post("/sign-in", headers={"Host": "127.0.0.1:8000"}).status_code == 421


def test_probe_answers_by_any_name_without_a_session(anyone: Browser) -> None:
    answer = anyone.get("/healthz", headers={"Host": "10.1.2.3:8000"})
    assert answer.status_code == 200 and answer.json is not None and answer.json["status"] == "ok"


def test_form_without_token_is_refused_with_a_sentence(alice: Browser) -> None:
    answer = alice.client.post("/keys", data={"text": "x"})
    assert answer.status_code == 400
    assert "its form is no longer valid" in answer.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_form_of_another_site_is_refused_whatever_it_carries(alice: Browser, site: str) -> None:
    assert alice.post("/keys", {"text": "x"}, headers={"Sec-Fetch-Site": site}).status_code == 400


def test_error_page_and_header_name_the_same_request(alice: Browser) -> None:
    answer = alice.get("/nope")
    assert answer.status_code == 404
    assert f"Request {answer.headers['X-Request-ID']}" in answer.text


def test_scripts_get_problems_as_json(alice: Browser) -> None:
    answer = alice.get("/workspaces/none", headers={"Accept": "application/json"})
    assert answer.mimetype == "application/problem+json"
    problem = json.loads(answer.text)
    assert (problem["code"], problem["request_id"]) == ("not_found", answer.headers["X-Request-ID"])


@pytest.mark.parametrize("error", [
    OperationalError("SELECT", {}, Exception("database is locked")),
    OperationalError("SELECT", {}, Exception("server closed the connection unexpectedly"), connection_invalidated=True),
    InternalError("SELECT", {}, Exception("terminating connection due to idle-in-transaction timeout"),
                  connection_invalidated=True)])
def test_busy_database_is_503_with_a_time(
    alice: Browser, monkeypatch: pytest.MonkeyPatch, error: DBAPIError,
) -> None:
    def locked(*_: object) -> None:
        raise error
    monkeypatch.setattr(home.workspaces, "list_cards", locked)
    answer = alice.get("/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "database is busy" in answer.text and "locked" not in answer.text


def test_unexpected_error_shows_an_id_and_no_trace(alice: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")
    monkeypatch.setattr(home.workspaces, "list_cards", broken)
    answer = alice.get("/")
    assert answer.status_code == 500
    assert "secret detail" not in answer.text and answer.headers["X-Request-ID"] in answer.text


def test_silent_agent_is_announced(alice: Browser, clock: Clock) -> None:
    assert "agent does not answer" not in alice.get("/").text
    clock.forward(seconds=16)
    for path in ("/", "/poll/workspaces", "/keys"):
        assert "agent does not answer" in alice.get(path).text


def test_too_much_is_refused(alice: Browser) -> None:
    assert alice.post("/keys", {"text": "x" * 2_000_000}).status_code == 413


def test_assets_are_kept_for_a_year_by_their_version(anyone: Browser) -> None:
    text = anyone.get("/sign-in").text
    path = text.split('href="/static/vendor/tabler')[1].split('"')[0]
    answer = anyone.get(f"/static/vendor/tabler{path}", headers={"Accept-Encoding": "gzip"})
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Encoding"] == "gzip" and len(answer.data) < 120_000
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("name", ["../pyproject.toml", "..%2fpyproject.toml", "%2e%2e/pyproject.toml", "/etc/passwd",
                                  "berth.css%00", "..\\x", "vendor"])
def test_assets_are_what_was_listed_and_nothing_else(anyone: Browser, name: str) -> None:
    assert anyone.get(f"/static/{name}").status_code in (301, 307, 308, 404)


def test_members_do_not_see_the_house(alice: Browser, app: Flask) -> None:
    rules = [rule for rule in app.url_map.iter_rules() if rule.rule.startswith("/house")]
    assert len(rules) > 10
    for rule in rules:
        path = rule.rule.replace("<", "").replace(">", "")
        method = alice.get if "GET" in (rule.methods or ()) else alice.post
        assert method(path).status_code == 403, rule


def test_https_is_asked_for_only_where_the_dashboard_has_it(make_app: Callable[..., Flask]) -> None:
    assert "Strict-Transport-Security" not in Browser(make_app()).get("/sign-in").headers
    assert "Strict-Transport-Security" in Browser(make_app(url="https://localhost")).get("/sign-in").headers
