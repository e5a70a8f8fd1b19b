"""The page of the hold: who sees it, what it shows, and that nothing is done but what was decided."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from unit.boxes import CREATED, DOWN, UP, box
from unit.test_hold import shown

from web.conftest import NOON, Browser, Cast, Clock
from web.racks import card, saw, uuid
from webapp.domain.actor import Actor
from webapp.domain.container import Container, ContainerDetail, VolumeMount
from webapp.domain.hold import Present, compare
from webapp.domain.workspace import Desired, Phase
from webapp.services import hold
from webapp.store.reads import agent as reads
from webapp.store.session import Store
from webapp.store.tables import AgentState, GpuClaim, HoldFinding, PortClaim, Workspace, WorkspaceSecret

Look = Callable[..., None]


@pytest.fixture
def held(store: Store) -> None:
    with store.write() as db:
        hold.put_on(db, Actor.house(), why="restore", made_at=NOON.replace(day=23), now=NOON)


@pytest.fixture
def look(held: None, store: Store, cast: Cast, clock: Clock) -> Look:
    """look(container, …) = the agent has compared these with the rows."""
    def record(*containers: ContainerDetail) -> None:
        with store.write() as db:
            rows = reads.wanted_on(db, cast.host, "test")
            assert hold.record(db, cast.host, compare(rows, containers, instance="test"),
                               Present(frozenset(), frozenset()), epoch=1, now=clock())
    return record


def of(workspace_id: str, container: Container, **detail: Any) -> ContainerDetail:
    named = replace(
        container, id=f"id-{workspace_id}-{container.revision}",
        name=container.name.replace("test1", "test").replace("abc", workspace_id),
        labels={**container.labels, "berth.instance": "test", "berth.workspace": workspace_id})
    return shown(named, **detail)


def stopped(launch: Callable[..., str], name: str = "run-1", **more: Any) -> str:
    return launch(name, desired=Desired.STOPPED, phase=Phase.STOPPED, **more)


def form(page: str) -> dict[str, str]:
    """What the page's form holds when nothing is ticked."""
    return dict(re.findall(r'<input type="hidden" name="(mark-[^"]+)" value="([^"]+)"', page))


def test_members_see_that_and_nothing_of_what(held: None, alice: Browser) -> None:
    page = alice.get("/").text
    assert "on hold after a restore" in page and 'href="/hold"' not in page
    assert alice.get("/hold").status_code == 403
    assert alice.post("/hold", {"do": "release"}).status_code == 403


def test_administrators_find_it_on_every_page_while_it_lasts(carol: Browser, store: Store) -> None:
    assert "/hold" not in carol.get("/house").text
    assert "not on hold" in carol.get("/hold").text
    with store.write() as db:
        hold.put_on(db, Actor.house(), why="moving the disks", now=NOON)
    page = carol.get("/house").text
    assert "moving the disks" in page and page.count('href="/hold"') >= 2
    assert "No agent has looked yet" in carol.get("/hold").text


def test_nothing_that_differs_can_be_ended_at_once(look: Look, carol: Browser, store: Store) -> None:
    look()
    assert "Nothing differs" in carol.get("/hold").text
    assert carol.post("/hold", {"do": "release"}).status_code == 303
    with store.read() as db:
        assert db.get_one(AgentState, 1).hold is None


def test_difference_is_told_by_database_and_in_truth(
    look: Look, carol: Browser, launch: Callable[..., str],
) -> None:
    workspace = stopped(launch, "training")
    look(of(workspace, box(UP)))
    page = carol.get("/hold").text
    for said in ("training", "alice", "Runs, and should not by the database", "It will be stopped",
                 f"berth-test-w-{workspace}-r1", "1 difference is open"):
        assert said in page, said


def test_card_is_called_by_its_number(
    look: Look, carol: Browser, launch: Callable[..., str], store: Store, cast: Cast,
) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace = launch("training")
    look(of(workspace, box(UP, gpus=uuid(1))))
    page = carol.get("/hold").text
    assert "GPU 1" in page and "Runs with GPUs that the database does not give it" in page


def test_container_of_nobody_says_why_it_cannot_be_taken_over(look: Look, carol: Browser) -> None:
    look(of("zzz", box(UP)))
    page = carol.get("/hold").text
    assert "cannot be taken over" in page and "belongs to nobody" in page and 'value="adopt"' not in page
    assert 'value="forget"' in page


def test_saved_decisions_are_ticked_and_nothing_happens(
    look: Look, carol: Browser, launch: Callable[..., str], store: Store,
) -> None:
    workspace = stopped(launch)
    look(of(workspace, box(UP)))
    sent = {**form(carol.get("/hold").text), f"decision-{workspace}": "keep", "do": "save"}
    assert carol.post("/hold", sent).status_code == 303
    assert re.search(r'value="keep" checked', carol.get("/hold").text)
    with store.read() as db:
        assert db.get_one(Workspace, workspace).generation == 1 and db.get_one(AgentState, 1).hold


def test_end_does_what_was_ticked(
    look: Look, carol: Browser, launch: Callable[..., str], store: Store, cast: Cast,
) -> None:
    workspace = stopped(launch)
    mounts = (VolumeMount(f"berth-test-home-{cast.alice}", "/home/alice"),)
    detail = of(workspace, box(UP, shape=f"shm=1 mounts={cast.volume}:ro"))
    look(replace(detail, making=replace(detail.making, mounts=mounts)))     # type: ignore[type-var, arg-type]
    sent = {**form(carol.get("/hold").text), f"decision-{workspace}": "adopt", "do": "release"}
    answer = carol.post("/hold", sent)
    assert answer.status_code == 303, answer.text
    with store.read() as db:
        row = db.get_one(Workspace, workspace)
        assert (row.desired, row.phase, row.container_id) == ("running", "running", detail.container.id)
        assert db.get_one(AgentState, 1).hold is None and db.scalars(select(HoldFinding)).all() == []
        ports = dict(db.execute(select(PortClaim.service, PortClaim.port).where(
            PortClaim.workspace_id == workspace)).all())
    assert ports == {"ssh": 20000, "jupyter": 20001}
    assert "The hold is over" in carol.get("/house/workspaces").text


def test_undecided_ones_refuse_the_end_and_keep_what_was_ticked(
    look: Look, carol: Browser, launch: Callable[..., str], store: Store,
) -> None:
    one, two = stopped(launch, "one"), stopped(launch, "two")
    look(of(one, box(UP)), of(two, box(UP)))
    sent = {**form(carol.get("/hold").text), f"decision-{one}": "keep", "do": "release"}
    answer = carol.post("/hold", sent)
    assert answer.status_code == 409 and "nothing is decided about two" in answer.text
    assert re.search(rf'name="decision-{one}" value="keep" checked', answer.text)
    with store.read() as db:
        assert db.get_one(AgentState, 1).hold
    assert carol.post("/hold", {**sent, "keep_rest": "yes"}).status_code == 303


def test_what_changed_since_it_was_shown_is_not_decided(
    look: Look, carol: Browser, launch: Callable[..., str],
) -> None:
    workspace = stopped(launch)
    look(of(workspace, box(UP)))
    sent = {**form(carol.get("/hold").text), f"decision-{workspace}": "keep", "do": "release"}
    look(of(workspace, box(UP, 2)))
    answer = carol.post("/hold", sent)
    assert answer.status_code == 409 and "something has changed since you looked" in answer.text


def test_decision_about_something_that_changed_is_asked_for_again(
    look: Look, carol: Browser, launch: Callable[..., str],
) -> None:
    workspace = stopped(launch)
    look(of(workspace, box(UP)))
    carol.post("/hold", {**form(carol.get("/hold").text), f"decision-{workspace}": "keep", "do": "save"})
    look(of(workspace, box(UP, 2)))
    page = carol.get("/hold").text
    assert "Something has changed since “Go by the database” was decided." in page and " checked" not in page


def test_all_of_a_kind_are_decided_with_one_button(
    look: Look, carol: Browser, launch: Callable[..., str], store: Store,
) -> None:
    ids = [stopped(launch, name) for name in ("one", "two")]
    look(*(of(id_, box(UP)) for id_ in ids), of("zzz", box(DOWN)))
    assert "all:runs_but_stopped:keep" in carol.get("/hold").text
    assert carol.post("/hold", {"do": "all:runs_but_stopped:keep"}).status_code == 303
    with store.read() as db:
        decisions = {row.workspace_id: row.decision for row in db.scalars(select(HoldFinding))}
    assert decisions == {ids[0]: "keep", ids[1]: "keep", "zzz": None}


def test_clash_names_both(look: Look, carol: Browser, launch: Callable[..., str], store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    with store.write() as db:
        db.get_one(AgentState, 1).hold = None
    old = launch("old", gpus=(uuid(0),))
    other = stopped(launch, "other")
    with store.write() as db:
        hold.put_on(db, Actor.house(), why="restore", now=NOON)
    look(of(old, box(DOWN)), of(other, box(UP, gpus=uuid(0), ports="jupyter=20003,ssh=20002")))
    sent = {**form(carol.get("/hold").text), f"decision-{old}": "keep", f"decision-{other}": "keep", "do": "release"}
    answer = carol.post("/hold", sent)
    assert answer.status_code == 409 and "alice/old" in answer.text and "alice/other" in answer.text
    assert "GPU 0" in answer.text
    with store.read() as db:
        assert [claim.workspace_id for claim in db.scalars(select(GpuClaim))] == [old]


@pytest.mark.parametrize("sent", [
    {"do": "all:nothing:keep"}, {"do": "all:"}, {"do": "burn"}, {"decision-none": "keep", "do": "save"},
    {"decision-ID": "burn", "mark-ID": "MARK", "do": "save"}, {"decision-ID": "keep", "mark-ID": "x", "do": "save"},
])
def test_nonsense_changes_nothing(
    look: Look, carol: Browser, launch: Callable[..., str], store: Store, sent: dict[str, str],
) -> None:
    workspace = stopped(launch)
    look(of(workspace, box(UP)))
    mark = form(carol.get("/hold").text)[f"mark-{workspace}"]
    filled = {key.replace("ID", workspace): value.replace("MARK", mark) for key, value in sent.items()}
    assert carol.post("/hold", filled).status_code < 500
    with store.read() as db:
        assert [row.decision for row in db.scalars(select(HoldFinding))] == [None]
        assert db.get_one(AgentState, 1).hold


def test_every_kind_can_be_shown(look: Look, carol: Browser, launch: Callable[..., str]) -> None:
    made = {name: launch(name) for name in ("cards", "moved", "down", "gone", "made")}
    runs = stopped(launch, "runs", container_id="x")
    look(of(made["cards"], box(UP, gpus="GPU-odd")), of(made["moved"], box(UP, shape="shm=9 mounts=none:rw")),
         of(made["down"], box(DOWN)), of(runs, box(UP)), of("zzz", box(UP)), of(made["made"], box(CREATED)),
         of("yyy", box(UP), making=None))
    page = carol.get("/hold").text
    for name in (*made, "runs", "zzz"):
        assert name in page
    assert page.count('class="b-panel" aria-labelledby="kind-') == 6


def test_nobody_gets_in_before_the_keys_are_read_back(
    alice: Browser, launch: Callable[..., str], store: Store,
) -> None:
    workspace = launch()
    with store.write() as db:
        db.delete(db.get_one(WorkspaceSecret, workspace))
    answer = alice.post(f"/workspaces/{workspace}/open")
    assert answer.status_code == 409 and "read back" in answer.text
    assert alice.get(f"/workspaces/{workspace}").status_code == 200



def test_launch_with_a_gpu_says_why_it_has_to_wait(
    alice: Browser, store: Store, cast: Cast,
) -> None:
    saw(store, cast.host, card(0))
    with store.write() as db:
        hold.put_on(db, Actor.house(), why="restore", now=NOON)
    sent = {"name": "new", "image_id": cast.image, "gpu_way": "any", "gpu_count": "1"}
    answer = alice.post("/launch", sent)
    assert answer.status_code == 409 and "Berth is on hold" in answer.text and "go on without GPUs" in answer.text
    assert alice.post("/launch", {**sent, "gpu_way": "none"}).status_code == 303
