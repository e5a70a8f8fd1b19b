"""Public SSH keys as people paste them: every line is judged alone, and what is kept is written anew.

What sshd gets is built from the checked blob, so no option (`command=`, `from=`) and no second line can ride along.
The wire format is read here: paramiko knows no sk- keys (ansible.posix#17). Formats: RFC 4253 §6.6, RFC 5656 §3.1,
RFC 8709 §4, OpenSSH's PROTOCOL.u2f. No message repeats any part of a pasted line: it may be of a private key.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from webapp.errors import N_, FieldProblem, InvalidInput

MOST_KEYS = 50
MOST_LINE = 16 * 1024  # characters; an RSA key of 16,384 bits takes 2,800
MOST_COMMENT = 255  # characters; a longer comment is cut
RSA_BITS = (2048, 16_384)  # least: sshd refuses less than 1024 and NIST less than 2048; most: OpenSSH's own limit

_END_OF_LINE = re.compile(r"\r\n|\r|\n")
_BLOCK = re.compile(r"-----BEGIN |---- BEGIN |PuTTY-User-Key-File-")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One accepted key. Two keys are the same key when their blobs are equal."""

    type: str  # such as "ssh-ed25519"
    blob: bytes  # RFC 4253 wire form; begins with the type
    comment: str  # "" when there is none; one line without control characters
    bits: int | None  # length of an RSA modulus; None for types of one fixed size

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it: `SHA256:` and unpadded base64."""
        return "SHA256:" + b64encode(sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def line(self) -> str:
        """Canonical line for authorized_keys, without a newline: type, base64, comment."""
        return f"{self.type} {b64encode(self.blob).decode()} {self.comment}".rstrip(" ")


def parse_public_keys(text: str, field: str = "ssh_keys") -> tuple[PublicKey, ...]:
    """The keys in `text`, one a line, in their order; a key that comes twice is kept once, with its first comment.

    Blank lines and lines that begin with `#` are skipped; CRLF is fine; no key at all gives an empty tuple.

    Raises:  InvalidInput: one problem for each line that is not an accepted key, its number in the fact `line`.
    """
    lines = list(_lines(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")))
    if len(lines) > MOST_KEYS:
        message = N_("%(given)d lines are too many; at most %(most)d keys are kept. Remove those you no longer use.")
        raise InvalidInput.of(field, message, given=len(lines), most=MOST_KEYS)
    keys: dict[bytes, PublicKey] = {}
    problems = []
    for number, line in lines:
        try:
            key = _parse_line(line)
            keys.setdefault(key.blob, key)
        except _Refused as refused:
            problems.append(FieldProblem(field, refused.message, {"line": number, **refused.facts}))
    if problems:
        raise InvalidInput(*problems)
    return tuple(keys.values())


class _Refused(Exception):
    """A line that is no accepted key. `message` has a place for `line`, which the caller fills."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts: Mapping[str, Any] = facts


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that should be keys. Of a private key or PEM only the first: one problem, not thirty."""
    inside_block = False
    for number, raw in enumerate(_END_OF_LINE.split(text), start=1):
        line = raw.strip(" \t")
        if inside_block:
            inside_block = "-- END " not in line and "--END " not in line
        elif line and not line.startswith("#"):
            yield number, line
            inside_block = _begins_block(line) and "--END " not in line


def _parse_line(line: str) -> PublicKey:
    if len(line) > MOST_LINE:
        message = N_("Line %(line)d is longer than %(most)d characters. Paste the one line of the .pub file.")
        raise _Refused(message, most=MOST_LINE)
    type_, encoded, comment = (*re.split(r"[ \t]+", line, maxsplit=2), "", "")[:3]  # a comment may have spaces
    if type_ not in _READERS:
        raise _no_accepted_type(type_, line)
    fields = _Fields(_decode(encoded))
    if fields.string() != type_.encode():
        message = N_("Line %(line)d says %(type)s, but holds a key of another type. Copy the .pub file again.")
        raise _Refused(message, type=type_)
    bits = _READERS[type_](fields)
    fields.end()
    return PublicKey(type_, fields.blob, _clean(comment), bits)


def _begins_block(line: str) -> bool:
    return bool(_BLOCK.search(line)) and not line.startswith(tuple(_READERS))  # in a comment it means nothing


def _no_accepted_type(first: str, line: str) -> _Refused:
    if _begins_block(line) and "PUBLIC KEY" in line:
        message = N_("Line %(line)d begins a key in another format. Convert it: ssh-keygen -i -f FILE")
    elif _begins_block(line):
        message = N_("Line %(line)d begins a private key; it was not kept. Show it to nobody and paste the .pub file.")
    elif first.endswith("-cert-v01@openssh.com"):
        message = N_("Line %(line)d is a certificate. Paste the plain key, from the .pub file without -cert.")
    elif first == "ssh-dss":
        message = N_("Line %(line)d is a DSA key, which OpenSSH no longer takes. Make a new one: ssh-keygen -t ed25519")
    elif not _READERS.keys().isdisjoint(line.split()):
        message = N_("Line %(line)d has options or text before the key. Remove all before the key's type.")
    else:
        message = N_("Line %(line)d is not a public key. Paste whole lines of .pub files; they begin like ssh-ed25519.")
    return _Refused(message)


def _decode(encoded: str) -> bytes:
    """Bytes of canonical base64 only: OpenSSH refuses stray bits and missing padding too."""
    try:
        blob = b64decode(encoded, validate=True)
    except ValueError:
        raise _damaged() from None
    if b64encode(blob).decode() != encoded:
        raise _damaged()
    return blob


class _Fields:
    """Reads a blob's fields in order (RFC 4251 §5)."""

    def __init__(self, blob: bytes) -> None:
        self.blob = blob
        self._at = 0

    def string(self) -> bytes:
        start = self._at + 4
        self._at = start + int.from_bytes(self.blob[self._at : start], "big")
        if len(self.blob) < max(start, self._at):
            raise _damaged()
        return self.blob[start : self._at]

    def positive(self) -> int:
        """An mpint above 0 in its shortest form."""
        raw = self.string()
        number = int.from_bytes(raw, "big", signed=True)
        if number <= 0 or len(raw) != number.bit_length() // 8 + 1:
            raise _damaged()
        return number

    def end(self) -> None:
        if self._at != len(self.blob):
            raise _Refused(N_("Line %(line)d has extra data in the key. Copy the line of the .pub file again."))


def _read_ed25519(fields: _Fields) -> None:
    if len(fields.string()) != 32:
        raise _damaged()


def _read_rsa(fields: _Fields) -> int:
    exponent, modulus = fields.positive(), fields.positive()
    bits, (least, most) = modulus.bit_length(), RSA_BITS
    if not least <= bits <= most:
        message = N_("Line %(line)d is an RSA key of %(bits)d bits, not %(least)d-%(most)d. Try ssh-keygen -t ed25519")
        raise _Refused(message, bits=bits, least=least, most=most)
    # OpenSSL refuses an exponent above 64 bits with a modulus above 3,072; an even number is no RSA key at all.
    if not (exponent & 1 and modulus & 1 and 1 < exponent < 2**64):
        raise _damaged()
    return bits


# Curve: p and b of y² = x³ - 3x + b (FIPS 186-4, D.1.2). sshd drops a key off its curve without a word.
_CURVES = {
    b"nistp256": (
        2**256 - 2**224 + 2**192 + 2**96 - 1,
        0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    ),
    b"nistp384": (
        2**384 - 2**128 - 2**96 + 2**32 - 1,
        0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF,
    ),
    b"nistp521": (
        2**521 - 1,
        0x51953EB9618E1C9A1F929A21A0B68540EEA2DA725B99B315F3B8B489918EF109E156193951EC7E937B1652C0BD3BB1BF073573DF883D2C34F1EF451FD46B503F00,
    ),
}


def _ecdsa_reader(curve: bytes) -> Callable[[_Fields], None]:
    p, b = _CURVES[curve]
    size = (p.bit_length() + 7) // 8

    def read(fields: _Fields) -> None:
        named, point = fields.string(), fields.string()
        if named != curve or len(point) != 1 + 2 * size or point[0] != 4:  # 4: uncompressed, the one form SSH uses
            raise _damaged()
        x, y = int.from_bytes(point[1 : 1 + size], "big"), int.from_bytes(point[1 + size :], "big")
        if x >= p or y >= p or (y * y - x * x * x + 3 * x - b) % p:
            raise _damaged()

    return read


def _on_token(read: Callable[[_Fields], None]) -> Callable[[_Fields], None]:
    """The key as `read` reads it, then the application that a security token made it for, usually `ssh:`."""

    def read_both(fields: _Fields) -> None:
        read(fields)
        application = fields.string()
        if not 1 <= len(application) <= 255 or not all(0x21 <= byte <= 0x7E for byte in application):
            raise _damaged()

    return read_both


_READERS: Mapping[str, Callable[[_Fields], int | None]] = {
    "ssh-ed25519": _read_ed25519,
    "ecdsa-sha2-nistp256": _ecdsa_reader(b"nistp256"),
    "ecdsa-sha2-nistp384": _ecdsa_reader(b"nistp384"),
    "ecdsa-sha2-nistp521": _ecdsa_reader(b"nistp521"),
    "sk-ssh-ed25519@openssh.com": _on_token(_read_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _on_token(_ecdsa_reader(b"nistp256")),
    "ssh-rsa": _read_rsa,
}


def _damaged() -> _Refused:
    return _Refused(N_("The key in line %(line)d is cut off or altered. Copy the whole line of the .pub file again."))


def _clean(comment: str) -> str:
    """One line without control, direction and other invisible characters; a comment is never a reason to refuse."""
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    visible = (" " if c in "\t\v\f" else c for c in comment if c in "\t\v\f" or unicodedata.category(c) not in hidden)
    return " ".join("".join(visible).split())[:MOST_COMMENT].rstrip()
