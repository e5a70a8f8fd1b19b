"""Every route with every method, as anybody: what a GET may not do, who sees what, and that nothing ever falls over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import text
from werkzeug.routing import Rule

from web.conftest import KEY, Browser, Cast
from webapp.store.session import Store
from webapp.store.tables import Base
from webapp.web.auth import PUBLIC

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE")
Launch = Callable[..., str]


def rules(app: Flask) -> Iterator[Rule]:
    return (rule for rule in app.url_map.iter_rules() if rule.endpoint != "static")


def path_of(rule: Rule, ids: dict[str, str]) -> str:
    path = rule.rule
    for name in rule.arguments:
        path = path.replace(f"<{name}>", ids.get(name, "none"))
    return path


def content(store: Store) -> list[object]:
    with store.read() as db:
        return [db.execute(text(f"SELECT * FROM {table.name} ORDER BY 1, 2")).all()
                for table in Base.metadata.sorted_tables]


@pytest.fixture
def ids(cast: Cast, launch: Launch) -> dict[str, str]:
    return {"workspace_id": launch(), "member_id": cast.bob, "team_id": cast.team, "image_id": cast.image,
            "volume_id": cast.volume}


@pytest.mark.parametrize("who", ["anyone", "alice", "bob", "carol"])
def test_no_route_falls_over(who: str, app: Flask, ids: dict[str, str], request: pytest.FixtureRequest) -> None:
    browser: Browser = request.getfixturevalue(who)
    known: dict[str, set[str]] = defaultdict(set)
    for rule in rules(app):
        known[path_of(rule, ids)] |= rule.methods or set()
    for path, methods in known.items():
        for method in METHODS:
            answer = browser.client.open(path, method=method)
            assert answer.status_code < 500, (method, path)
            if method == "OPTIONS":
                assert answer.status_code in (200, 303, 401), path
            elif method not in methods and who == "carol":
                assert answer.status_code in (400, 404, 405), (method, path)   # 404: read as an id


def test_get_changes_nothing(app: Flask, alice: Browser, carol: Browser, ids: dict[str, str], store: Store) -> None:
    before = content(store)
    for rule in rules(app):
        for browser in (alice, carol):
            for method in ("GET", "HEAD", "OPTIONS"):
                browser.client.open(path_of(rule, ids), method=method)
    assert content(store) == before


def test_post_without_token_changes_nothing(app: Flask, alice: Browser, carol: Browser, ids: dict[str, str],
                                            store: Store) -> None:
    before = content(store)
    for rule in rules(app):
        if "POST" in (rule.methods or ()):
            for browser in (alice, carol):
                assert browser.client.post(path_of(rule, ids)).status_code in (400, 405), rule
    assert content(store) == before


def test_strangers_are_sent_to_the_sign_in(app: Flask, anyone: Browser, ids: dict[str, str]) -> None:
    for rule in rules(app):
        if rule.endpoint in PUBLIC:
            continue
        method = "GET" if "GET" in (rule.methods or ()) else "POST"
        answer = anyone.client.open(path_of(rule, ids), method=method)
        if rule.rule.startswith("/poll/"):
            assert answer.status_code == 401 and answer.mimetype == "application/problem+json"
        else:
            assert answer.status_code == 303 and answer.headers["Location"].startswith("/sign-in"), rule


def test_another_members_workspace_does_not_exist(app: Flask, bob: Browser, ids: dict[str, str], store: Store) -> None:
    before = content(store)
    asked = 0
    for rule in rules(app):
        if "workspace_id" not in rule.arguments:
            continue
        path = path_of(rule, ids)
        answer = bob.get(path) if "GET" in (rule.methods or ()) else bob.post(path, {"confirm": "run-1"})
        assert answer.status_code == 404, rule
        asked += 1
    assert asked >= 8
    assert content(store) == before


def test_another_members_key_does_not_exist(alice: Browser, bob: Browser, store: Store) -> None:
    alice.post("/keys", {"text": KEY})
    with store.read() as db:
        key_id = db.execute(text("SELECT id FROM ssh_keys")).scalar_one()
    assert bob.post(f"/keys/{key_id}/remove").status_code == 404
    assert "alice@thinkpad" in alice.get("/keys").text


HOSTILE = ["\x00", "a\x00b", "x" * 5000, "'; DROP TABLE members; --", "../../etc/passwd", "$(id)", "`id`", "\n\r\n",
           "\u202e\u200b", "-1", "9" * 400, "%00", "{{7*7}}", "<script>alert(1)</script>", "\ud800", "ｆｕｌｌ", "[]"]
FIELDS = ("name", "image_id", "cpus", "memory", "shm", "ssh_key", "text", "title", "old", "new", "confirm", "username",
          "password", "next", "display_name", "reference", "base", "cuda_version", "team_id", "host_folder", "target",
          "member_id", "role", "language", "gpu_way", "gpu_count", "gpu_model", "gpu", "gpu_take", "do", "source",
          "dockerfile")


@pytest.mark.parametrize("value", HOSTILE, ids=[repr(value[:20]) for value in HOSTILE])
def test_hostile_text_in_every_field_is_never_a_500(value: str, app: Flask, carol: Browser) -> None:
    data = {**dict.fromkeys(FIELDS, value), "mount-x": value, "csrf_token": carol.token()}
    body = urlencode({name: text.encode("utf-8", "surrogatepass") for name, text in data.items()})
    for rule in rules(app):
        if "POST" in (rule.methods or ()) and rule.endpoint != "gate.sign_out":
            answer = carol.client.post(path_of(rule, {}), data=body, content_type="application/x-www-form-urlencoded")
            assert answer.status_code < 500, (rule, answer.text[:300])


@pytest.mark.parametrize("value", HOSTILE, ids=[repr(value[:20]) for value in HOSTILE])
def test_hostile_text_in_a_query_is_never_a_500(value: str, alice: Browser, ids: dict[str, str]) -> None:
    fields = {**dict.fromkeys((*FIELDS, "image"), value), "mount-x": value}
    query = urlencode({name: text.encode("utf-8", "surrogatepass") for name, text in fields.items()})
    change = f"/poll/workspaces/{ids['workspace_id']}/change"
    for path in (f"/launch?{query}", f"{change}?{query}", f"{change}?gpu_way=these&{query}"):
        answer = alice.get(path)
        assert answer.status_code < 500, (path[:80], answer.text[:300])


@pytest.mark.parametrize("value", ["%00", "%ff%fe", "..%2f..%2fetc", "a" * 3000, "%0d%0aX: y", "☃"])
def test_hostile_ids_are_not_found(value: str, alice: Browser) -> None:
    for path in ("/workspaces/{}", "/poll/workspaces/{}", "/workspaces/{}/remove", "/welcome/{}"):
        assert alice.get(path.format(value)).status_code in (404, 400)


def test_bodies_of_other_kinds_are_refused_politely(alice: Browser) -> None:
    for kind, body in (("application/json", b"{"), ("multipart/form-data; boundary=x", b"--x\r\nbroken"),
                       ("multipart/form-data", b""), ("text/plain", b"\xff\xfe"), ("", b"a=b")):
        answer = alice.client.post("/launch", data=body, content_type=kind)
        assert answer.status_code in (400, 413, 415, 422), kind
