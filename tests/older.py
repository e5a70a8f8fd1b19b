"""Houses as older versions of Berth left them (recordings/houses/README.md), to be upgraded by this one."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from webapp.services.secrets import new_secrets
from webapp.store.migrate import upgrade
from webapp.store.revisions import migrations_folder
from webapp.store.session import Store

RECORDINGS = Path(__file__).parent / "recordings" / "houses"
REVISIONS = ("0001", "0002", "0003")
PASSWORD = "correct horse battery"      # of everybody in them
NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)       # later than everything in them
Words = Mapping[str, str]               # what stands for @WORD@; others stay as they are
Rows = dict[str, list[dict[str, Any]]]  # table → rows, in the order of their insertion


def migrations_until(revision: str, folder: Path) -> Path:
    """A copy in `folder` that knows no later ones."""
    copy = folder / f"migrations-{revision}"
    (copy / "versions").mkdir(parents=True)
    shutil.copy(migrations_folder() / "env.py", copy)
    for file in (migrations_folder() / "versions").glob("*.py"):
        if file.name[:4] <= revision:
            shutil.copy(file, copy / "versions")
    return copy


def make(store: Store, revision: str, folder: Path, words: Words | None = None) -> None:
    """The recorded house in the empty database of `store`, in tables as they were. `folder`: for scratch."""
    upgrade(store, migrations_until(revision, folder))
    insert(store, revision, words)


def insert(store: Store, revision: str, words: Words | None = None) -> None:
    """As the code of that revision wrote them, with the columns that it knew."""
    with store.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM intent")        # the only row that a migration makes
        for statement in _read(f"{revision}.sql").splitlines():
            connection.exec_driver_sql(_filled(statement, words, lambda word: word.replace("'", "''")))
        if not store.is_sqlite:
            connection.exec_driver_sql("SELECT setval('events_id_seq', (SELECT max(id) FROM events))")


def new_keys(revision: str) -> dict[str, str]:
    """For each workspace's secrets of that house: WORD → a host key or a token, made now."""
    names = re.findall(r"@TOKEN_([A-Z0-9_]+)@", _read(f"{revision}.sql"))
    made = {name: new_secrets() for name in names}
    return {f"{kind}_{name}": value for name, secret in made.items() for kind, value in (
        ("TOKEN", secret.jupyter_token), ("HOST_PRIVATE", secret.host_private_key),
        ("HOST_PUBLIC", secret.host_public_key))}


def containers(revision: str, words: Words | None = None) -> list[dict[str, Any]]:
    """[{"name", "workspace_id", "runs", "body", "files": [{"path", "mode", "uid", "gid", "content"}, …]}, …]"""
    found: list[dict[str, Any]] = json.loads(
        _filled(_read(f"{revision}-containers.json"), words, lambda word: json.dumps(word)[1:-1]))
    return found


def columns(revision: str) -> dict[str, list[str]]:
    """Table → columns, as the code of that revision names them when it inserts."""
    found: dict[str, list[str]] = {}
    for line in _read(f"{revision}.sql").splitlines():
        table, names = re.match(r"INSERT INTO (\w+) \(([^)]*)\)", line).groups()    # type: ignore[union-attr]
        found[table] = re.findall(r'"(\w+)"', names)
    return found


def rows(store: Store, revision: str) -> Rows:
    """What is in the tables and columns that this revision knew."""
    with store.engine.connect() as connection:
        return {table: [dict(row) for row in connection.exec_driver_sql(_select(table, names)).mappings()]
                for table, names in columns(revision).items()}


def _select(table: str, names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"SELECT {quoted} FROM {table} ORDER BY 1, 2"


def _filled(text: str, words: Words | None, quoted: Callable[[str], str]) -> str:
    known = words or {}
    return re.sub(r"@([A-Z0-9_]+)@", lambda match: quoted(known.get(match[1], match[0])), text)


def _read(name: str) -> str:
    return (RECORDINGS / name).read_text("utf-8")
