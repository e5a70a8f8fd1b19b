"""An administrator makes an image of a Dockerfile in the browser: its broken line, its mending, a launch from it; and
what was installed in a workspace becomes an image of its owner's."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from faults.sshkeys import KeyPair, new_key
from playwright.sync_api import BrowserContext, Page, expect

from browser.barriers import no_barriers
from browser.conftest import Running
from browser.test_walk import READY_MS, Shell, _remove, make_account
from webapp.engines.recipe import local_base_reference

pytestmark = [pytest.mark.docker, pytest.mark.browser]

BUILD_MS = 300_000
BROKEN = """FROM {base}
RUN echo made-by-hand > /etc/lab-release
RUN pip-of-nowhere install speed
ENV LAB={lab}
"""
MENDED = "RUN for n in 1 2 3 4 5 6; do echo tick $n; sleep 1; done; echo mended >> /etc/lab-release\n"


@pytest.mark.timeout(900)
def test_dockerfile_is_mended_and_launched(
    page: Page, context: BrowserContext, berth: Running, tmp_path: Path,
) -> None:
    make_account(page, berth.invitation("--admin"), "ben")
    key, lab = new_key(tmp_path / "id"), uuid4().hex        # what was built before lies in the engine's cache

    page.goto("/images")
    page.get_by_role("link", name="Add an image").click()
    page.get_by_label("Name", exact=True).fill("Lab tools")
    page.get_by_text("A Dockerfile", exact=True).click()
    expect(page.get_by_label("Base image")).to_be_hidden()
    page.get_by_label("Dockerfile", exact=True).fill(BROKEN.format(base=local_base_reference(), lab=lab))
    page.get_by_label("With JupyterLab").uncheck()
    page.get_by_role("button", name="Prepare it").click()

    page.wait_for_url(re.compile(r"/images/\w+$"))
    address = page.url
    expect(page.locator("#outcome")).to_contain_text("Line 3:", timeout=BUILD_MS)       # nobody presses reload
    expect(page.locator("#broken-line")).to_have_text("RUN pip-of-nowhere install speed")
    expect(page.locator("#log-text")).to_contain_text("pip-of-nowhere")
    expect(page.locator("#step-base")).to_have_attribute("data-s", "bad")
    no_barriers(page)

    text = page.get_by_role("textbox", name="Dockerfile")
    text.fill(text.input_value().replace("RUN pip-of-nowhere install speed\n", f"ENV LAB={lab}\n{MENDED}"))
    page.get_by_role("button", name="Prepare again").click()
    expect(page.locator("#log-text")).to_contain_text("tick 2", timeout=BUILD_MS)       # while it is being built
    expect(page.locator("#step-base")).to_have_attribute("data-s", "now")
    expect(page.locator("#step-build")).to_have_attribute("data-s", "now", timeout=BUILD_MS)
    page.goto("/images")
    row = page.locator("tr", has=page.get_by_role("link", name="Lab tools"))
    expect(row.get_by_text("Preparing", exact=True)).to_be_visible()
    expect(row.get_by_text("Ready", exact=True)).to_be_visible(timeout=BUILD_MS)        # here neither
    no_barriers(page)

    page.goto(address)
    page.get_by_role("link", name="Launch workspace").click()
    expect(page.get_by_label(re.compile("^Lab tools"))).to_be_checked()
    page.get_by_label("Name", exact=True).fill("tools")
    page.get_by_label("Memory", exact=True).fill("1GiB")
    page.get_by_label("Public key").fill(key.public)
    page.locator("main").get_by_role("button", name="Launch", exact=True).first.click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible(timeout=READY_MS)
    expect(page.locator("#head")).to_contain_text("Running", timeout=READY_MS)
    shell = Shell(page, key, tmp_path)
    assert shell.run("cat /etc/lab-release; printenv LAB") == f"made-by-hand\nmended\n{lab}\n"

    page.goto(f"{address}/delete")
    expect(page.get_by_text("ben (1 workspace)")).to_be_visible()
    expect(page.get_by_role("button", name="Delete for good")).to_be_disabled()

    save_and_launch_again(page, shell, key, tmp_path)
    for name in ("again", "tools"):
        page.goto("/")
        page.get_by_role("link", name=name, exact=True).click()
        _remove(page, name)
    for title in ("Tools with speed", "Lab tools"):
        delete(page, title)


def save_and_launch_again(page: Page, shell: Shell, key: KeyPair, tmp_path: Path) -> None:
    shell.run("echo deep > /opt/berth/py/installed; echo private > ~/private")
    page.goto("/")
    page.get_by_role("link", name="tools", exact=True).click()
    page.locator("#do-save").click()
    expect(page.locator("#save-size")).to_contain_text(re.compile(r"[\d.]+ (B|[KMG]iB)"), timeout=READY_MS)
    no_barriers(page)
    page.get_by_label("Name", exact=True).fill("Tools with speed")
    page.get_by_role("button", name="Save as image").click()
    expect(page.locator("#saving")).to_contain_text("Saved as the image “Tools with speed”.", timeout=BUILD_MS)
    page.get_by_role("link", name="Launch from it").click()
    page.get_by_label("Name", exact=True).fill("again")
    page.get_by_label("Memory", exact=True).fill("1GiB")
    page.locator("main").get_by_role("button", name="Launch", exact=True).first.click()
    expect(page.locator("#head")).to_contain_text("Running", timeout=READY_MS)
    again = Shell(page, key, tmp_path)
    assert again.run("cat /opt/berth/py/installed /etc/lab-release") == "deep\nmade-by-hand\nmended\n"


def delete(page: Page, title: str) -> None:
    page.goto("/images")
    page.get_by_role("link", name=title, exact=True).click()
    page.locator("#do-delete").click()
    page.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_role("link", name=title, exact=True)).to_have_count(0, timeout=READY_MS)
