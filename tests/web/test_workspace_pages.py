"""What pages say of workspaces, what they never say, and what their buttons ask for."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask

from web.conftest import CANARY, KEY, NOON, OTHER_KEY, Browser, Cast, Clock
from webapp.domain.operation import OperationKind
from webapp.services import operations
from webapp.store.session import Store
from webapp.store.tables import Host, Image, Member, SshKey, Workspace

Launch = Callable[..., str]
SCRIPT = "<script>alert(666)</script>"
IMAGE_TAG = '"><img src=x onerror=alert(1)>'


def row(store: Store, workspace_id: str) -> Workspace:
    with store.read() as db:
        return db.get_one(Workspace, workspace_id)


def test_empty_home_has_one_action(alice: Browser) -> None:
    text = alice.get("/").text
    assert "No workspaces yet" in text
    assert text.count("btn-primary") == 1


@pytest.mark.parametrize(("phase", "word"), [
    ("pulling", "Pulling"), ("starting", "Starting"), ("running", "Running"), ("stopping", "Stopping"),
    ("stopped", "Stopped"), ("moving", "Moving"), ("removing", "Removing"), ("failed", "Failed"),
    ("unknown", "Unknown"),
])
def test_each_phase_has_its_word_on_both_pages(phase: str, word: str, alice: Browser, launch: Launch) -> None:
    workspace_id = launch(phase=phase)
    for path in ("/", f"/workspaces/{workspace_id}", f"/poll/workspaces/{workspace_id}"):
        assert f"</svg>{word}</span>" in alice.get(path).text


def test_connect_card_has_every_line(alice: Browser, launch: Launch, store: Store) -> None:
    workspace_id = launch("vit")
    text = alice.get(f"/workspaces/{workspace_id}").text
    alias = f"berth-test-{workspace_id}"
    for line in ("ssh -p 20000 alice@127.0.0.1", "Host vit", "HostName 127.0.0.1", "Port 20000", "User alice",
                 f"HostKeyAlias {alias}", f"[127.0.0.1]:20000 {OTHER_KEY.rpartition(' ')[0]}",
                 f"{alias} {OTHER_KEY.rpartition(' ')[0]}", "vscode://vscode-remote/ssh-remote+vit/home/alice",
                 "scp -P 20000 file.txt alice@127.0.0.1:", "/opt/berth/py", "/data/imagenet"):
        assert line in text
    assert "IdentitiesOnly" not in text
    assert re.search(r"SHA256:[A-Za-z0-9+/]{43}", text)


def test_steps_show_percent_and_times(alice: Browser, launch: Launch) -> None:
    step = {"name": "image", "state": "running", "started_at": (NOON - timedelta(seconds=64)).isoformat(),
            "ended_at": None, "percent": 42, "done_bytes": 42 * 2**20, "total_bytes": 100 * 2**20}
    workspace_id = launch(phase="pulling", observed_generation=0, progress={"steps": [step]})
    answer = alice.get(f"/poll/workspaces/{workspace_id}").text
    assert "Pulling the image" in answer and "42 %" in answer and "1 min 04 s" in answer
    assert "42 MiB of 100 MiB" in answer and 'data-every="1"' in answer


def test_steps_of_a_newer_agent_do_no_harm(alice: Browser, launch: Launch) -> None:
    odd = {"steps": [{"name": "quantum", "state": "tunnelling"},
                     {"name": "ssh", "state": "humming", "started_at": "soon"}]}
    workspace_id = launch(phase="starting", progress=odd, reason={"code": "new_code", "facts": {}})
    text = alice.get(f"/workspaces/{workspace_id}").text
    assert "SSH answers" in text and "new_code" in text


def test_reason_is_a_sentence_with_a_next_step(alice: Browser, launch: Launch) -> None:
    reason = {"code": "service_down", "facts": {"service": "jupyter", "since": NOON.isoformat()}}
    workspace_id = launch(health="degraded", reason=reason)
    text = alice.get(f"/workspaces/{workspace_id}").text
    assert "Degraded" in text and "Jupyter does not answer since <time" in text and "restarted by itself" in text


def test_a_reason_without_its_facts_is_shown_with_question_marks(alice: Browser, launch: Launch) -> None:
    launch(phase="failed", reason={"code": "out_of_memory", "facts": {}})
    assert "It used all of its ? of memory" in alice.get("/").text


@pytest.mark.parametrize("payload", [SCRIPT, IMAGE_TAG])
def test_nothing_that_others_wrote_becomes_markup(payload: str, alice: Browser, carol: Browser, launch: Launch,
                                                  store: Store, cast: Cast) -> None:
    alice.post("/keys", {"text": KEY})
    reason = {"code": "image_not_found", "facts": {"image": payload, "host": payload, "detail": payload}}
    workspace_id = launch(phase="failed", reason=reason, note={"code": payload, "facts": {}},
                          log_tail=f"a\n{payload}\n", image_reference=payload)
    with store.write() as db:
        db.get_one(Member, cast.alice).display_name = payload
        db.get_one(Image, cast.image).title = payload
        for key in db.query(SshKey):
            key.title = payload
    pages = [alice.get(path).text for path in ("/", f"/workspaces/{workspace_id}", f"/poll/workspaces/{workspace_id}",
                                               "/launch", "/keys", f"/workspaces/{workspace_id}/remove")]
    pages += [carol.get(path).text for path in ("/images", f"/images/{cast.image}", "/house/members",
                                                f"/house/members/{cast.alice}")]
    for text in pages:
        assert payload not in text
    assert sum("&lt;" in text or "&#34;&gt;" in text for text in pages) >= 8


def test_log_loses_its_control_characters(alice: Browser, launch: Launch) -> None:
    workspace_id = launch(phase="failed", log_tail="\x1b[31mred\x1b[0m \x1b]0;title\x07plain\x00\x07\r\nnext")
    assert ">red plain\nnext</pre>" in alice.get(f"/workspaces/{workspace_id}").text


def test_log_is_fetched_and_shown(alice: Browser, launch: Launch, store: Store, clock: Clock) -> None:
    workspace_id = launch()
    assert alice.post(f"/workspaces/{workspace_id}/logs").headers["Location"].endswith("#logs")
    assert 'data-every="1"' in alice.get(f"/poll/workspaces/{workspace_id}").text
    with store.write() as db:
        operation = db.query(operations.Operation).filter_by(kind=OperationKind.WORKSPACE_LOGS).one()
        operations.take(db, operation.id, clock())
        operations.finish(db, operation.id, now=clock(), result={"text": "Server listening <now>"})
    assert "Server listening &lt;now&gt;" in alice.get(f"/workspaces/{workspace_id}").text


def test_token_is_in_the_open_page_and_nowhere_else(app: Flask, alice: Browser, carol: Browser, launch: Launch,
                                                    store: Store) -> None:
    workspace_id = launch(log_tail="x")
    opened = alice.post(f"/workspaces/{workspace_id}/open")
    assert opened.status_code == 200 and opened.text.count(CANARY) == 2
    assert 'action="http://127.0.0.1:20001/login?next=/lab"' in opened.text
    assert "form-action 'self' http://127.0.0.1:20001;" in opened.headers["Content-Security-Policy"]
    assert opened.headers["Cache-Control"] == "no-store"
    nonce = re.search(r"script-src 'self' 'nonce-([^']+)'", opened.headers["Content-Security-Policy"])
    assert nonce and f'<script nonce="{nonce[1]}">' in opened.text
    for browser in (alice, carol):
        for rule in app.url_map.iter_rules():
            if "GET" in (rule.methods or ()) and rule.endpoint != "static":
                answer = browser.get(rule.rule.replace("<workspace_id>", workspace_id))
                assert CANARY not in answer.text and "CANARY" not in str(answer.headers)


def test_only_its_owner_opens_jupyter(alice: Browser, bob: Browser, carol: Browser, launch: Launch, cast: Cast) -> None:
    workspace_id = launch()
    assert bob.post(f"/workspaces/{workspace_id}/open").status_code == 404
    answer = carol.post(f"/workspaces/{workspace_id}/open")
    assert answer.status_code == 403 and CANARY not in answer.text
    assert "Open Jupyter" not in carol.get(f"/workspaces/{workspace_id}").text
    stopped, slim = launch("run-2", phase="stopped"), launch("run-3", phase="running", jupyter=False)
    assert alice.post(f"/workspaces/{stopped}/open").status_code == 409
    assert alice.post(f"/workspaces/{slim}/open").status_code == 404


def test_stop_start_and_remove_ask_for_it(alice: Browser, launch: Launch, store: Store) -> None:
    workspace_id = launch()
    assert alice.post(f"/workspaces/{workspace_id}/stop").status_code == 303
    assert (row(store, workspace_id).desired, row(store, workspace_id).generation) == ("stopped", 2)
    assert "Stopping" in alice.get(f"/workspaces/{workspace_id}").text      # before the agent has looked
    alice.post(f"/workspaces/{workspace_id}/start")
    assert row(store, workspace_id).desired == "running"
    wrong = alice.post(f"/workspaces/{workspace_id}/remove", {"confirm": "run-2"})
    assert wrong.status_code == 422 and "not its name" in wrong.text and row(store, workspace_id).desired == "running"
    assert alice.post(f"/workspaces/{workspace_id}/remove", {"confirm": "run-1"}).headers["Location"] == "/"
    assert row(store, workspace_id).desired == "removed"
    late = alice.post(f"/workspaces/{workspace_id}/start")
    assert late.status_code == 409 and "the workspace is removing" in late.text


def test_remove_says_what_goes_and_what_stays(alice: Browser, launch: Launch) -> None:
    text = alice.get(f"/workspaces/{launch()}/remove").text
    assert "/opt/berth/py" in text and "/home/alice" in text and "imagenet" in text


def test_a_removed_workspace_still_has_its_page(alice: Browser, launch: Launch) -> None:
    text = alice.get(f"/workspaces/{launch(phase='removed', desired='removed')}").text
    assert "This workspace was removed." in text and "do-start" not in text and "ssh -p" not in text


def test_admin_sees_the_workspaces_of_all_but_not_their_ways_in(carol: Browser, launch: Launch) -> None:
    workspace_id = launch()
    assert f"/workspaces/{workspace_id}" in carol.get("/house/workspaces").text
    text = carol.get(f"/workspaces/{workspace_id}").text
    assert "Only alice can get in" in text and "ssh -p" not in text and "do-stop" in text


def test_a_silent_host_is_said(alice: Browser, launch: Launch, store: Store, cast: Cast) -> None:
    workspace_id = launch(phase="unknown")
    with store.write() as db:
        db.get_one(Host, cast.host).unreachable_since = NOON
    assert "atlas does not answer since" in alice.get(f"/workspaces/{workspace_id}").text
