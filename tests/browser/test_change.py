"""A workspace is changed in the browser, on real Docker and simulated cards: limits live, all else by a move."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.sshkeys import KeyPair, new_key
from faults.waiting import until
from playwright.sync_api import BrowserContext, Page, expect

from browser import test_demo
from browser.conftest import Running
from browser.test_images import no_barriers
from browser.test_walk import READY_MS, Shell

pytestmark = [pytest.mark.docker, pytest.mark.browser]

demo, browser_context_args = test_demo.demo, test_demo.browser_context_args
CPU_QUOTA = "cat /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
RUNS = "pgrep -x sleep >/dev/null && echo runs || echo ended"


@pytest.mark.timeout(600)
def test_what_was_said_before_is_what_happens(
    demo: Running, new_context: Callable[[], BrowserContext], tmp_path: Path,
) -> None:
    page = test_demo._signed_in(new_context().new_page(), demo, "bob")
    key = new_key(tmp_path / "id")
    page.goto("/launch")
    page.get_by_label("Name", exact=True).fill("training")
    page.get_by_label("CPU", exact=True).fill("2")
    page.get_by_label("Memory", exact=True).fill("1GiB")
    page.get_by_label("Public key").fill(key.public)
    for card in ("GPU 0", "GPU 1"):
        test_demo._tile(page, card).click()
    page.locator("main").get_by_role("button", name="Launch", exact=True).first.click()
    ready(page)
    shell = Shell(page, key, tmp_path)
    port = shell.port
    shell.run("echo mine > /opt/berth/py/installed; nohup sleep 3000 >/dev/null 2>&1 &")

    change(page)
    page.get_by_label("CPU", exact=True).fill("many")
    expect(page.locator("#preview-said")).to_contain_text("It cannot be changed to this.")
    page.get_by_label("CPU", exact=True).fill("1")
    expect(page.locator("#preview-said")).to_contain_text("At once, while it runs")
    page.get_by_role("button", name="Save changes").first.click()
    expect(page.get_by_text("Changed. Programs in it go on.")).to_be_visible()
    until(lambda: shell.run(CPU_QUOTA).startswith("100000"), seconds=30, what=lambda: shell.run(CPU_QUOTA))
    assert shell.run(RUNS) == "runs\n"

    change(page)
    page.get_by_label("Shared memory", exact=True).fill("128MiB")
    expect(page.locator("#preview")).to_contain_text("Programs that run in it end.")
    expect(page.locator("#preview-size")).to_contain_text(re.compile(r"To be copied\s*[\d.]+ (B|[KMG]iB)"),
                                                          timeout=READY_MS)
    no_barriers(page)
    page.get_by_role("button", name="Save changes").first.click()
    moved(page)
    no_barriers(page)
    shell = Shell(page, key, tmp_path)
    assert shell.port == port
    assert shell.run(f"df --output=size /dev/shm | tail -n 1; cat /opt/berth/py/installed; {RUNS}").split() == [
        str(128 * 1024), "mine", "ended"]

    change(page)
    page.get_by_text("Pick cards", exact=True).click()
    for card in ("GPU 0", "GPU 1"):
        expect(test_demo._tile(page, card)).to_contain_text("Its own")
        expect(test_demo._tile(page, card).locator("input")).to_be_checked()
    test_demo._tile(page, "GPU 0").click()
    test_demo._tile(page, "GPU 3").click()
    uuids = [test_demo._tile(page, card).locator("input").get_attribute("value") for card in ("GPU 1", "GPU 3")]
    expect(page.locator("#preview-said")).to_contain_text("made anew")
    page.get_by_role("button", name="Save changes").first.click()
    moved(page)
    assert listed(page, key, tmp_path) == uuids
    assert Shell(page, key, tmp_path).run("cat /opt/berth/py/installed") == "mine\n"

    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Start")).to_be_visible(timeout=READY_MS)
    change(page)
    page.get_by_text("No GPU", exact=True).click()
    expect(page.locator("#preview-said")).to_contain_text("It is made anew at its next start")
    page.get_by_role("button", name="Save and start").first.click()
    ready(page)
    assert listed(page, key, tmp_path) == []
    assert Shell(page, key, tmp_path).run("cat /opt/berth/py/installed") == "mine\n"


def change(page: Page) -> None:
    page.locator("#do-change").click()
    expect(page.locator("#preview-said")).to_contain_text("Nothing changes so far.")


def ready(page: Page) -> None:
    expect(page.locator("#head")).to_contain_text("Running", timeout=READY_MS)
    expect(page.get_by_role("button", name="Open Jupyter")).to_be_visible(timeout=READY_MS)


def moved(page: Page) -> None:
    expect(page.locator("#head")).to_contain_text("Moving", timeout=READY_MS)
    expect(page.locator("#steps")).to_contain_text("What is in it is kept")
    ready(page)


def listed(page: Page, key: KeyPair, folder: Path) -> list[str]:
    """UUIDs of the cards that are seen inside."""
    text = Shell(page, key, folder).run("nvidia-smi -L 2>/dev/null || true")
    return re.findall(r"GPU-[0-9a-f-]{36}", text)
