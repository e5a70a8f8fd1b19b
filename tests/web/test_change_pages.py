"""The page that changes a workspace: what it shows and says beforehand, what it asks for, what a refusal keeps."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from sqlalchemy import select

from web.conftest import NOON, Browser, Cast, Clock
from web.racks import A100, H100, busy, card, cards_of, give_back, lost, saw, uuid
from web.test_forms import wrong
from web.test_launch_gpus import is_ticked, may_be_ticked, said, tiles, way
from webapp.domain.operation import OperationKind
from webapp.services import gpus, operations
from webapp.store.session import Store
from webapp.store.tables import Operation, TeamMember, Workspace, WorkspaceMount

Launch = Callable[..., str]
GIB = 2**30


def row(store: Store, workspace_id: str) -> Workspace:
    with store.read() as db:
        return db.get_one(Workspace, workspace_id)


def typed(**changes: str) -> dict[str, str]:
    """The form as it is filled in for a workspace of `launch` without cards."""
    return {"cpus": "2", "memory": "8GiB", "shm": "2GiB", "gpu_way": "none", "gpu_count": "1", **changes}


def preview(browser: Browser, workspace_id: str, **fields: Any) -> str:
    """What the page says that would happen, as a person reads it."""
    answer = browser.get(f"/poll/workspaces/{workspace_id}/change", query_string=typed(**fields))
    assert answer.status_code == 200
    return said(answer.text)


@pytest.fixture
def rack(store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), card(1), card(2, H100), lost(3))


def test_form_is_filled_with_what_it_has_now(rack: None, alice: Browser, cast: Cast, launch: Launch) -> None:
    text = alice.get(f"/workspaces/{launch(gpus=(uuid(0),))}/change").text
    for name, value in (("cpus", "2"), ("memory", "8GiB"), ("shm", "2GiB")):
        assert re.search(rf'id="{name}" name="{name}"[^>]* value="{value}"', text), name
    assert way(text) == "same" and "Now: 1 × NVIDIA A100-SXM4-80GB." in said(text)
    assert re.search(rf'name="mount-{cast.volume}".*?<option value="ro" selected>', text, re.S)
    assert "Nothing changes so far." in text


def test_preview_that_asks_before_anything_was_typed_says_that_nothing_changes(
    rack: None, alice: Browser, launch: Launch,
) -> None:
    address = f"/poll/workspaces/{launch(gpus=(uuid(0),))}/change"      # its volume is mounted, too
    assert "Nothing changes so far." in alice.get(address).text


def test_its_own_cards_may_be_kept_and_others_not_be_taken(rack: None, alice: Browser, launch: Launch) -> None:
    mine, other = launch(gpus=(uuid(0),)), launch("run-2", gpus=(uuid(1),))
    for path in (f"/workspaces/{mine}/change", f"/poll/workspaces/{mine}/gpus"):
        shown = tiles(alice.get(path).text)
        assert "Its own" in said(shown[uuid(0)]) and may_be_ticked(shown[uuid(0)])
        assert "You" in said(shown[uuid(1)]) and not may_be_ticked(shown[uuid(1)])
        assert may_be_ticked(shown[uuid(2)]) and not may_be_ticked(shown[uuid(3)])
        assert not any(is_ticked(tile) for tile in shown.values())
    assert "Its own" not in said(tiles(alice.get(f"/poll/workspaces/{other}/gpus").text)[uuid(0)])


@pytest.mark.parametrize(("fields", "says"), [
    ({}, "Nothing changes so far."),
    ({"cpus": "4", "memory": "16GiB"}, "At once, while it runs"),
    ({"shm": "1GiB"}, "It is stopped for a moment and made anew"),
    ({"gpu_way": "any"}, "It is stopped for a moment and made anew"),
    ({"gpu_way": "these", "gpu": uuid(1)}, "It is stopped for a moment and made anew"),
])
def test_what_will_happen_is_said_before(fields: dict[str, str], says: str, rack: None, alice: Browser,
                                         launch: Launch, store: Store, cast: Cast) -> None:
    workspace_id = launch(revision=1)
    said_now = preview(alice, workspace_id, **{f"mount-{cast.volume}": "ro"}, **fields)
    assert says in said_now
    assert ("Programs that run in it end." in said_now) == ("anew" in says)
    assert row(store, workspace_id).generation == 1


def test_of_a_stopped_one_nothing_ends(rack: None, alice: Browser, launch: Launch) -> None:
    workspace_id = launch(phase="stopped", desired="stopped", revision=1)
    assert "It is made anew at its next start" in preview(alice, workspace_id, shm="1GiB")
    assert "Programs that run" not in preview(alice, workspace_id, shm="1GiB")
    assert "It starts with this next time" in preview(alice, workspace_id, cpus="1", shm="", gpu_way="none")
    fresh = launch("run-2", phase="failed", revision=0, observed_generation=1)
    assert "It starts with this next time" in preview(alice, fresh, shm="1GiB")     # nothing to be copied


def test_what_cannot_be_is_said_before_too(rack: None, alice: Browser, launch: Launch) -> None:
    said_now = preview(alice, launch(), cpus="many", gpu_way="these")
    assert "cannot be changed to this" in said_now
    assert "not a number of CPUs" in said_now and "Tick the cards" in said_now      # all at once


def test_size_is_asked_for_and_shown_when_it_comes(alice: Browser, launch: Launch, store: Store, clock: Clock) -> None:
    workspace_id = launch(revision=1)
    page = alice.get(f"/workspaces/{workspace_id}/change").text
    assert f'data-measure="/workspaces/{workspace_id}/size"' in page
    for _ in range(2):
        assert alice.post(f"/workspaces/{workspace_id}/size").status_code == 204
    with store.read() as db:
        operation = db.scalars(select(Operation).where(Operation.kind == OperationKind.WORKSPACE_SIZE)).one()
    assert "not known yet" in preview(alice, workspace_id, shm="1GiB")
    with store.write() as db:
        operations.take(db, operation.id, clock())
        operations.finish(db, operation.id, now=clock(), result={
            "size_bytes": 3 * GIB, "layers": 14, "free_bytes": 2 * GIB})
    text = alice.get(f"/poll/workspaces/{workspace_id}/change", query_string=typed(shm="1GiB")).text
    assert "data-measure" not in text
    assert "To be copied 3 GiB Layers of its image 14 Free on atlas 2 GiB" in said(text)
    assert "not enough room" in said(text)
    clock.forward(minutes=2)
    assert "data-measure" in alice.get(f"/poll/workspaces/{workspace_id}/change", query_string=typed()).text


def test_limits_of_one_that_runs_are_changed(alice: Browser, launch: Launch, store: Store) -> None:
    workspace_id = launch(revision=1)
    answer = alice.post(f"/workspaces/{workspace_id}/change", typed(cpus="4", memory="16GiB", do="save"))
    assert answer.status_code == 303
    now = row(store, workspace_id)
    assert (now.cpu_millis, now.memory_bytes, now.generation) == (4000, 16 * GIB, 2)
    assert "Programs in it go on" in alice.get(answer.headers["Location"]).text


def test_saving_what_it_has_changes_nothing(alice: Browser, launch: Launch, store: Store, cast: Cast) -> None:
    workspace_id = launch()
    answer = alice.post(f"/workspaces/{workspace_id}/change", typed(do="save", **{f"mount-{cast.volume}": "ro"}))
    assert row(store, workspace_id).generation == 1
    assert "Nothing was changed" in alice.get(answer.headers["Location"]).text


@pytest.mark.parametrize(("do", "desired"), [("save", "stopped"), ("start", "running")])
def test_a_stopped_one_is_changed_and_may_be_started(do: str, desired: str, rack: None, alice: Browser, launch: Launch,
                                                     store: Store) -> None:
    workspace_id = launch(phase="stopped", desired="stopped", revision=1)
    answer = alice.post(f"/workspaces/{workspace_id}/change", typed(gpu_way="these", gpu=uuid(1), do=do))
    assert answer.status_code == 303
    assert row(store, workspace_id).desired == desired
    assert cards_of(store, workspace_id) == ([uuid(1)], [uuid(1)] if do == "start" else [])


def test_volumes_are_changed(alice: Browser, launch: Launch, store: Store, cast: Cast) -> None:
    workspace_id = launch(revision=1)
    alice.post(f"/workspaces/{workspace_id}/change", typed(do="save", **{f"mount-{cast.volume}": ""}))
    with store.read() as db:
        assert db.scalars(select(WorkspaceMount)).all() == []


def test_volume_of_a_team_that_was_left_can_be_let_go(alice: Browser, launch: Launch, store: Store,
                                                      cast: Cast) -> None:
    workspace_id = launch(phase="stopped", desired="stopped", revision=1)
    with store.write() as db:
        db.delete(db.get_one(TeamMember, (cast.team, cast.alice)))
    assert "has left that team" in alice.get(f"/workspaces/{workspace_id}/change").text
    kept = alice.post(f"/workspaces/{workspace_id}/change", typed(do="start", **{f"mount-{cast.volume}": "ro"}))
    assert kept.status_code == 422 and "imagenet" in wrong(kept.text, "mounts")
    let_go = alice.post(f"/workspaces/{workspace_id}/change", typed(do="start", **{f"mount-{cast.volume}": ""}))
    assert let_go.status_code == 303


def test_everything_that_is_wrong_stands_beside_its_field_and_what_was_typed_stays(rack: None, alice: Browser,
                                                                                   launch: Launch,
                                                                                   store: Store) -> None:
    workspace_id = launch()
    answer = alice.post(f"/workspaces/{workspace_id}/change",
                        typed(cpus="99", memory="8g", gpu_way="any", gpu_count="0", do="save"))
    assert answer.status_code == 422
    assert wrong(answer.text, "cpus") and "not a size" in wrong(answer.text, "memory") and wrong(answer.text, "gpus")
    assert 'value="99"' in answer.text and 'value="8g"' in answer.text and way(answer.text) == "any"
    assert row(store, workspace_id).generation == 1


def test_cards_that_were_taken_meanwhile_bring_the_next_best(rack: None, alice: Browser, launch: Launch,
                                                             store: Store) -> None:
    workspace_id = launch(revision=1)
    launch("bobs", owner="bob", gpus=(uuid(0),))
    answer = alice.post(f"/workspaces/{workspace_id}/change",
                        typed(cpus="4", gpu_way="these", gpu=uuid(0), do="save"))
    assert answer.status_code == 409 and "all you entered is kept" in answer.text
    assert 'value="4"' in answer.text and is_ticked(tiles(answer.text)[uuid(0)])
    offered = re.findall(r'formaction="([^"]+)" name="gpu_take" value="([^"]+)"', answer.text)
    action, cards = unescape(offered[0][0]), offered[0][1]
    assert cards == uuid(1) and row(store, workspace_id).cpu_millis == 2000
    assert alice.post(action, typed(cpus="4", gpu_way="these", gpu=uuid(0), gpu_take=cards)).status_code == 303
    assert cards_of(store, workspace_id)[0] == [uuid(1)] and row(store, workspace_id).cpu_millis == 4000


def refused_start(alice: Browser, launch: Launch, store: Store) -> tuple[str, str]:
    workspace_id = launch(gpus=(uuid(0),))
    with store.write() as db:
        gpus.release(db, workspace_id)
        stopped = db.get_one(Workspace, workspace_id)
        stopped.phase = stopped.desired = "stopped"
    launch("bobs", owner="bob", gpus=(uuid(0),))
    answer = alice.post(f"/workspaces/{workspace_id}/start")
    assert answer.status_code == 409
    return workspace_id, answer.text


def test_refused_start_offers_other_cards_and_takes_them(alice: Browser, launch: Launch, store: Store,
                                                         cast: Cast) -> None:
    saw(store, cast.host, card(0), card(2, H100))
    workspace_id = launch(gpus=(uuid(0),), gpu_model=A100)      # no other model will do, says whoever launched it
    give_back(store, workspace_id)
    with store.write() as db:
        stopped = db.get_one(Workspace, workspace_id)
        stopped.phase = stopped.desired = "stopped"
    launch("bobs", owner="bob", gpus=(uuid(0),))
    text = alice.post(f"/workspaces/{workspace_id}/start").text
    assert f'href="/workspaces/{workspace_id}/change"' in text
    action = re.findall(r'<form id="take"[^>]* action="([^"]+)"', text)[0]
    offered = re.findall(r'name="gpu_take" value="([^"]+)"', text)
    assert offered == [uuid(2)]
    assert alice.post(unescape(action), {"gpu_take": offered[0]}).status_code == 303
    assert row(store, workspace_id).desired == "running" and cards_of(store, workspace_id) == ([uuid(2)], [uuid(2)])


def test_refused_start_can_go_without_cards(alice: Browser, launch: Launch, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    workspace_id, text = refused_start(alice, launch, store)
    assert "Start without" in text and "name=\"gpu_take\"" not in text
    action = re.findall(r'<form id="take"[^>]* action="([^"]+)"', text)[0]
    assert alice.post(unescape(action), {"gpu_way": "none"}).status_code == 303
    now = row(store, workspace_id)
    assert (now.desired, now.gpu_count, now.memory_bytes) == ("running", 0, 8 * GIB)


def test_offer_that_was_taken_meanwhile_shows_the_form_as_it_was(alice: Browser, launch: Launch, store: Store,
                                                                 cast: Cast) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id, _ = refused_start_with_two(alice, launch, store)
    launch("bobs-too", owner="bob", gpus=(uuid(1),))
    answer = alice.post(f"/workspaces/{workspace_id}/change?do=start", {"gpu_take": uuid(1)})
    assert answer.status_code == 409
    assert 'value="8GiB"' in answer.text and is_ticked(tiles(answer.text)[uuid(1)])


def refused_start_with_two(alice: Browser, launch: Launch, store: Store) -> tuple[str, str]:
    workspace_id = launch(gpus=(uuid(0), uuid(1)))
    give_back(store, workspace_id)
    with store.write() as db:
        stopped = db.get_one(Workspace, workspace_id)
        stopped.phase = stopped.desired = "stopped"
    launch("bobs", owner="bob", gpus=(uuid(0),))
    answer = alice.post(f"/workspaces/{workspace_id}/start")
    assert answer.status_code == 409 and f'value="{uuid(1)}"' in answer.text
    return workspace_id, answer.text


def test_without_a_script_a_button_says_what_will_happen(alice: Browser, launch: Launch, store: Store) -> None:
    workspace_id = launch(revision=1)
    answer = alice.post(f"/workspaces/{workspace_id}/change", typed(shm="1GiB", do="show"))
    assert answer.status_code == 200 and "made anew" in answer.text and 'value="1GiB"' in answer.text
    assert "not known yet" in answer.text and row(store, workspace_id).generation == 1
    with store.read() as db:
        assert db.scalars(select(Operation.kind)).all() == [OperationKind.WORKSPACE_SIZE]


def test_admin_changes_it_within_its_owners_rights(rack: None, carol: Browser, launch: Launch, store: Store,
                                                   cast: Cast) -> None:
    workspace_id = launch()
    text = carol.get(f"/workspaces/{workspace_id}/change").text
    assert "owner: alice" in text and "/home/alice" in text and f"mount-{cast.volume}" in text
    answer = carol.post(f"/workspaces/{workspace_id}/change",
                        typed(cpus="1", do="save", **{f"mount-{cast.volume}": "ro"}))
    assert answer.status_code == 303 and row(store, workspace_id).cpu_millis == 1000


def test_removed_one_is_not_changed(alice: Browser, launch: Launch) -> None:
    workspace_id = launch(phase="removed", desired="removed")
    assert alice.get(f"/workspaces/{workspace_id}/change").status_code == 404
    assert alice.post(f"/workspaces/{workspace_id}/change", typed()).status_code == 404
    assert "do-change" not in alice.get(f"/workspaces/{workspace_id}").text


def test_moving_is_shown_by_its_steps(alice: Browser, launch: Launch) -> None:
    step = {"name": "kept", "state": "running", "started_at": NOON.isoformat(), "ended_at": None}
    workspace_id = launch(phase="moving", observed_generation=0, progress={"steps": [step]})
    text = alice.get(f"/workspaces/{workspace_id}").text
    assert "Being made anew" in text and "What is in it is kept" in text and "Moving" in text


def test_busy_card_of_its_own_is_not_said_to_be_free(store: Store, cast: Cast, alice: Browser, launch: Launch) -> None:
    saw(store, cast.host, card(0))
    workspace_id = launch(gpus=(uuid(0),))
    saw(store, cast.host, card(0), others=busy(card(0)))
    assert "Free" not in said(tiles(alice.get(f"/poll/workspaces/{workspace_id}/gpus").text)[uuid(0)])
