"""A client for a workspace's JupyterLab that needs nothing but sockets: REST, and a kernel's channels by WebSocket."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from faults.workspace import ADDRESS, Workspace

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10       # opcodes, RFC 6455
ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Jupyter:
    workspace: Workspace
    token: str

    def run_cell(self, code: str) -> str:
        """What the cell prints, in a kernel of its own. Raises AssertionError when the cell fails."""
        kernel = self.post("/api/kernels", {"name": "python3"})["id"]
        with self._channel(f"/api/kernels/{kernel}/channels") as channel:
            channel.send(json.dumps(_execute(code)))
            return _output(channel)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        status, _, answer = self.workspace.http("POST", path, body=json.dumps(body).encode(), token=self.token,
                                                headers={"Content-Type": "application/json"})
        assert status in (200, 201), (status, answer)
        return json.loads(answer)

    @contextlib.contextmanager
    def _channel(self, path: str) -> Iterator[WebSocket]:
        port = self.workspace.ports()["jupyter"]
        with contextlib.closing(socket.create_connection((ADDRESS, port), timeout=ANSWER_SECONDS)) as connection:
            yield WebSocket(connection, path, {"Host": f"{ADDRESS}:{port}", "Authorization": f"token {self.token}"})


def _execute(code: str) -> dict[str, Any]:
    header = {"msg_id": uuid.uuid4().hex, "session": uuid.uuid4().hex, "username": "", "version": "5.3",
              "msg_type": "execute_request"}
    return {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": {"code": code, "silent": False}}


def _output(channel: WebSocket) -> str:
    """Text of the stream until the kernel is idle again; the reply itself may come before or after the last of it."""
    text, replied, idle = "", False, False
    while not (replied and idle):
        message = json.loads(channel.receive())
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            text += content["text"]
        elif kind == "execute_reply":
            assert content["status"] == "ok", content
            replied = True
        elif kind == "status" and message["parent_header"].get("msg_type") == "execute_request":
            idle = content["execution_state"] == "idle"
    return text


class WebSocket:
    """One connection, messages whole. No extensions, and no subprotocol: Jupyter then speaks JSON."""

    def __init__(self, connection: socket.socket, path: str, headers: dict[str, str]) -> None:
        self._connection = connection
        self._reader: BinaryIO = connection.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key,
                   "Sec-WebSocket-Version": "13"}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**headers, **upgrade}.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        status = self._reader.readline()
        assert b" 101 " in status, status
        while self._reader.readline().strip():
            pass

    def send(self, text: str) -> None:
        self._frame(TEXT, text.encode())

    def receive(self) -> str:
        """The next text message; pings are answered on the way."""
        message = b""
        while True:
            opcode, is_last, payload = self._read_frame()
            if opcode == PING:
                self._frame(PONG, payload)
            elif opcode == CLOSE:
                raise AssertionError(f"Jupyter closed the channel: {payload!r}")
            elif opcode != PONG:
                message += payload
                if is_last:
                    return message.decode()

    def _frame(self, opcode: int, payload: bytes) -> None:
        """A client's frames are masked."""
        mask = os.urandom(4)
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self._connection.sendall(head + mask + masked)

    def _read_frame(self) -> tuple[int, bool, bytes]:
        first, second = self._read(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(self._read(2), "big")
        elif size == 127:
            size = int.from_bytes(self._read(8), "big")
        return first & 0x0F, bool(first & 0x80), self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._reader.read(size)
        assert len(data) == size, "Jupyter hung up"
        return data
