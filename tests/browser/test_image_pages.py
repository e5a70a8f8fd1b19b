"""Pages of images and of changes in a real browser: what a reader did stays, and nobody is kept out.

The dashboard is served from here on a database of the web tests; no engine and no agent is needed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from web import conftest as web
from web import racks
from web.racks import card, lost, saw, uuid

from browser import test_launch_cards as cards_page
from browser.barriers import no_barriers_on
from browser.test_launch_cards import ask_again, box
from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind
from webapp.services import images, operations
from webapp.store.session import Store
from webapp.store.tables import Operation, Workspace

pytestmark = pytest.mark.browser

seeded, cast, settings, store, clock = web.seeded, web.cast, web.settings, web.store, web.clock
make_app, launch = web.make_app, web.launch
address, visit = cards_page.address, cards_page.visit
DOCKERFILE = "FROM debian:12.11\nRUN echo one\nRUN false\n"
GIB = 2**30


@pytest.fixture
def building(store: Store, cast: web.Cast) -> Operation:
    """A Dockerfile of carol's, which the agent is building."""
    with store.write() as db:
        operation = images.prepare(db, Actor(cast.carol, True), title="Mine", base=None, dockerfile=DOCKERFILE,
                                   cuda_version=None, with_jupyter=True, now=web.NOON)
        operation.state, operation.started_at = "running", web.NOON
        operation.progress = {"step": "base", "number": 2, "of": 3}
        operation.log = _lines(200)
    return operation


def _lines(count: int) -> str:
    return "".join(f"line {n}\n" for n in range(count))


def _write(store: Store, operation: Operation, **columns: object) -> None:
    with store.write() as db:
        row = db.get_one(Operation, operation.id)
        for column, value in columns.items():
            setattr(row, column, value)


def _top(page: Page) -> float:
    return float(page.locator("#log-text").evaluate("e => e.scrollTop"))


def _is_at_end(page: Page) -> bool:
    return bool(page.locator("#log-text").evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight < 2"))


def test_log_is_followed_until_somebody_reads_further_up(visit: Callable[..., Page], store: Store,
                                                         building: Operation) -> None:
    page = visit("carol", f"/images/{building.image_id}")
    assert _is_at_end(page)
    _write(store, building, log=_lines(300))
    expect(page.locator("#log-text")).to_contain_text("line 299")
    assert _is_at_end(page)
    page.locator("#log-text").evaluate("e => { e.scrollTop = 500 }")
    _write(store, building, log=_lines(400))
    expect(page.locator("#log-text")).to_contain_text("line 399")
    assert _top(page) == 500


def test_half_mended_dockerfile_survives_every_update(visit: Callable[..., Page], store: Store,
                                                      building: Operation) -> None:
    _write(store, building, state="failed", ended_at=web.NOON,
           reason={"code": "build_failed", "facts": {"line": 3, "command": "RUN false", "detail": "exit code 1"}})
    page = visit("carol", f"/images/{building.image_id}")
    text = page.get_by_role("textbox", name="Dockerfile")
    text.fill("FROM debian:12.11\nRUN tr")
    text.focus()
    _write(store, building, log="another last word")
    ask_again(page)
    expect(page.locator("#log-text")).to_have_text("another last word")
    expect(text).to_have_value("FROM debian:12.11\nRUN tr")
    expect(text).to_be_focused()


def test_failure_appears_with_its_line_without_a_reload(visit: Callable[..., Page], store: Store,
                                                        building: Operation) -> None:
    page = visit("carol", f"/images/{building.image_id}")
    expect(page.locator("#broken-line")).to_have_count(0)
    _write(store, building, state="failed", ended_at=web.NOON,
           reason={"code": "build_failed", "facts": {"line": 3, "command": "RUN false", "detail": "exit code 1"}})
    expect(page.locator("#broken-line")).to_have_text("RUN false")
    expect(page.get_by_role("textbox", name="Dockerfile")).to_be_visible()


def test_preview_follows_what_is_chosen_and_own_cards_are_ticked(visit: Callable[..., Page], store: Store,
                                                                 cast: web.Cast, launch: Callable[..., str]) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = launch("mine", gpus=(uuid(0),), revision=1)
    page = visit("alice", f"/workspaces/{workspace_id}/change")
    said = page.locator("#preview-said")
    expect(said).to_contain_text("Nothing changes so far.")
    page.get_by_text("Pick cards", exact=True).click()
    expect(box(page, uuid(0))).to_be_checked()
    expect(said).to_contain_text("Nothing changes so far.")
    box(page, uuid(1)).check()
    expect(said).to_contain_text("made anew")
    expect(page.locator("#preview-size")).to_contain_text("not known yet")      # and was asked for meanwhile
    with store.write() as db:
        asked = db.query(Operation).filter_by(kind=OperationKind.WORKSPACE_SIZE).one()
        operations.take(db, asked.id, web.NOON)
        operations.finish(db, asked.id, now=web.NOON, result={"size_bytes": 3 * GIB, "layers": 9, "free_bytes": None})
    expect(page.locator("#preview-size")).to_contain_text("3 GiB")
    page.get_by_text("As it is", exact=True).click()
    page.get_by_label("Memory", exact=True).fill("16GiB")
    expect(said).to_contain_text("At once, while it runs")
    expect(page.get_by_label("Memory", exact=True)).to_be_focused()


def test_change_without_javascript(visit: Callable[..., Page], store: Store, cast: web.Cast,
                                   launch: Callable[..., str]) -> None:
    workspace_id = launch("mine", revision=1)
    page = visit("alice", f"/workspaces/{workspace_id}/change", java_script_enabled=False)
    page.get_by_label("Shared memory", exact=True).fill("1GiB")
    page.get_by_role("button", name="Say what will happen").click()
    expect(page.locator("#preview-said")).to_contain_text("made anew")
    expect(page.get_by_label("Shared memory", exact=True)).to_have_value("1GiB")
    page.locator("aside").get_by_role("button", name="Save changes").click()
    page.wait_for_url(f"**/workspaces/{workspace_id}")
    with store.read() as db:
        assert db.get_one(Workspace, workspace_id).shm_bytes == GIB


@pytest.mark.parametrize(("language", "theme"), [("en", "dark"), ("zh_Hans_CN", "light")])
def test_pages_have_no_barriers(language: str, theme: str, visit: Callable[..., Page], store: Store, cast: web.Cast,
                                launch: Callable[..., str], building: Operation) -> None:
    saw(store, cast.host, card(0), card(1, racks.H100), lost(2))
    runs, rests = launch("mine", owner="carol", gpus=(uuid(0),), revision=1), launch("rests", owner="carol",
                                                                                    phase="stopped", desired="stopped")
    with store.write() as db:
        failed = images.prepare(db, Actor(cast.carol, True), title="Broken", base=None, dockerfile=DOCKERFILE,
                                cuda_version=None, with_jupyter=True, now=web.NOON)
        failed.state, failed.ended_at, failed.log = "failed", web.NOON, "boom"
        failed.reason = {"code": "build_failed", "facts": {"line": 3, "command": "RUN false", "detail": "1"}}
        images.save(db, Actor(cast.carol, True), runs, title="Kept", team_id=None, now=web.NOON)
    no_barriers_on(visit("carol", "/", color_scheme=theme), language, (
        f"/workspaces/{runs}", f"/workspaces/{runs}/change", f"/workspaces/{rests}/change", f"/workspaces/{runs}/save",
        "/images", f"/images/{building.image_id}", f"/images/{failed.image_id}", f"/images/{cast.image}",
        f"/images/{cast.image}/delete", "/images/add", "/house/hosts"))
