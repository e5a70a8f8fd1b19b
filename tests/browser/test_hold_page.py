"""The page of the hold in a real browser: decided by keyboard and mouse, in both languages, on a phone too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from unit.boxes import DOWN, UP
from unit.boxes import box as container
from web import conftest as web
from web import test_hold_pages as pages
from web.racks import card, saw, uuid

from browser import test_launch_cards as cards_page
from browser.barriers import no_barriers_on
from webapp.domain.container import PublishedPort
from webapp.store.session import Store
from webapp.store.tables import AgentState, HoldFinding

pytestmark = pytest.mark.browser

seeded, cast, settings, store, clock = web.seeded, web.cast, web.settings, web.store, web.clock
make_app, launch = web.make_app, web.launch
address, visit = cards_page.address, cards_page.visit
held, look = pages.held, pages.look


@pytest.fixture
def differing(look: pages.Look, launch: Callable[..., str], store: Store, cast: web.Cast) -> dict[str, str]:
    """Name → id: one runs and should not, one has a card that it does not hold, one is nobody's."""
    saw(store, cast.host, card(0), card(1))
    ids = {"training": pages.stopped(launch, "training"), "cards": launch("cards", revision=1)}
    others = container(UP, gpus=uuid(1), ports="jupyter=20003,ssh=20002")
    others = pages.of(ids["cards"], container(UP, gpus=uuid(1), ports="jupyter=20003,ssh=20002"),
                      ports=(PublishedPort(2222, "127.0.0.1", 20002), PublishedPort(8888, "127.0.0.1", 20003)))
    look(pages.of(ids["training"], container(UP)), others, pages.of("zzz", container(DOWN)))
    return ids


def test_decisions_are_kept_until_the_hold_is_ended(
    visit: Callable[..., Page], store: Store, differing: dict[str, str],
) -> None:
    page = visit("carol", "/hold")
    training = page.get_by_role("group", name="What is to become of training")
    training.get_by_text("Go by the database").click()
    page.get_by_role("button", name="Only save").click()
    expect(training.get_by_role("radio", name="Go by the database")).to_be_checked()

    page.locator("aside").get_by_role("button", name="End the hold").click()
    expect(page.get_by_text("nothing is decided about")).to_be_visible()
    expect(training.get_by_role("radio", name="Go by the database")).to_be_checked()
    cards = page.get_by_role("group", name="What is to become of cards")
    cards.get_by_role("radio").first.focus()
    page.keyboard.press("Space")
    page.get_by_label("Go by the database where nothing is decided").check()
    page.locator("aside").get_by_role("button", name="End the hold").click()

    expect(page.get_by_text("The hold is over")).to_be_visible()
    with store.read() as db:
        assert db.get_one(AgentState, 1).hold is None
        assert [left.workspace_id for left in db.query(HoldFinding)] == ["zzz"]       # never to be touched


@pytest.mark.parametrize(("language", "theme"), [("en", "dark"), ("zh_Hans_CN", "light")])
def test_page_has_no_barriers(
    language: str, theme: str, visit: Callable[..., Page], differing: dict[str, str],
) -> None:
    no_barriers_on(visit("carol", "/hold", color_scheme=theme), language, ["/hold"])
