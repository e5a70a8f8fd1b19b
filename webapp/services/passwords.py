"""Passwords: what may be one, and the hash that is kept of it."""

from __future__ import annotations

import unicodedata
from functools import cache
from threading import BoundedSemaphore

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from webapp.errors import N_, InvalidInput

LEAST_CHARACTERS = 10
MOST_CHARACTERS = 256

# OWASP's password storage cheat sheet: 19 MiB, two passes, one lane. About 20 ms.
HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# For sign-ins: 512 request threads that all hash at once would take 10 GB and every core. Who writes takes no turn:
# the write lock lets one through at a time, and nobody should wait for sign-ins while holding it.
TURNS = BoundedSemaphore(4)


def parse_password(text: str, field: str = "password") -> str:
    """A password for a new hash: 10-256 characters, none of them a control character."""
    if len(text) < LEAST_CHARACTERS:
        raise InvalidInput.of(
            field, N_("A password needs at least %(least)d characters. A few words in a row are easy to remember."),
            least=LEAST_CHARACTERS,
        )
    if len(text) > MOST_CHARACTERS:
        raise InvalidInput.of(field, N_("A password has at most %(most)d characters."), most=MOST_CHARACTERS)
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise InvalidInput.of(field, N_("The password holds a character that cannot be typed, such as a line break."))
    return text


def hash_password(password: str) -> str:
    """Hash of a checked password, in NFC: two keyboards may compose the same letter in two ways."""
    return HASHER.hash(unicodedata.normalize("NFC", password))


def matches(password_hash: str | None, typed: str) -> bool:
    """Whether `typed` is the password. None (no such person) takes as long as a wrong password."""
    usable = len(typed) <= MOST_CHARACTERS
    candidate = unicodedata.normalize("NFC", typed if usable else "").encode("utf-8", "replace")
    try:
        HASHER.verify(password_hash or _hash_of_nobody(HASHER), candidate)
    except (VerificationError, InvalidHashError):
        return False
    return usable and password_hash is not None


def is_outdated(password_hash: str) -> bool:
    """Whether the hash was made with other costs than today's."""
    return HASHER.check_needs_rehash(password_hash)


@cache
def _hash_of_nobody(hasher: PasswordHasher) -> str:
    return hasher.hash("nobody has this password")
