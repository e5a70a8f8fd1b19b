"""The cards of the launch form in a real browser: what a person chose is theirs, whatever an update brings.

The dashboard is served from here on a database of the web tests; no engine and no agent is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from flask import Flask
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from sqlalchemy import select
from web import conftest as web
from web import racks
from web.racks import card, divided, lost, mig_uuid, saw, uuid
from werkzeug.serving import make_server

from browser.barriers import no_barriers_on
from browser.conftest import Cable
from webapp.domain.gpu_check import CheckState, Finding
from webapp.store.session import Store
from webapp.store.tables import GpuClaim, Workspace

pytestmark = pytest.mark.browser

seeded, cast, settings, store, clock = web.seeded, web.cast, web.settings, web.store, web.clock
make_app, launch = web.make_app, web.launch
POLLED_MS = 20_000      # the page asks every five seconds


@pytest.fixture
def address(make_app: Callable[..., Flask], cable: Cable) -> Iterator[str]:
    """Of the dashboard, as the browser reaches it."""
    server = make_server(cable.here, 0, Flask(__name__), threaded=True)
    url = f"http://{cable.here}:{server.port}"
    server.app = make_app(url=url)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield url
    server.shutdown()
    serving.join()


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """visit(who, path, …) = a page of somebody who has signed in, in a browser of their own."""
    contexts: list[BrowserContext] = []

    def arrive(who: str, path: str, **options: object) -> Page:
        context = browser.new_context(**{"base_url": address, "locale": "en-GB", **options})    # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.goto(f"/sign-in?next={path}")
        page.locator("[name=username]").fill(who)
        page.locator("[name=password]").fill(web.PASSWORD)
        page.locator("main button[type=submit]").click()
        page.wait_for_url(f"**{path}")
        return page

    yield arrive
    for context in contexts:
        context.close()


def tile(page: Page, key: str) -> Locator:
    return page.locator(f".b-pick[data-key$='{key}']")


def box(page: Page, key: str) -> Locator:
    return tile(page, key).locator("input")


def ask_again(page: Page) -> None:
    """As when somebody comes back to the tab."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def held(store: Store, name: str) -> list[str]:
    with store.read() as db:
        return list(db.scalars(
            select(GpuClaim.gpu_uuid).join(Workspace, Workspace.id == GpuClaim.workspace_id)
            .where(Workspace.name == name).order_by(GpuClaim.gpu_uuid)))


def test_updates_leave_what_was_chosen(visit: Callable[..., Page], store: Store, cast: web.Cast,
                                       launch: Callable[..., str]) -> None:
    cards = [card(n) for n in range(4)]
    saw(store, cast.host, *cards)
    page = visit("alice", "/launch")
    page.get_by_label("Name", exact=True).fill("mine")
    box(page, uuid(0)).check()
    box(page, uuid(1)).check()
    expect(page.get_by_label("Pick cards")).to_be_checked()          # a tick means these
    box(page, uuid(1)).focus()

    launch("bobs", owner="bob", gpus=(uuid(1),))
    saw(store, cast.host, cards[0], cards[1], lost(2), cards[3])
    expect(tile(page, uuid(2))).to_contain_text("Lost", timeout=POLLED_MS)
    expect(tile(page, uuid(1))).to_contain_text("bob")
    for key in (uuid(0), uuid(1)):
        expect(box(page, key)).to_be_checked()
        expect(box(page, key)).to_be_enabled()
    expect(box(page, uuid(2))).to_be_disabled()
    expect(box(page, uuid(3))).not_to_be_checked()
    expect(box(page, uuid(1))).to_be_focused()
    expect(tile(page, uuid(1)).get_by_text("taken just now")).to_be_visible()
    expect(tile(page, uuid(0)).locator(".late")).to_be_hidden()
    expect(page.locator("[data-sum=cards]")).to_have_text("GPU 1: not free any more")
    expect(page.get_by_label("Name", exact=True)).to_have_value("mine")

    page.locator("aside").get_by_role("button", name="Launch", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Not all of the cards you chose are free now.")
    for key in (uuid(0), uuid(1)):
        expect(box(page, key)).to_be_checked()
    with page.expect_response("**/poll/launch/gpus"):
        ask_again(page)
    saw(store, cast.host, *cards)
    ask_again(page)
    expect(tile(page, uuid(2))).to_contain_text("Free", timeout=POLLED_MS)
    for key in (uuid(0), uuid(1)):              # these ticks are the server's, which no click has made the person's
        expect(box(page, key)).to_be_checked()
        expect(box(page, key)).to_be_enabled()

    page.get_by_role("button", name="Launch on these").click()
    page.wait_for_url("**/workspaces/*")
    expect(page.locator("#gpus")).to_contain_text("GPU 0")
    assert len(held(store, "mine")) == 2 and uuid(1) not in held(store, "mine")


def test_card_that_was_taken_can_be_unticked_and_is_then_shut(visit: Callable[..., Page], store: Store, cast: web.Cast,
                                                              launch: Callable[..., str]) -> None:
    saw(store, cast.host, card(0), card(1))
    page = visit("alice", "/launch")
    box(page, uuid(0)).check()
    launch("bobs", owner="bob", gpus=(uuid(0),))
    ask_again(page)
    expect(tile(page, uuid(0))).to_contain_text("bob")
    box(page, uuid(0)).uncheck()
    page.get_by_label("Name", exact=True).focus()
    ask_again(page)
    expect(box(page, uuid(0))).to_be_disabled()


def test_ticked_slice_that_is_gone_stays_until_it_is_unticked(visit: Callable[..., Page], store: Store,
                                                              cast: web.Cast) -> None:
    saw(store, cast.host, divided(1), card(2))
    page = visit("alice", "/launch")
    box(page, mig_uuid(10)).check()
    saw(store, cast.host, card(1), card(2))
    ask_again(page)
    expect(tile(page, uuid(1))).to_contain_text("Free")
    expect(tile(page, mig_uuid(11))).to_have_count(0)
    expect(box(page, mig_uuid(10))).to_be_checked()
    expect(tile(page, mig_uuid(10)).get_by_text("not offered any more")).to_be_visible()
    box(page, mig_uuid(10)).uncheck()
    ask_again(page)
    expect(tile(page, mig_uuid(10))).to_have_count(0)


def test_ways_and_ticks_go_together(visit: Callable[..., Page], store: Store, cast: web.Cast) -> None:
    saw(store, cast.host, card(0), card(1, racks.H100))
    page = visit("alice", "/launch")
    summary, count = page.locator("[data-sum=gpus]").first, page.get_by_label("How many")
    expect(page.get_by_label("Any free")).to_be_checked()
    expect(summary).to_have_text("1 × GPU")
    page.get_by_label("Model").select_option(racks.H100)
    expect(summary).to_have_text(f"1 × {racks.H100}")
    box(page, uuid(0)).check()
    expect(summary).to_have_text(f"1 × {racks.A100}")
    expect(count).to_be_hidden()
    page.get_by_text("No GPU", exact=True).first.click()
    expect(box(page, uuid(0))).not_to_be_checked()
    expect(summary).to_have_text("No GPU")
    page.get_by_text("Pick cards", exact=True).click()
    expect(box(page, uuid(0))).to_be_checked()


@pytest.mark.parametrize("way", ["any", "these"])
def test_without_javascript_the_form_does_the_same(way: str, visit: Callable[..., Page], store: Store,
                                                   cast: web.Cast) -> None:
    saw(store, cast.host, card(0), card(1))
    page = visit("alice", "/launch", java_script_enabled=False)
    if way == "these":
        page.get_by_text("Pick cards", exact=True).click()
        box(page, uuid(1)).check()
    page.get_by_label("Name", exact=True).fill("plain")
    page.locator("aside").get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/workspaces/*")
    assert len(held(store, "plain")) == 1 and (way == "any" or held(store, "plain") == [uuid(1)])


@pytest.mark.parametrize("language", ["en", "zh_Hans_CN"])
def test_pages_with_cards_have_no_barriers(language: str, visit: Callable[..., Page], store: Store, cast: web.Cast,
                                           launch: Callable[..., str]) -> None:
    outside = card(5)
    saw(store, cast.host, card(0), card(1), lost(2), divided(3), racks.unified(4), outside, racks.without_uuid(6),
        others=racks.busy(outside))
    found = Finding(CheckState.PASSED, "torch_passed", {"torch": "2.9.0", "cuda": "12.8", "wanted": 1, "seen": 1})
    workspace_id = launch("mine", owner="carol", gpus=(uuid(0),), gpu_check=found.as_json(web.NOON))
    no_barriers_on(visit("carol", "/"), language, (
        "/launch", "/house/hosts", "/", "/house/workspaces", f"/workspaces/{workspace_id}"))


@pytest.mark.parametrize("language", ["en", "zh_Hans_CN"])
def test_tick_lies_in_its_tile_on_a_phone(language: str, visit: Callable[..., Page], store: Store,
                                          cast: web.Cast) -> None:
    saw(store, cast.host, *map(card, range(4)), simulated=True)
    page = visit("alice", "/")
    page.context.add_cookies([{"name": "berth_language", "value": language, "url": page.url}])
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/launch")
    for number in range(4):
        around = tile(page, uuid(number)).bounding_box()
        tick = tile(page, uuid(number)).locator(".box").bounding_box()
        assert around and tick
        assert tick["x"] + tick["width"] <= around["x"] + around["width"], f"the tick of {number} sticks out"
