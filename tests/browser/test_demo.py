"""The walk of somebody who tries Berth: `./run demo`, two simulated cards, and what the other member sees of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.sshkeys import new_key
from playwright.sync_api import BrowserContext, Locator, Page, expect

from browser.conftest import Cable, Running, started
from browser.test_walk import READY_MS, Shell

pytestmark = [pytest.mark.docker, pytest.mark.browser]

UPDATE_MS = 20_000      # the page asks every five seconds which cards are free
CHOSEN = ("GPU 1", "GPU 3")
OTHERS = ("GPU 0", "GPU 2")


@pytest.fixture(scope="session")
def demo(
    engine_url: str, workspace_image: str, cable: Cable, tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    """By what `./run demo` ends in; the script itself would make the environment anew that this test runs in, if need
    be, and has tests of its own."""
    with started([Path(sys.executable).with_name("berth"), "demo"], engine_url, cable,
                 tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="session")
def browser_context_args(demo: Running) -> dict[str, Any]:
    """In place of those for an ordinary Berth."""
    return {"base_url": demo.url, "locale": "en-GB", "viewport": {"width": 1440, "height": 900}}


@pytest.mark.timeout(300)
def test_newcomer_launches_on_two_cards_and_sees_only_those(
    demo: Running, new_context: Callable[[], BrowserContext], tmp_path: Path,
) -> None:
    bob, alice = (_signed_in(new_context().new_page(), demo, name) for name in ("bob", "alice"))
    key = new_key(tmp_path / "id")

    bob.goto("/launch")
    bob.get_by_label("Name", exact=True).fill("two-cards")
    bob.get_by_label("Memory", exact=True).fill("1GiB")
    bob.get_by_label("Public key").fill(key.public)
    expect(bob.locator(".b-pick")).to_have_count(4)
    expect(bob.locator(".b-pick", has_text="simulated")).to_have_count(4)
    for card in CHOSEN:
        _tile(bob, card).click()
    uuids = [_tile(bob, card).locator("input").get_attribute("value") for card in CHOSEN]
    bob.locator("main").get_by_role("button", name="Launch", exact=True).first.click()
    expect(bob.get_by_role("button", name="Open Jupyter")).to_be_visible(timeout=READY_MS)

    listed = Shell(bob, key, tmp_path).run("nvidia-smi -L")
    assert re.findall(r"GPU-[0-9a-f-]{36}", listed) == uuids

    alice.goto("/launch")
    for card in CHOSEN:
        expect(_tile(alice, card)).to_contain_text("bob")
        expect(_tile(alice, card).locator("input")).to_be_disabled()
    for card in OTHERS:
        expect(_tile(alice, card)).to_contain_text("Free")

    bob.get_by_role("button", name="Stop").click()
    expect(bob.get_by_role("button", name="Start")).to_be_visible(timeout=READY_MS)
    for card in CHOSEN:     # nobody presses reload
        expect(_tile(alice, card)).to_contain_text("Free", timeout=UPDATE_MS)
        expect(_tile(alice, card).locator("input")).to_be_enabled()


def _signed_in(page: Page, demo: Running, username: str) -> Page:
    """With the name and the password that the start has printed."""
    printed = re.search(rf"^ +{username} +(\S+) +an? (?:administrator|member)$", demo.said(), re.MULTILINE)
    assert printed, demo.said()
    assert "nothing computes on them" in demo.said()
    page.goto("/sign-in")
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(printed[1])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name="Workspaces").first).to_be_visible()
    return page


def _tile(page: Page, card: str) -> Locator:
    return page.locator(".b-pick", has=page.get_by_text(card, exact=True))
