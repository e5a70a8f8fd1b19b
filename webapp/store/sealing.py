"""Secrets that must be read again are sealed in the database: a copy of it alone opens nothing.

AES-256-GCM with a key that lies in a file beside the database, never in it. A sealed text names its key, so that keys
can be replaced one after another, and is bound to its purpose: it opens nowhere else.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Dialect, String
from sqlalchemy.types import TypeDecorator

from webapp.errors import N_, AppError

MARK = "sealed:"
KEY_BYTES = 32
NONCE_BYTES = 12        # 96 bits, drawn at random: fit for 2^32 texts of one key (NIST SP 800-38D §8.3)
_ATTRIBUTE = "berth_seal"


class DataKeyMissing(AppError):
    code, status = "data_key_missing", 503
    title = N_("A secret was sealed with a key that is not there any more. Put the former data_key file back, or have "
               "what cannot be opened made anew: berth key forget")


class Seal:
    """Thread-safe. `keys`: reads them, each 64 hex digits, newest first; asked before sealing, and for unknown ones."""

    def __init__(self, keys: Callable[[], Sequence[str]]) -> None:
        self._read = keys
        self._ciphers: dict[str, AESGCM] = {}       # by id, newest first; replaced as a whole: threads share it

    @property
    def known(self) -> tuple[str, ...]:
        """Ids of the keys as they are now, newest first."""
        return tuple(self._reload())

    def close(self, purpose: str, text: str) -> str:
        """With the newest key of now: one that was replaced twice is gone, and so would be what it sealed since."""
        name, cipher = next(iter(self._reload().items()))
        nonce = secrets.token_bytes(NONCE_BYTES)
        hidden = cipher.encrypt(nonce, text.encode(), purpose.encode())
        return f"{MARK}{name}:{urlsafe_b64encode(nonce + hidden).decode()}"

    def open(self, purpose: str, sealed: str) -> str:
        """Raises DataKeyMissing: by no key of ours, for something else, or damaged."""
        name, _, content = sealed.removeprefix(MARK).partition(":")
        ciphers = self._ciphers
        if name not in ciphers:
            ciphers = self._reload()
        try:
            whole = urlsafe_b64decode(content.encode())
            return ciphers[name].decrypt(whole[:NONCE_BYTES], whole[NONCE_BYTES:], purpose.encode()).decode()
        except (KeyError, ValueError, InvalidTag) as error:
            raise DataKeyMissing() from error

    def _reload(self) -> dict[str, AESGCM]:
        self._ciphers = ciphers = {key_id(key): AESGCM(bytes.fromhex(key)) for key in self._read()}
        return ciphers


def key_id(key: str) -> str:
    """Names a key and tells nothing about it."""
    return sha256(bytes.fromhex(key)).hexdigest()[:8]


def use(dialect: Dialect, seal: Seal | None) -> None:
    """For all sessions of that engine."""
    setattr(dialect, _ATTRIBUTE, seal)


class Sealed(TypeDecorator[str]):
    """Text that is sealed in its column. Plain text that an older Berth wrote is read as it is."""

    impl = String
    cache_ok = True

    def __init__(self, purpose: str) -> None:
        super().__init__()
        self.purpose = purpose

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else _seal_of(dialect).close(self.purpose, value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None or not value.startswith(MARK) else _seal_of(dialect).open(self.purpose, value)


def _seal_of(dialect: Dialect) -> Seal:
    seal: Seal | None = getattr(dialect, _ATTRIBUTE, None)
    if seal is None:
        raise RuntimeError("this Store was opened without a seal")
    return seal
