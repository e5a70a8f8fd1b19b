"""Pasted public keys: real ones of every accepted type, and everything that must not reach authorized_keys."""

from __future__ import annotations

import shutil
import subprocess
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    SSHCertificateBuilder,
    SSHCertificateType,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webapp.domain.sshkeys import MOST_KEYS, MOST_LINE, PublicKey, parse_public_keys
from webapp.errors import FieldProblem, InvalidInput

quick = settings(max_examples=60, deadline=None)


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def mpint(number: int) -> bytes:
    return string(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def line_of(type_: str, *fields: bytes, inner: str | None = None) -> str:
    return f"{type_} {b64encode(string((inner or type_).encode()) + b''.join(fields)).decode()}"


def rsa(bits: int, exponent: int = 65_537) -> str:
    """A key of that size; the modulus is odd but no product of two primes, which nobody can see from outside."""
    return line_of("ssh-rsa", mpint(exponent), mpint((1 << (bits - 1)) | (0xC0FFEE << (bits // 2)) | 1))


def openssh(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


OWNER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ED25519 = openssh(OWNER.public_key())
RAW = OWNER.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
EC = {
    size: ec.derive_private_key(7, curve).public_key()
    for size, curve in ((256, ec.SECP256R1()), (384, ec.SECP384R1()), (521, ec.SECP521R1()))
}
P256 = point(EC[256])
SK_ED25519 = line_of("sk-ssh-ed25519@openssh.com", string(RAW), string(b"ssh:"))
SK_ECDSA = line_of("sk-ecdsa-sha2-nistp256@openssh.com", string(b"nistp256"), string(P256), string(b"ssh:work"))
DSS = line_of("ssh-dss", mpint((1 << 1023) | 1), mpint((1 << 159) | 1), mpint(5), mpint(7))
PRIVATE = OWNER.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
CERTIFICATE = (
    SSHCertificateBuilder()
    .public_key(OWNER.public_key())
    .type(SSHCertificateType.USER)
    .valid_principals([b"alice"])
    .valid_after(int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()))
    .valid_before(int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()))
    .sign(OWNER)
    .public_bytes()
    .decode()
)
# Made by ssh-keygen 9.2; the last column is what its -l printed.
BY_SSH_KEYGEN = [
    (
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMrpguHu96A0IMqZX9Vf7bf/frLi/yEVb512k/3lqStV",
        "SHA256:wiZTquddX3LlVyFyJ0+gW+bwG7N7tLvjoc7aJ+F3M/w",
    ),
    (
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGiuXh92jeZe9i8bUCwVNvgxpip4ojM3v0Pu"
        "KOOvyf6absWRzJmbFcoAVmD/cGFjBJIbXwyR32qUPKbA1I6LJA8=",
        "SHA256:0T1kdA7v6YvCFl5ZjYgaQI6yDNhsXEx9XC4tQFpsK5U",
    ),
]
ACCEPTED = {
    "ed25519": (ED25519, None),
    "ecdsa 256": (openssh(EC[256]), None),
    "ecdsa 384": (openssh(EC[384]), None),
    "ecdsa 521": (openssh(EC[521]), None),
    "sk ed25519": (SK_ED25519, None),
    "sk ecdsa": (SK_ECDSA, None),
    "rsa 2048": (rsa(2048), 2048),
    "rsa 3072": (rsa(3072), 3072),
    "rsa 16384": (rsa(16_384), 16_384),
    "rsa exponent 3": (rsa(2048, 3), 2048),
}


def one(text: str) -> PublicKey:
    (key,) = parse_public_keys(text)
    return key


def problems(text: str) -> tuple[FieldProblem, ...]:
    with pytest.raises(InvalidInput) as caught:
        parse_public_keys(text)
    assert all(problem.field == "ssh_keys" for problem in caught.value.problems)
    return caught.value.problems


def problem(text: str) -> str:
    (only,) = problems(text)
    return str(only)


@pytest.mark.parametrize(("line", "bits"), ACCEPTED.values(), ids=ACCEPTED)
def test_every_current_type_is_accepted_and_written_anew(line: str, bits: int | None) -> None:
    key = one(f"  {line}\talice's   laptop ")
    type_, encoded = line.split(" ")
    assert (key.type, key.blob, key.bits) == (type_, b64decode(encoded), bits)
    assert key.line == f"{line} alice's laptop"
    assert one(key.line) == key


@pytest.mark.parametrize(("line", "fingerprint"), BY_SSH_KEYGEN)
def test_fingerprint_is_the_one_ssh_keygen_printed(line: str, fingerprint: str) -> None:
    assert one(line).fingerprint == fingerprint
    assert one(line).line == line


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_ssh_keygen_agrees_on_every_accepted_key(tmp_path: Path) -> None:
    keys = parse_public_keys("\n".join(line for line, _ in ACCEPTED.values()))
    pasted = tmp_path / "keys.pub"
    pasted.write_text("".join(f"{key.line}\n" for key in keys))
    printed = subprocess.run(["ssh-keygen", "-lf", pasted], check=True, capture_output=True, text=True).stdout
    assert [line.split()[1] for line in printed.splitlines()] == [key.fingerprint for key in keys]
    sizes = [int(line.split()[0]) for line in printed.splitlines()]
    assert all(key.bits in (None, size) for key, size in zip(keys, sizes, strict=True))


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("coal sdc key", "coal sdc key"),
        ("爱丽丝 💻", "爱丽丝 💻"),
        ("", ""),
        ('from="*.x" ssh-rsa AAAA', 'from="*.x" ssh-rsa AAAA'),
        ("# home", "# home"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "-----BEGIN OPENSSH PRIVATE KEY-----"),
        ("a\0b\x1b[31m\u202ec\ud800\u2028d\x85e\x0bf", "ab[31mcde f"),
        ("x" * 300, "x" * 255),
    ],
)
def test_comment_never_decides_and_loses_what_is_invisible(written: str, kept: str) -> None:
    key = one(f"{ED25519} {written}")
    assert key.comment == kept
    assert one(key.line) == key


def test_comment_that_looks_like_a_private_key_hides_no_later_line() -> None:
    assert len(parse_public_keys(f"{ED25519} -----BEGIN OPENSSH PRIVATE KEY-----\n{SK_ECDSA}")) == 2
    assert "Line 2" in problem(f"{ED25519} -----BEGIN OPENSSH PRIVATE KEY-----\nnonsense")


def test_crlf_blank_lines_remarks_and_a_byte_order_mark_are_fine() -> None:
    text = f"\ufeff# my keys\r\n\r\n{ED25519} a\r\n   \n  # old\r{rsa(2048)} b\r\n"
    assert [key.comment for key in parse_public_keys(text)] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "\n", "  \r\n\t", "# nothing yet"])
def test_no_key_is_no_problem(text: str) -> None:
    assert parse_public_keys(text) == ()


def test_a_key_pasted_twice_is_kept_once_with_its_first_comment() -> None:
    assert [key.comment for key in parse_public_keys(f"{ED25519} first\n{SK_ECDSA} x\n{ED25519} second")] == [
        "first",
        "x",
    ]


@pytest.mark.parametrize(
    "options",
    ['from="*.x"', 'command="id"', "no-pty", 'command="echo ssh-ed25519 AAAA",no-pty', "restrict", "host.example.org"],
)
def test_options_before_the_key_are_refused(options: str) -> None:
    assert problem(f"{options} {ED25519}") == (
        "ssh_keys: Line 1 has options or text before the key. Remove all before the key's type."
    )


@pytest.mark.parametrize(
    "text",
    ["some invalid text", "AAAA", "ssh-ed448 AAAA", "ssh-ed25519AAAA", "SSH-ED25519 AAAA", "rsa-sha2-256 AAAA", "\x0b"],
)
def test_text_on_the_next_line_is_no_part_of_a_key(text: str) -> None:
    assert problem(f"{ED25519}\n {text}").startswith("ssh_keys: Line 2 is not a public key.")


@pytest.mark.parametrize("sign", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_other_line_ends_stay_inside_the_comment(sign: str) -> None:
    assert "\n" not in one(f'{ED25519} a{sign}command="id" {SK_ECDSA}').line


def test_certificates_are_refused() -> None:
    assert "is a certificate" in problem(CERTIFICATE)
    assert "another type" in problem(CERTIFICATE.replace("ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519"))


def test_dsa_is_refused_with_a_way_out() -> None:
    assert "DSA" in problem(DSS)
    assert "ssh-keygen -t ed25519" in problem(DSS)


@pytest.mark.parametrize("bits", [512, 1024, 2047, 16_385])
def test_rsa_of_another_size_is_refused_with_its_size(bits: int) -> None:
    assert f"RSA key of {bits} bits, not 2048-16384." in problem(rsa(bits))


@pytest.mark.parametrize(
    "text",
    [
        PRIVATE,
        PRIVATE.replace("\n", "\r\n"),
        PRIVATE.replace("\n", ""),
        PRIVATE.replace("\n", " "),
        f"my key: {PRIVATE}",
        PRIVATE.replace("OPENSSH", "RSA"),
        PRIVATE.replace("OPENSSH ", ""),
        PRIVATE.rpartition("-----END")[0],
        "PuTTY-User-Key-File-3: ssh-ed25519\n" + "\n".join(PRIVATE.splitlines()[1:-1]),
    ],
)
def test_a_private_key_is_refused_once_and_never_repeated(text: str) -> None:
    (only,) = problems(text)
    assert "begins a private key; it was not kept" in str(only)
    secrets = [word for word in text.split() if len(word) > 20]
    assert not any(secret in f"{only}{only.facts}" for secret in secrets)


def test_the_inside_of_a_private_key_is_not_repeated_either() -> None:
    inside = PRIVATE.splitlines()[1:-1]
    refused = problems("\n".join(inside))
    assert len(refused) == len(inside)
    assert not any(line in f"{refused}" for line in inside)


def test_keys_after_a_private_key_are_still_judged() -> None:
    assert [p.facts["line"] for p in problems(f"{PRIVATE}{ED25519}\nnonsense")] == [1, PRIVATE.count("\n") + 2]


def test_a_key_in_another_format_gets_the_command_that_converts_it() -> None:
    pem = OWNER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    assert "ssh-keygen -i -f FILE" in problem(pem)
    assert "ssh-keygen -i -f FILE" in problem("---- BEGIN SSH2 PUBLIC KEY ----\nAAAA\n---- END SSH2 PUBLIC KEY ----\n")


DAMAGED = {
    "no key": "ssh-ed25519",
    "no base64": "ssh-ed25519 ????",
    "cut": ED25519[:-8],
    "cut inside a group": ED25519[:-1],
    "needless padding": ED25519 + "=",
    "no padding": SK_ED25519.removesuffix("="),
    "stray bits": SK_ED25519[:-2] + chr(ord(SK_ED25519[-2]) + 1) + "=",
    "full-width letter": ED25519[:-1] + "\N{FULLWIDTH LATIN CAPITAL LETTER A}",
    "NUL": ED25519 + "\0",
    "lone surrogate": ED25519 + "\ud800",
    "length beyond the end": line_of("ssh-ed25519", b"\xff\xff\xff\xff" + RAW),
    "length cut": line_of("ssh-ed25519", b"\0\0"),
    "short": line_of("ssh-ed25519", string(RAW[:31])),
    "long": line_of("ssh-ed25519", string(RAW + b"x")),
    "curve of another size": line_of("ecdsa-sha2-nistp256", string(b"nistp384"), string(P256)),
    "point of another size": line_of("ecdsa-sha2-nistp256", string(b"nistp256"), string(P256[:-1])),
    "compressed point": line_of("ecdsa-sha2-nistp256", string(b"nistp256"), string(b"\x02" + P256[1:33])),
    "hybrid point": line_of("ecdsa-sha2-nistp256", string(b"nistp256"), string(b"\x06" + P256[1:])),
    "point off the curve": line_of("ecdsa-sha2-nistp256", string(b"nistp256"), string(P256[:-1] + b"\0")),
    "point at zero": line_of("ecdsa-sha2-nistp256", string(b"nistp256"), string(b"\x04" + bytes(64))),
    "no application": line_of("sk-ssh-ed25519@openssh.com", string(RAW)),
    "empty application": line_of("sk-ssh-ed25519@openssh.com", string(RAW), string(b"")),
    "application of two lines": line_of("sk-ssh-ed25519@openssh.com", string(RAW), string(b"ssh:\nx")),
    "negative modulus": line_of("ssh-rsa", mpint(65_537), string(b"\x80" + bytes(254) + b"\1")),
    "modulus with a needless zero": line_of("ssh-rsa", mpint(65_537), string(b"\0\0\x80" + bytes(254) + b"\1")),
    "even modulus": line_of("ssh-rsa", mpint(65_537), mpint(1 << 2047)),
    "even exponent": rsa(2048, 65_536),
    "exponent 1": rsa(2048, 1),
    "exponent 0": line_of("ssh-rsa", string(b""), mpint((1 << 2047) | 1)),
    "huge exponent": rsa(2048, (1 << 64) | 1),
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_damaged_keys_are_refused(line: str) -> None:
    assert problem(line) == (
        "ssh_keys: The key in line 1 is cut off or altered. Copy the whole line of the .pub file again."
    )


@pytest.mark.parametrize("line", [line for line, _ in ACCEPTED.values()])
def test_bytes_after_the_key_are_refused(line: str) -> None:
    type_, encoded = line.split(" ")
    longer = b64encode(b64decode(encoded) + b"x").decode()
    assert "has extra data in the key" in problem(f"{type_} {longer}")


@pytest.mark.parametrize(
    ("said", "inner"), [("ssh-rsa", "ssh-ed25519"), ("ssh-ed25519", "ssh-rsa"), ("ssh-ed25519", "ssh-dss")]
)
def test_type_in_the_text_must_be_the_type_in_the_key(said: str, inner: str) -> None:
    assert f"Line 1 says {said}, but holds a key of another type." in problem(line_of(said, string(RAW), inner=inner))


def test_all_lines_are_reported_at_once() -> None:
    refused = problems(f"{ED25519} fine\n# remark\n{DSS}\n\nnonsense\n{rsa(1024)}\nno-pty {ED25519}")
    assert [p.facts["line"] for p in refused] == [3, 5, 6, 7]


def test_at_most_fifty_keys() -> None:
    assert len(parse_public_keys("\n".join([ED25519] * MOST_KEYS))) == 1
    assert "51 lines are too many; at most 50" in problem("\n".join([ED25519] * (MOST_KEYS + 1)))


def test_a_line_of_more_than_16_kib_is_refused() -> None:
    assert one(f"{ED25519} ".ljust(MOST_LINE, "x"))
    assert "Line 1 is longer than 16384 characters." in problem(f"{ED25519} ".ljust(MOST_LINE + 1, "x"))


@quick
@given(st.text(st.characters(), max_size=80), st.sampled_from([ED25519, SK_ECDSA]))
@example("", ED25519)
def test_no_text_breaks_the_parser_or_gets_past_it(text: str, key: str) -> None:
    for pasted in (
        text,
        f"{key} {text}",
        f"{key}{text}",
        f"{text} {key}",
        f"{text}\n{key}",
        f"{key[:30]}{text}{key[30:]}",
    ):
        try:
            keys = parse_public_keys(pasted)
        except InvalidInput as refused:
            str(refused).encode()
        else:
            assert all(accepted.line.encode().count(b"\n") == 0 for accepted in keys)
            assert parse_public_keys("\n".join(accepted.line for accepted in keys)) == keys


@quick
@given(
    st.sampled_from(["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp521", "sk-ecdsa-sha2-nistp256@openssh.com"]), st.data()
)
def test_no_blob_breaks_the_parser(type_: str, data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.binary(max_size=40).map(string) | st.binary(max_size=8), max_size=4))
    try:
        parse_public_keys(line_of(type_, *fields))
    except InvalidInput as refused:
        str(refused).encode()
