"""Is it up? Asked of real sockets on this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

import pytest

from webapp.agent import probes
from webapp.domain.workspace import Service

Talk = Callable[[socket.socket], object]
GREETING = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "TRY_SECONDS", 0.1)


@contextmanager
def listening(talk: Talk) -> Iterator[int]:
    """A server for one connection; the port it listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):     # the prober leaves when it knows enough
                connection.settimeout(5)
                talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def hang(connection: socket.socket) -> None:
    connection.recv(1024)       # until the prober gives up
    connection.recv(1024)


def answering(text: bytes) -> Talk:
    def talk(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.sendall(text)
    return talk


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_ssh_that_greets_answers_and_is_greeted_back() -> None:
    """A client that leaves without a word is an error in sshd's log."""
    heard: list[bytes] = []

    def greet(connection: socket.socket) -> None:
        connection.sendall(GREETING)
        heard.append(connection.recv(1024))

    with listening(greet) as port:
        assert probes.ssh_answers("127.0.0.1", port)
    assert heard[0].startswith(b"SSH-2.0-") and heard[0].endswith(b"\r\n")


def test_greeting_in_pieces_is_one() -> None:
    def stutter(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in GREETING:
            connection.sendall(bytes([byte]))
        connection.recv(1024)

    with listening(stutter) as port:
        assert probes.ssh_answers("127.0.0.1", port)


@pytest.mark.parametrize("talk", [
    pytest.param(lambda connection: None, id="accepted and closed, as Docker's proxy does"),
    pytest.param(hang, id="accepted and silent"),
    pytest.param(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), id="another program"),
    pytest.param(lambda connection: connection.sendall(b"SSH-"), id="cut short"),
])
def test_mere_connection_is_no_ssh(talk: Talk) -> None:
    with listening(talk) as port:
        assert not probes.ssh_answers("127.0.0.1", port)


@pytest.mark.parametrize(("status", "is_up"), [(b"200 OK", True), (b"404 Not Found", False), (b"302 Found", False)])
def test_jupyter_answers_with_200(status: bytes, is_up: bool) -> None:
    with listening(answering(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")) as port:
        assert probes.jupyter_answers("127.0.0.1", port) is is_up


@pytest.mark.parametrize("talk", [hang, answering(b"SSH-2.0-x\r\n"), answering(b"\x00" * 70_000), lambda _: None])
def test_other_answers_are_no_jupyter(talk: Talk) -> None:
    with listening(talk) as port:
        assert not probes.jupyter_answers("127.0.0.1", port)


@pytest.mark.parametrize("service", list(Service))
def test_closed_port_answers_nothing(service: Service) -> None:
    assert not probes.answers(service, "127.0.0.1", unused_port())


def test_pauses_grow_from_fifty_milliseconds_to_half_a_second() -> None:
    pauses = list(islice(probes.pauses(), 50))
    assert (pauses[0], pauses[-1]) == (0.05, 0.5)
    assert pauses == sorted(pauses)
