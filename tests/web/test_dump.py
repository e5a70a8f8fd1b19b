"""A copy of the database, its write-ahead log or its dump opens nothing: no secret is in it that could be used."""

from __future__ import annotations

import base64
import os
import re
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from web.conftest import CANARY, KEY, PASSWORD, SECRETS, Browser, Cast
from webapp.key_files import KEY_FILES
from webapp.settings import Settings
from webapp.store import copy_postgresql
from webapp.store.sealing import MARK
from webapp.store.session import Store
from webapp.store.tables import Workspace

NEW_PASSWORD = "canary of a newcomer's password"
WRONG_PASSWORD = "canary of a password with a typo"
PRIVATE_KEY = "b3BlbnNzaC1rZXktdjEAAAAACANARYofaprivatekeypastedbymistake"
FINDABLE = "Findable Newcomer"      # what is no secret is there: or nothing would be proven
Launch = Callable[..., str]


@pytest.fixture
def secrets(app: Flask, anyone: Browser, alice: Browser, carol: Browser, cast: Cast, launch: Launch,
            store: Store, settings: Settings) -> dict[str, str]:
    """What → text, after everything that brings a secret in or hands one out was done by its page."""
    link = re.search(r"/welcome/([\w-]+)", carol.post("/house/members/invite", {"role": "member"}).text)
    unused = re.search(r"/welcome/([\w-]+)", carol.post("/house/members/invite", {"role": "member"}).text)
    assert link and unused and link[1] != unused[1]
    newcomer = {"username": "newcomer", "display_name": FINDABLE, "password": NEW_PASSWORD, "again": NEW_PASSWORD}
    assert anyone.post(f"/welcome/{link[1]}", newcomer).status_code == 303
    assert Browser(app).sign_in("alice", WRONG_PASSWORD).status_code == 422
    pasted = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PRIVATE_KEY}\n-----END OPENSSH PRIVATE KEY-----\n"
    assert alice.post("/keys", {"title": "", "text": pasted}).status_code == 422
    assert alice.post("/keys", {"title": "", "text": KEY}).status_code == 303
    assert CANARY in alice.post(f"/workspaces/{launch()}/open").text
    made = _launched_by_the_page(alice, store, cast.image)
    return {
        "a used invite": link[1], "an open invite": unused[1], "a password": PASSWORD, "a new password": NEW_PASSWORD,
        "a wrong password": WRONG_PASSWORD, "a pasted private key": PRIVATE_KEY, "a token of Jupyter": CANARY,
        "a host key": SECRETS.host_private_key, **made, **_cookies(alice), **_files(settings),
    }


def _launched_by_the_page(browser: Browser, store: Store, image: str) -> dict[str, str]:
    answer = browser.post("/launch", {"name": "by-page", "image_id": image, "cpus": "1", "memory": "1GiB",
                                      "gpu_way": "none"})
    assert answer.status_code == 303
    with store.write() as db:
        db.get_one(Workspace, answer.headers["Location"].rsplit("/", 1)[1]).phase = "running"
    opened = browser.post(f"{answer.headers['Location']}/open").text
    token = re.search(r'name="token" value="([^"]+)"', opened)
    assert token
    return {"a token that Berth made": token[1]}


def _cookies(browser: Browser) -> dict[str, str]:
    cookies = browser.client._cookies       # its own book-keeping; there is no public list
    found = {f"the cookie {cookie.key}": cookie.value for cookie in cookies.values() if len(cookie.value) >= 20}
    assert found
    return found


def _files(settings: Settings) -> dict[str, str]:
    return {f"the file {name}": (settings.state_dir / name).read_text().strip() for name in KEY_FILES}


def copies(store: Store, folder: Path) -> dict[str, bytes]:
    """Every form in which the database gets into other hands, as bytes that can be searched."""
    path = store.sqlite_path
    if path is None:
        dump = folder / "dump"
        copy_postgresql.dump(store, dump)
        program = copy_postgresql.find("pg_restore", copy_postgresql.major(store))
        return {"pg_dump": subprocess.run([program, "--file=-", str(dump)], capture_output=True, check=True).stdout}
    log = path.with_name(f"{path.name}-wal")
    assert log.stat().st_size > 0, "the log was emptied before it could be looked at"
    found = {file.name: file.read_bytes() for file in (path, log)}
    with closing(sqlite3.connect(path)) as connection:
        found["iterdump"] = "\n".join(connection.iterdump()).encode()
    return found


def spellings(secret: str) -> list[bytes]:
    """As it is, and as somebody might store it who means to hide it and does not."""
    raw = secret.encode()
    return [raw, raw.hex().encode(), base64.b64encode(raw).rstrip(b"="), base64.urlsafe_b64encode(raw).rstrip(b"=")]


def test_no_usable_secret_is_in_any_copy(secrets: dict[str, str], store: Store, tmp_path: Path) -> None:
    found = copies(store, tmp_path)
    leaks: list[Any] = [(what, where) for what, secret in secrets.items() for where, content in found.items()
                        if any(spelling in content for spelling in spellings(secret))]
    assert leaks == []
    whole = b"".join(found.values())
    assert FINDABLE.encode() in whole and MARK.encode() in whole and b"$argon2id$" in whole


def test_key_files_are_nobody_elses(app: Flask, launch: Launch, settings: Settings) -> None:
    launch()
    for name in KEY_FILES:
        assert os.stat(settings.state_dir / name).st_mode & 0o027 == 0
