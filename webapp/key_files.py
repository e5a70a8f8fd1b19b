"""Files with keys, in the state folder or where a setting says: made, checked, and never shown."""

from __future__ import annotations

import json
import os
import re
import secrets

from webapp.settings import Settings, bad, kept_file, write_once
from webapp.store.files import as_owner_of, fsync_folder
from webapp.store.sealing import KEY_BYTES, Seal

SECRET_KEY_CHARACTERS = 64
SECRET_KEY, DATA_KEY = KEY_FILES = ("secret_key", "data_key")      # of the state folder
MOST_DATA_KEYS = 2      # the newest, and the one before: what runs may have written with it meanwhile
_KEY = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


def load_secret_key(settings: Settings) -> str:
    """The key that signs browser sessions: made at the first start; another one ends every session, nothing else.

    Raises:  SettingsError: cannot be read or made, is too short, or others on this machine may read it.
    """
    path = settings.state_dir / SECRET_KEY
    key = kept_file(path, secrets.token_hex(SECRET_KEY_CHARACTERS // 2), mode=0o640)
    if path.stat().st_mode & 0o027:
        raise bad("state_dir", f"others on this machine may read or change {path}. Run: chmod 640 {path}")
    if len(key) < SECRET_KEY_CHARACTERS // 2:
        raise bad("state_dir", f"{path} holds no usable key. Delete that file: a new one is made, and people sign in "
                                "again")
    return key


def check_registry_auth(settings: Settings) -> None:
    """For whoever pulls; web need not be able to read the file. Raises SettingsError, which repeats nothing of it."""
    path = settings.registry_auth
    if path is None:
        return
    try:
        mode = path.stat().st_mode
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise bad("registry_auth", f"{path}: {error.strerror}. Make it with: docker --config {path.parent} login") \
            from error
    except ValueError as error:
        raise bad("registry_auth", f"{path} is no JSON. Make it with: docker --config {path.parent} login") from error
    if mode & 0o077:
        raise bad("registry_auth", f"others on this machine may read {path}. Run: chmod 600 {path}")
    if not isinstance(content, dict) or not {"auths", "credHelpers", "credsStore"}.intersection(content):
        raise bad("registry_auth", f"{path} holds no logins. Make it with: docker --config {path.parent} login")


def seal_of(settings: Settings) -> Seal:
    """What seals and opens the secrets in the database. The file is made at its first use here, and never again: where
    it goes away later, a new one would open nothing.
    """
    path, used = settings.state_dir / DATA_KEY, list[bool]()

    def read() -> tuple[str, ...]:
        if used and not path.exists():
            raise bad("state_dir", f"{path} is not there any more. Put it back, or start Berth again without it")
        keys = load_data_keys(settings)
        used.append(True)
        return keys

    return Seal(read)


def load_data_keys(settings: Settings) -> tuple[str, ...]:
    """The keys that secrets in the database are sealed with, newest first: made at the first start.

    Raises:  SettingsError: cannot be read or made, is no such file, or others on this machine may read it.
    """
    path = settings.state_dir / DATA_KEY
    keys = tuple(kept_file(path, secrets.token_hex(KEY_BYTES), mode=0o640).split())
    if path.stat().st_mode & 0o027:
        raise bad("state_dir", f"others on this machine may read or change {path}. Run: chmod 640 {path}")
    if not keys or not all(map(_KEY.fullmatch, keys)):
        raise bad("state_dir", f"{path} holds no usable key. Put back the file of a backup")
    return keys


def add_data_key(settings: Settings) -> None:
    """A new one before the others, of which the newest stays."""
    path = settings.state_dir / DATA_KEY
    keys = (secrets.token_hex(KEY_BYTES), *load_data_keys(settings))[:MOST_DATA_KEYS]
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    write_once(scratch, "\n".join(keys), 0o640)
    as_owner_of(path, scratch)
    os.replace(scratch, path)
    fsync_folder(path.parent)
