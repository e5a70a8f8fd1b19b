"""What programs in a container printed: Docker's frames taken apart, capped, and made safe to show."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

# Stream number, three zeros, length (big-endian, 4 bytes): API reference, "Attach to a container".
_HEADER_BYTES = 8

# CSI (colours, cursor), OSC (titles, links; ended by BEL or ST), then any other two-byte escape.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_ -~])")
# C0 without tab and newline, DEL, C1, and the marks that turn the direction of text (Trojan Source).
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Frames:
    """Takes bytes as they come and gives the payload of whole frames; a frame may be longer than what came so far."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._left = 0      # bytes of the frame at hand that are still to come

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._pending += chunk
        while self._pending:
            if not self._left and not self._read_header():
                return
            piece = bytes(self._pending[: self._left])
            del self._pending[: self._left]
            self._left -= len(piece)
            if piece:
                yield piece

    def _read_header(self) -> bool:
        if len(self._pending) < _HEADER_BYTES:
            return False
        self._left = int.from_bytes(self._pending[4:_HEADER_BYTES], "big")
        del self._pending[:_HEADER_BYTES]
        return True


class Tail:
    """The newest `most_bytes` of what was added."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= self._most:
            self._size -= len(self._pieces.popleft())

    def bytes(self) -> bytes:
        return b"".join(self._pieces)[-self._most :] if self._pieces else b""


def readable(raw: bytes) -> str:
    """Text for a page: no colours, no control characters, nothing undecodable. A lone carriage return ends a line."""
    text = raw.decode("utf-8", errors="replace")
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _UNSEEN.sub("\ufffd", text)
