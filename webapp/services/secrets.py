"""What only the owner and the workspace itself know. Made once per workspace, so that stop and start change neither."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from webapp.domain.workspace import Desired
from webapp.services import locks
from webapp.store.tables import Workspace, WorkspaceSecret

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


def of_key(private: str, *, jupyter_token: str) -> Secrets:
    """Read back from a workspace. Raises ValueError: that is no such key, or no token."""
    try:
        key = load_ssh_private_key(private.encode(), password=None)
    except (UnsupportedAlgorithm, TypeError) as error:      # TypeError: it wants a password
        raise ValueError("no key of a kind that Berth makes") from error
    if not isinstance(key, Ed25519PrivateKey) or not jupyter_token.isprintable() or not jupyter_token:
        raise ValueError("no key of a kind that Berth makes, or no token")
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return Secrets(jupyter_token=jupyter_token, host_private_key=private, host_public_key=public.decode())


def put_back(session: Session, workspace_id: str, found: Secrets, *, epoch: int) -> bool:
    """Of a workspace that has none. False = it has some, is removed, or a newer agent runs: nothing was written."""
    lives = session.scalar(
        select(Workspace.id).where(Workspace.id == workspace_id, Workspace.desired != Desired.REMOVED,
                                   locks.by_newest_agent(epoch)).with_for_update(**locks.ROW))
    if lives is None or session.get(WorkspaceSecret, workspace_id) is not None:
        return False
    with suppress(IntegrityError), session.begin_nested():
        session.add(WorkspaceSecret(
            workspace_id=workspace_id, jupyter_token=found.jupyter_token, host_private_key=found.host_private_key,
            host_public_key=found.host_public_key))
        return True
    return False
