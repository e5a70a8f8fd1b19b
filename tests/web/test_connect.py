"""The lines that people copy, for IPv6 too, and what times and amounts look like."""

from __future__ import annotations

import pytest
from flask import Flask

from webapp.web.connect import Way, jupyter_origin
from webapp.web.shown import duration, parse_moment, sentence


@pytest.fixture
def six() -> Way:
    return Way(workspace_id="abc", name="run", username="alice", host="2001:db8::1", port=20001, instance="lab1",
               host_public_key="ssh-ed25519 AAAA")


def test_ipv6_is_bracketed_where_a_port_or_a_path_follows(six: Way) -> None:
    assert six.ssh == "ssh -p 20001 alice@2001:db8::1"
    assert six.known_hosts.startswith("[2001:db8::1]:20001 ssh-ed25519 AAAA\nberth-lab1-abc ssh-ed25519")
    assert six.scp_in == "scp -P 20001 file.txt alice@[2001:db8::1]:"
    assert jupyter_origin("2001:db8::1", 20002) == "http://[2001:db8::1]:20002"
    assert jupyter_origin("gpu.lab", 20002) == "http://gpu.lab:20002"


@pytest.mark.parametrize(("seconds", "shown"), [
    (-3, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "9 s"), (59.9, "59 s"), (64, "1 min 04 s"),
    (3599, "59 min 59 s"), (3600, "1 h 00 min"), (86_399, "23 h 59 min"), (90_000, "1 d 1 h"),
])
def test_durations_have_units(app: Flask, seconds: float, shown: str) -> None:
    with app.test_request_context(headers={"Accept-Language": "en"}):
        assert duration(seconds) == shown


@pytest.mark.parametrize("value", [None, 5, "", "soon", "2026-11-24", "2026-11-24T12:00:00", [], {}])
def test_what_is_no_moment_is_none(value: object) -> None:
    assert parse_moment(value) is None


def test_sentence_survives_facts_that_are_missing_or_strange(app: Flask) -> None:
    with app.test_request_context():
        assert sentence("Port %(port)s on %(host)s", {"port": 5}) == "Port 5 on ?"
        assert sentence("All is 100 % fine", {}) == "All is 100 % fine"
