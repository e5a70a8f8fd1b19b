"""The page of quotas, and what the launch page says of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from web.conftest import NOON, Browser, Cast
from web.test_launch_gpus import said
from webapp.domain.actor import Actor
from webapp.domain.quota import Quota
from webapp.domain.sizes import GIB
from webapp.services import quotas
from webapp.store.reads import quotas as reads
from webapp.store.session import Store
from webapp.store.tables import HOUSE


def typed(**fields: str) -> dict[str, str]:
    return {"workspaces": "", "cards": "", "cpus": "", "memory": "", "version": "0", **fields}


def of(store: Store, subject: str = HOUSE) -> Quota | None:
    with store.read() as session:
        return next((one.quota for one in reads.all_set(session) if one.id == subject), None)


@pytest.fixture
def house_has(store: Store) -> Callable[..., None]:
    def put(**limits: Any) -> None:
        with store.write() as db:
            quotas.set_quota(db, Actor.house(), HOUSE, Quota(**limits), version=0, now=NOON)
    return put


def test_house_team_and_member_get_theirs(carol: Browser, store: Store, cast: Cast) -> None:
    filled = typed(workspaces="5", cards="2", cpus="7.5", memory="32GiB")
    assert carol.post(f"/house/quotas/{HOUSE}", filled).status_code == 303
    assert of(store) == Quota(5, 2, 7500, 32 * GIB)
    for subject in (cast.team, cast.bob):
        assert carol.post("/house/quotas", {**typed(cards="4"), "subject": subject}).status_code == 303
        assert of(store, subject) == Quota(cards=4)
    page = carol.get("/house/quotas").text
    assert "vision" in said(page) and re.search(r'id="memory-house"[^>]*value="32GiB"', page)
    assert f'<option value="{cast.team}"' not in page
    assert carol.post(f"/house/quotas/{cast.team}/clear", {"version": "1"}).status_code == 303
    assert of(store, cast.team) is None


@pytest.mark.parametrize(("field", "value"), [
    ("cards", "many"), ("workspaces", "-1"), ("cpus", "1,5"), ("memory", "32"), ("memory", "0.5GiB"),
    ("cpus", "\u202e1"), ("cards", "9" * 900), ("memory", "${7*7}GiB"), ("workspaces", "x" * 2000),
])
def test_what_cannot_be_used_is_told_beside_its_field_and_kept(
    field: str, value: str, carol: Browser, store: Store,
) -> None:
    refused = carol.post(f"/house/quotas/{HOUSE}", typed(**{"cpus": "3", field: value}))
    assert refused.status_code == 422 and of(store) is None
    where = refused.text.split(f'id="{field}-house-hint"')[1].split("</div>")[0]
    assert "b-err" in where
    if field != "cpus":
        assert re.search(r'id="cpus-house"[^>]*value="3"', refused.text)


def test_second_administrator_loses_nothing_and_overwrites_nothing(carol: Browser, store: Store) -> None:
    carol.post(f"/house/quotas/{HOUSE}", typed(cards="2"))
    late = carol.post(f"/house/quotas/{HOUSE}", typed(cards="9"))
    assert late.status_code == 409 and "Somebody else has changed this" in late.text
    assert re.search(r'id="cards-house"[^>]*value="9"', late.text) and of(store) == Quota(cards=2)


def test_members_may_not(alice: Browser) -> None:
    assert alice.get("/house/quotas").status_code == 403
    assert alice.post("/house/quotas", typed()).status_code == 403


def test_unknown_subject_is_not_found(carol: Browser) -> None:
    assert carol.post("/house/quotas/nobody", typed()).status_code in (404, 409)


def test_launch_page_says_what_is_left_and_a_refusal_names_the_limit(
    alice: Browser, cast: Cast, launch: Callable[..., str], house_has: Callable[..., None], store: Store,
) -> None:
    assert "your quota" not in said(alice.get("/launch").text)
    launch("one")
    house_has(workspaces=3, memory_bytes=12 * GIB)
    page = said(alice.get("/launch").text)
    assert "1 of 3 workspaces" in page and "8 GiB of 12 GiB memory in use" in page and "GPUs in use" not in page
    refused = alice.post("/launch", {"name": "two", "image_id": cast.image, "cpus": "2", "memory": "8GiB",
                                     "gpu_way": "none"})
    assert refused.status_code in (409, 422) and "12 GiB of memory are allowed at once" in said(refused.text)
    assert re.search(r'name="name"[^>]*value="two"', refused.text)


def test_start_over_the_quota_is_refused_with_a_sentence(
    alice: Browser, launch: Callable[..., str], house_has: Callable[..., None],
) -> None:
    workspace = launch("one", phase="stopped", desired="stopped")
    house_has(memory_bytes=GIB)
    refused = alice.post(f"/workspaces/{workspace}/start")
    assert refused.status_code == 409 and "1 GiB of memory are allowed at once" in said(refused.text)
