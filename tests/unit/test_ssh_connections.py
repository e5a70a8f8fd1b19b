"""What is read of the processes of sshd: each connection once, with what is known of it, and never more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from webapp.domain.ssh_connections import Connection, is_connection_id, read

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFXm7kFHnWBbJSPzhqBbpyOtmJFoBLHWZeEGMmKQf7mE"
LISTENER = "s 20 8 1000 sshd: /usr/sbin/sshd -D -e -f /dev/shm/berth/sshd_config [listener] 0 of 64-128 startups"
OF_BOOKWORM = f"""up 200.50
{LISTENER}
s 30 20 11050 sshd: ada [priv]
s 31 30 11060 sshd: ada@pts/0
s 40 20 16050 sshd: ada [priv]
s 41 40 16051 sshd: ada
c 31 192.0.2.7
k 31 {KEY}
"""


def test_each_connection_is_told_once_the_longest_first() -> None:
    longest, tunnel = read(OF_BOOKWORM, now=NOW)
    assert (longest.id, longest.processes) == ("30-11050", ("30-11050", "31-11060"))
    assert longest.since == NOW - timedelta(seconds=90) and longest.address == "192.0.2.7"
    assert longest.fingerprint is not None and longest.fingerprint.startswith("SHA256:")
    assert tunnel == Connection(("40-16050", "41-16051"), NOW - timedelta(seconds=40), None, None)


def test_newer_server_has_one_process_for_each() -> None:
    output = f"up 200.5\n{LISTENER}\ns 30 20 11050 sshd-session: ada@notty\nc 30 2001:db8::7\n"
    (one,) = read(output, now=NOW)
    assert (one.processes, one.address) == (("30-11050",), "2001:db8::7")


@pytest.mark.parametrize("asked", [
    "s 30 20 11050 sshd: [accepted]", "s 30 20 11050 sshd: ada [priv]\ns 31 30 11051 sshd: ada [net]",
    "s 30 20 11050 sshd-session: unknown [preauth]",
])
def test_who_is_only_being_asked_is_not_in(asked: str) -> None:
    assert read(f"up 200.5\n{LISTENER}\n{asked}\n", now=NOW) == ()


@pytest.mark.parametrize("line", [
    "", "s", "s 1 2 3", "s x 20 5 sshd: ada", "s 30 20 -5 sshd: ada", "s 0 20 5 sshd: ada", "c 30 nonsense",
    "c 31 192.0.2.7; rm -rf /", "k 30 ssh-ed25519 AAAA", "k 30 command=\"x\" AAAA", "up 1e9999", "up -5", "\x00\ufffd",
    "s 30 30 5 sshd: ada", "s 99999999999999999999 20 5 sshd: ada", "c 77 192.0.2.7",
])
def test_lines_that_make_no_sense_change_nothing(line: str) -> None:
    good = "s 30 20 11050 sshd-session: ada@notty"
    assert read(f"up 200.5\n{line}\n{LISTENER}\n{line}\n{good}\n{line}\n", now=NOW)[-1:] in (
        read(f"up 200.5\n{LISTENER}\n{good}\n", now=NOW), ())
    assert len(read(f"up 200.5\n{LISTENER}\n{good}\n{line}\n", now=NOW)) <= 1


def test_processes_in_a_ring_end_nothing() -> None:
    ring = "s 30 31 5 sshd: a\ns 31 30 5 sshd: b\n"
    assert read(f"up 9\n{LISTENER}\n{ring}", now=NOW) == ()


def test_clock_that_was_set_back_gives_no_time_to_come() -> None:
    (one,) = read(f"up 1.0\n{LISTENER}\ns 30 20 999999 sshd-session: ada@notty\n", now=NOW)
    assert one.since == NOW


@pytest.mark.parametrize(("text", "is_one"), [
    ("30-11050", True), ("1-0", True), ("0-1", False), ("30", False), ("30-11050 31", False), ("-1-2", False),
    ("30-11050\n", False), ("$(id)-1", False), ("", False),
])
def test_ids_have_one_form(text: str, is_one: bool) -> None:
    assert is_connection_id(text) is is_one
