"""A proxy before docker.sock that loses, delays or repeats one named call.

    with LossyProxy(upstream="/var/run/docker.sock", path=tmp_path / "proxy.sock") as proxy:
        proxy.lose_answer("POST", r"/containers/create")
        engine = open_engine(proxy.url, …)

One request per connection: the proxy asks the engine to close after each, so the end of an answer is the end of the
stream. Upgraded connections (exec, attach) are passed through in both directions.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_SECONDS = 30.0


@dataclass
class Fault:
    method: str
    path: re.Pattern[str]
    kind: str               # "answer": carried out, answer lost; "request": never arrives; "delay"; "repeat"
    seconds: float = 0.0
    times: int = 1


class LossyProxy:
    def __init__(self, upstream: str, path: Path | None = None) -> None:
        self._folder = tempfile.mkdtemp(prefix="proxy-")    # a path under pytest's own can be too long for a socket
        self.path = str(path or Path(self._folder, "docker.sock"))
        self.url = f"unix://{self.path}"
        self.seen: list[tuple[str, str]] = []               # (method, path) of every request, in order
        self._upstream = upstream.removeprefix("unix://")
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._threads: list[threading.Thread] = []

    def lose_answer(self, method: str, path: str, *, times: int = 1) -> None:
        """The call is carried out and the connection ends without an answer."""
        self._faults.append(Fault(method, re.compile(path), "answer", times=times))

    def lose_request(self, method: str, path: str, *, times: int = 1) -> None:
        """The connection ends before the engine has heard of it."""
        self._faults.append(Fault(method, re.compile(path), "request", times=times))

    def delay(self, method: str, path: str, seconds: float, *, times: int = 1) -> None:
        self._faults.append(Fault(method, re.compile(path), "delay", seconds, times))

    def repeat(self, method: str, path: str, *, times: int = 1) -> None:
        """The engine gets it twice; the answer is that to the second."""
        self._faults.append(Fault(method, re.compile(path), "repeat", times=times))

    def __enter__(self) -> Self:
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in list(self._threads):
            thread.join(timeout=2)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, target: object, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)   # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            client.settimeout(_SECONDS)
            head, body = _read_request(client)
            method, path = head.split(b" ", 2)[:2]
            self.seen.append((method.decode(), path.decode()))
            fault = self._fault_for(method.decode(), path.decode())
            if fault and fault.kind == "request":
                return
            if fault and fault.kind == "delay":
                time.sleep(fault.seconds)
            if fault and fault.kind == "repeat":
                self._answer(head, body)
            if b"upgrade:" in head.lower():
                self._pass_through(client, head + body)
                return
            if fault and fault.kind == "answer":
                self._answer(head, body)
                return
            self._stream(client, head, body)

    def _fault_for(self, method: str, path: str) -> Fault | None:
        with self._lock:
            matching = (f for f in self._faults if f.times and f.method == method and f.path.search(path))
            fault = next(matching, None)
            if fault:
                fault.times -= 1
            return fault

    def _answer(self, head: bytes, body: bytes) -> bytes:
        """The engine's whole answer."""
        with self._connected() as engine:
            engine.sendall(_closing(head) + body)
            return b"".join(iter(lambda: engine.recv(65536), b""))

    def _stream(self, client: socket.socket, head: bytes, body: bytes) -> None:
        with self._connected() as engine:
            engine.sendall(_closing(head) + body)
            for chunk in iter(lambda: engine.recv(65536), b""):
                client.sendall(chunk)

    def _pass_through(self, client: socket.socket, sent: bytes) -> None:
        with self._connected() as engine:
            engine.sendall(sent)
            back = self._start(_pump, engine, client)
            _pump(client, engine)
            back.join(timeout=_SECONDS)

    def _connected(self) -> socket.socket:
        engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        engine.settimeout(_SECONDS)
        try:
            engine.connect(self._upstream)
        except OSError:
            engine.close()
            raise
        return engine


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for chunk in iter(lambda: source.recv(65536), b""):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)


def _read_request(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(client)
    head, _, body = data.partition(b"\r\n\r\n")
    head += b"\r\n\r\n"
    length = re.search(rb"(?im)^content-length:\s*(\d+)", head)
    if length:
        while len(body) < int(length[1]):
            body += _some(client)
    elif re.search(rb"(?im)^transfer-encoding:\s*chunked", head):
        while not body.endswith(b"0\r\n\r\n"):
            body += _some(client)
    return head, body


def _some(client: socket.socket) -> bytes:
    chunk = client.recv(65536)
    if not chunk:
        raise EOFError
    return chunk


def _closing(head: bytes) -> bytes:
    without = re.sub(rb"(?im)^connection:.*\r\n", b"", head)
    return without.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
