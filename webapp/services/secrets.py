"""What only the owner and the workspace itself know. Made once per workspace, so that stop and start change neither."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Secrets:
    jupyter_token: str = field(repr=False)      # URL-safe, no newline: one would be part of the token
    host_private_key: str = field(repr=False)   # OpenSSH PEM, ed25519, ends with a newline (sshd wants it)
    host_public_key: str                        # "ssh-ed25519 AAAA…"


def new_secrets() -> Secrets:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return Secrets(
        jupyter_token=secrets.token_urlsafe(TOKEN_BYTES),
        host_private_key=private.decode(),
        host_public_key=public.decode(),
    )
