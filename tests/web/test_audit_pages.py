"""The page of the audit: filters, pages, exports, and that nothing in it runs or is a secret."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from html import unescape

import pytest

from web.conftest import NOON, PASSWORD, SECRETS, Browser, Cast
from web.test_launch_gpus import said
from webapp.domain.actor import Actor
from webapp.services import events
from webapp.store.reads import audit as reads
from webapp.store.session import Store


def note(store: Store, actor: Actor, action: str, object_id: str = "x", **details: object) -> None:
    with store.write() as db:
        events.write(db, actor, action, "thing", object_id, now=NOON, **details)


def test_who_did_what_from_where_is_shown_and_found(
    alice: Browser, carol: Browser, launch: Callable[..., str], cast: Cast,
) -> None:
    workspace = launch("train")
    alice.post(f"/workspaces/{workspace}/stop")
    page = said(carol.get("/house/audit").text)
    assert "workspace.stop" in page and "127.0.0.1" in page and "member.create" in page
    for query, others in ((f"object={workspace}", "team.create"), ("action=workspace.stop", "workspace.launch"),
                          ("actor=alice", "member.create")):
        found = said(carol.get(f"/house/audit?{query}").text)
        assert "workspace.stop" in found and others not in found, query
    assert "member.create" in said(carol.get("/house/audit?actor=-").text)


def test_days_hold_their_first_and_last_moment(carol: Browser, store: Store) -> None:
    note(store, Actor.house(), "one.thing")
    day, next_day = NOON.date().isoformat(), NOON.replace(day=NOON.day + 1).date().isoformat()
    assert "one.thing" in carol.get(f"/house/audit?since={day}&until={day}").text
    assert "one.thing" not in carol.get(f"/house/audit?since={next_day}").text
    assert "No event fits" in carol.get("/house/audit?until=2020-01-01").text


@pytest.mark.parametrize("query", ["since=tomorrow", "until=2026-13-01", "since=9999-99-99", "until=%00"])
def test_what_is_no_day_is_told_beside_its_field(carol: Browser, query: str) -> None:
    refused = carol.get(f"/house/audit?{query}")
    assert refused.status_code == 422 and "is no day. Write it as 2026-11-24." in refused.text


def test_pages_go_on_where_the_last_one_ended(carol: Browser, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PAGE", 2)
    for number in range(5):
        note(store, Actor.house(), f"many.e{number}")
    seen: list[str] = []
    path = "/house/audit?action=many"
    for _ in range(3):
        page = carol.get(path).text
        seen += [f"e{number}" for number in reversed(range(5)) if f"many.e{number}" in said(page)]
        older = re.findall(r'href="(/house/audit\?[^"]*before=[^"]*)"', page)
        if not older:
            break
        path = unescape(older[0])
    assert seen == ["e4", "e3", "e2", "e1", "e0"]


def test_exports_hold_all_that_the_filters_leave(
    carol: Browser, store: Store, monkeypatch: pytest.MonkeyPatch, cast: Cast,
) -> None:
    monkeypatch.setattr(reads, "STEP", 2)
    for number in range(5):
        note(store, Actor(cast.carol, True, "192.0.2.7"), f"many.e{number}", before={"a": 1}, name="=SUM(A1)")
    lines = carol.get("/house/audit/export.jsonl?action=many").text.splitlines()
    assert [json.loads(line)["action"] for line in lines] == [f"many.e{number}" for number in reversed(range(5))]
    first = json.loads(lines[0])
    assert (first["actor"], first["address"], first["details"]["before"]) == ("carol", "192.0.2.7", {"a": 1})
    answer = carol.get("/house/audit/export.csv?action=many")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 5 and answer.headers["Content-Disposition"] == "attachment; filename=audit.csv"
    assert carol.get("/house/audit/export.exe").status_code == 404
    assert carol.get("/house/audit/export.csv?since=x").status_code == 422


def test_cell_that_a_spreadsheet_would_run_is_text(carol: Browser, store: Store) -> None:
    for value in ("=cmd|' /C calc'!A0", "+1", "-1", "@x"):
        note(store, Actor.house(), "odd.one", object_id=value)
    rows = list(csv.DictReader(io.StringIO(carol.get("/house/audit/export.csv?action=odd").text)))
    assert all(row["object_id"].startswith("'") for row in rows) and len(rows) == 4


def test_markup_in_facts_is_text(carol: Browser, store: Store) -> None:
    note(store, Actor.house(), "odd.one", object_id="<script>alert(1)</script>", name="<img src=x onerror=alert(1)>")
    page = carol.get("/house/audit").text
    assert "<img src=x" not in page and "<script>alert" not in page and "&lt;img src=x" in page


def test_no_secret_gets_into_it(
    alice: Browser, carol: Browser, launch: Callable[..., str], cast: Cast,
) -> None:
    workspace = launch("train")
    alice.post(f"/workspaces/{workspace}/open")
    alice.post("/me/password", {"old": PASSWORD, "new": "another horse battery"})
    link = re.findall(r"/welcome/([\w-]{20,})", carol.post("/house/members/invite", {"role": "member"}).text)[0]
    carol.post(f"/house/members/{cast.bob}/password", {"new": "a third horse battery"})
    told = carol.get("/house/audit/export.jsonl").text
    for secret in (PASSWORD, "another horse battery", "a third horse battery", link, SECRETS.jupyter_token,
                   SECRETS.host_private_key.splitlines()[0]):
        assert secret not in told
    assert "workspace.open" in told and "member.set_password" in told
