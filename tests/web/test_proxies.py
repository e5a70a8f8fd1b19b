"""The client's address behind reverse proxies: nobody can choose their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask

from web.conftest import Browser
from webapp.store.session import Store
from webapp.store.tables import BrowserSession
from webapp.web.proxies import BehindProxies

TRUSTED = "127.0.0.1/32,10.0.0.0/24,fd00::/8"


def client(peer: str, forwarded: str | None, trusted: str = TRUSTED) -> str:
    seen: list[str] = []
    environ = {"REMOTE_ADDR": peer, **({} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded})}
    BehindProxies(lambda environ, _: seen.append(environ["REMOTE_ADDR"]) or [], trusted)(environ, None)
    return seen[0]


@pytest.mark.parametrize(("peer", "forwarded", "is_from"), [
    ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
    ("127.0.0.1", "1.1.1.1, 192.0.2.7", "192.0.2.7"),                   # the client wrote 1.1.1.1 itself
    ("127.0.0.1", "192.0.2.7, 10.0.0.9", "192.0.2.7"),                  # through two of ours
    ("127.0.0.1", "192.0.2.7, 8.8.8.8, 10.0.0.9", "8.8.8.8"),
    ("192.0.2.9", "1.1.1.1", "192.0.2.9"),                              # not ours: it is not believed
    ("127.0.0.1", None, "127.0.0.1"), ("127.0.0.1", "", "127.0.0.1"),
    ("127.0.0.1", "unknown", "127.0.0.1"), ("127.0.0.1", "192.0.2.7, _hidden", "127.0.0.1"),
    ("127.0.0.1", "192.0.2.7:4711", "192.0.2.7"), ("127.0.0.1", "[2001:db8::7]:4711", "2001:db8::7"),
    ("fd00::1", "2001:db8::7", "2001:db8::7"), ("::ffff:10.0.0.1", "::ffff:192.0.2.7", "192.0.2.7"),
    ("127.0.0.1", "10.0.0.1, 10.0.0.2", "10.0.0.1"), ("", "192.0.2.7", ""),
    ("127.0.0.1", "192.0.2.7\n1.1.1.1", "127.0.0.1"), ("127.0.0.1", "9" * 9000, "127.0.0.1"),
])
def test_address_is_the_last_that_no_proxy_of_ours_has(peer: str, forwarded: str | None, is_from: str) -> None:
    assert client(peer, forwarded) == is_from


def test_without_proxies_nobody_is_believed() -> None:
    assert client("127.0.0.1", "192.0.2.7", "") == "127.0.0.1"


def test_tries_are_counted_by_the_address_behind_the_proxy(make_app: Callable[..., Flask]) -> None:
    stranger = Browser(make_app(trusted_proxies="127.0.0.1/32"))
    def tries(address: str) -> set[int]:
        return {stranger.post("/sign-in", {"username": f"name-{address}-{n}", "password": "some wrong words"},
                              headers={"X-Forwarded-For": address}).status_code for n in range(61)}
    assert tries("192.0.2.7") == {422, 429}
    assert stranger.post("/sign-in", {"username": "x", "password": "some wrong words"},
                         headers={"X-Forwarded-For": "192.0.2.8"}).status_code == 422
    assert stranger.post("/sign-in", {"username": "x", "password": "some wrong words"},
                         headers={"X-Forwarded-For": "192.0.2.9, 192.0.2.7"}).status_code == 429


def test_session_shows_the_address_behind_the_proxy(make_app: Callable[..., Flask], store: Store) -> None:
    browser = Browser(make_app(trusted_proxies="127.0.0.1/32"))
    browser.client.environ_base["HTTP_X_FORWARDED_FOR"] = "192.0.2.7"
    browser.sign_in("alice")
    with store.read() as db:
        assert db.query(BrowserSession).one().address == "192.0.2.7"
