"""The whole walk of a newcomer: from the one-time link to a home that survives its workspace."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import paramiko
import pytest
from faults.sshkeys import KeyPair, new_key
from playwright.sync_api import BrowserContext, Locator, Page, expect

from browser.conftest import Running

pytestmark = [pytest.mark.docker, pytest.mark.browser]

READY_MS = 90_000
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return new_key(tmp_path_factory.mktemp("key") / "id")


@pytest.mark.timeout(600)
def test_newcomer_gets_in_by_browser_openssh_and_paramiko_and_keeps_the_home(
    page: Page, context: BrowserContext, berth: Running, key: KeyPair, tmp_path: Path,
) -> None:
    make_account(page, berth.first_admin_link, "ada")

    page.goto("/launch")
    page.get_by_label("Name", exact=True).fill("one")
    page.get_by_label("Memory", exact=True).fill("8g")
    page.get_by_label("Public key").fill(key.public)
    _launch(page)
    expect(page.get_by_label("Memory", exact=True)).to_have_value("8g")         # what was typed stays
    expect(page.get_by_label("Public key")).to_have_value(re.compile("^ssh-ed25519 "))
    expect(page.locator("#memory-error, [id$=memory] ~ .b-err, .b-err").first).to_contain_text("GiB")
    page.get_by_label("Memory", exact=True).fill("1GiB")
    _launch(page)

    expect(page.get_by_role("button", name="Open Jupyter")).to_be_visible(timeout=READY_MS)
    for step in ("Image is on the host", "Container is made", "SSH answers", "Jupyter answers"):
        expect(page.locator("#steps")).to_contain_text(re.compile(rf"{step}\s*\d+(\.\d)? s"))
    shell = Shell(page, key, tmp_path)

    assert re.fullmatch(r"ada\n1000[0-9]\n/home/ada\n", shell.run("id -un; id -u; pwd"))
    assert shell.by_paramiko("id -un") == "ada\n"
    shell.run("echo kept > ~/kept.txt; touch /opt/berth/py/layer")

    _run_a_notebook_cell(page, context, berth)

    port, fingerprint = shell.port, _fingerprint(page)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Start")).to_be_visible(timeout=READY_MS)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("button", name="Open Jupyter")).to_be_visible(timeout=READY_MS)
    again = Shell(page, key, tmp_path)
    assert (again.port, _fingerprint(page)) == (port, fingerprint)
    assert again.run("cat ~/kept.txt; ls /opt/berth/py/layer") == "kept\n/opt/berth/py/layer\n"

    _remove(page, "one")
    page.goto("/launch")
    page.get_by_label("Name", exact=True).fill("two")
    _launch(page)
    expect(page.get_by_role("button", name="Open Jupyter")).to_be_visible(timeout=READY_MS)
    fresh = Shell(page, key, tmp_path)
    assert fresh.run("cat ~/kept.txt; ls /opt/berth/py/layer 2>&1 | tail -n 1").startswith("kept\nls: cannot access")
    _listen_for_cookies(page, context, berth, fresh)
    _remove(page, "two")


class Shell:
    """SSH with what the page shows and nothing else: the config block and the known_hosts lines."""

    def __init__(self, page: Page, key: KeyPair, folder: Path) -> None:
        block = _copied(page, "Block for ~/.ssh/config")
        self.alias = re.search(r"^Host (\S+)$", block, re.MULTILINE)[1]         # type: ignore[index]
        self.port = int(re.search(r"Port (\d+)", block)[1])                     # type: ignore[index]
        self.host = re.search(r"HostName (\S+)", block)[1]                      # type: ignore[index]
        self.user = re.search(r"User (\S+)", block)[1]                          # type: ignore[index]
        self._known = folder / "known_hosts"
        page.locator("#host-key summary").click()
        self._known.write_text(_copied(page, "Lines for ~/.ssh/known_hosts") + "\n")
        page.locator("#host-key summary").click()
        self._config = folder / "config"
        self._config.write_text(f"{block}\n    IdentityFile {key.path}\n    UserKnownHostsFile {self._known}\n"
                                "    StrictHostKeyChecking yes\n    BatchMode yes\n")
        self._key = key

    def run(self, command: str) -> str:
        done = subprocess.run(["ssh", "-F", str(self._config), self.alias, command], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def by_paramiko(self, command: str) -> str:
        with paramiko.SSHClient() as client:
            client.load_host_keys(str(self._known))
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(self.host, self.port, self.user, key_filename=str(self._key.path), allow_agent=False,
                           look_for_keys=False, timeout=30)
            _, out, _ = client.exec_command(command, timeout=30)
            return out.read().decode()


def make_account(page: Page, link: str, username: str) -> None:
    page.goto(link)
    page.get_by_label("User name").fill(username)
    page.get_by_label("Your name").fill(username.title())
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make my account").click()
    expect(page.get_by_role("link", name="Workspaces").first).to_be_visible()


def _launch(page: Page) -> None:
    page.locator("main").get_by_role("button", name="Launch", exact=True).first.click()
    page.wait_for_load_state()


def _copied(page: Page, label: str) -> str:
    """Text of a copy field, as it would be copied."""
    field: Locator = page.get_by_label(label, exact=True).first
    text = field.evaluate("e => (e.value !== undefined ? e.value : e.textContent)")
    return str(text).strip("\n")


def _fingerprint(page: Page) -> str:
    found = re.search(r"SHA256:\S+", page.locator("#host-key").text_content() or "")
    assert found
    return found[0]


def _run_a_notebook_cell(page: Page, context: BrowserContext, berth: Running) -> None:
    with context.expect_page() as opened:
        page.get_by_role("button", name="Open Jupyter").click()
    lab = opened.value
    lab.wait_for_url(re.compile(rf"^http://{re.escape(berth.workspace_host)}:\d+/lab(\?reset)?$"), timeout=READY_MS)
    lab.locator(".jp-LauncherCard[data-category=Notebook]", has_text="Python 3").click(timeout=READY_MS)
    cell = lab.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    cell.click(timeout=READY_MS)
    cell.fill("import sys; print(6 * 7, sys.prefix)")
    output = lab.locator(".jp-OutputArea-output").first
    deadline = time.monotonic() + READY_MS / 1000
    while not output.is_visible() and time.monotonic() < deadline:
        cell.press("Shift+Enter")       # JupyterLab passes a cell over while its kernel is still starting
        lab.wait_for_timeout(2_000)
    expect(output).to_contain_text("42 /opt/berth/py")
    lab.close()


def _remove(page: Page, name: str) -> None:
    page.locator("#do-remove").click()
    expect(page.get_by_text("The home folder /home/")).to_be_visible()       # said before
    page.get_by_label(f"Type its name to confirm: {name}").fill(name)
    page.get_by_role("button", name="Remove for good").click()
    page.wait_for_url("/")
    expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0, timeout=READY_MS)


RECORDER = r"""
import http.server, json
class Recorder(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open("/home/ada/seen.jsonl", "a") as out: out.write(json.dumps(dict(self.headers)) + "\n")
        self.send_response(200); self.end_headers(); self.wfile.write(b"recorded")
    do_POST = do_GET
http.server.HTTPServer(("0.0.0.0", 8888), Recorder).serve_forever()
"""


def _listen_for_cookies(page: Page, context: BrowserContext, berth: Running, shell: Shell) -> None:
    """A member's program takes Jupyter's port and writes down what browsers send it."""
    names = {cookie["name"] for cookie in context.cookies(berth.url)}
    values = {cookie["value"] for cookie in context.cookies(berth.url)}
    assert names
    shell.run(f"cat > ~/recorder.py <<'EOF'\n{RECORDER}\nEOF\n"
              "pkill -f '[j]upyterlab'; sleep 0.3; nohup python ~/recorder.py >/dev/null 2>&1 & sleep 1")
    with context.expect_page() as opened:
        page.get_by_role("button", name="Open Jupyter").click()
    visitor = opened.value
    expect(visitor.get_by_text("recorded")).to_be_visible(timeout=READY_MS)
    visitor.reload()
    visitor.close()
    deadline = time.monotonic() + 20
    seen = ""
    while time.monotonic() < deadline and seen.count("\n") < 1:
        seen = shell.run("cat ~/seen.jsonl 2>/dev/null || true")
    assert "User-Agent" in seen
    assert not [text for text in (*names, *values) if text in seen]
