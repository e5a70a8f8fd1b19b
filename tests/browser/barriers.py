"""What keeps people out of a page: what axe finds, and what is wider than the screen."""

from __future__ import annotations

from collections.abc import Iterable
from html import unescape

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

WIDTHS = (390, 1440)        # the last one stays


def no_barriers(page: Page) -> None:
    """Of the page as it is, on a phone and on a desk."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        violations = Axe().run(page).response["violations"]
        assert [(each["id"], unescape(each["nodes"][0]["html"])) for each in violations] == [], (page.url, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (page.url, width)


def no_barriers_on(page: Page, language: str, paths: Iterable[str]) -> None:
    page.context.add_cookies([{"name": "berth_language", "value": language, "url": page.url}])
    for path in paths:
        page.goto(path)
        expect(page.locator("html")).to_have_attribute("lang", language.replace("_", "-"))
        no_barriers(page)
