"""A house to be kept and brought back: the command on a database with the cast in it, and backups of it."""


from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from databases import IS_POSTGRESQL, Databases
from datakey import SEAL
from sqlalchemy import select

from webapp.cli import root
from webapp.services import workspaces
from webapp.services.orders import LaunchRequest
from webapp.store.session import Store
from webapp.store.tables import Workspace

KIND = "postgresql" if IS_POSTGRESQL else "sqlite"
MODE = 0o777


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, databases: Databases, template: Any) -> Iterator[Path]:
    """A house with the cast in it; nothing answers where its web would listen."""
    for name in [name for name in os.environ if name.startswith("BERTH_") and not name.startswith("BERTH_TEST_")]:
        monkeypatch.delenv(name)
    state = tmp_path / "state"
    state.mkdir()
    (state / "instance").write_text("house1\n")
    (state / "secret_key").write_text("k" * 64 + "\n")
    (state / "secret_key").chmod(0o640)
    (state / "simulation").mkdir()
    monkeypatch.setenv("BERTH_STATE_DIR", str(state))
    monkeypatch.setenv("BERTH_DATABASE_URL", databases.make("backed", like=template[0]))
    monkeypatch.setenv("BERTH_ENGINE", f"unix://{tmp_path}/no-engine.sock")
    monkeypatch.setenv("BERTH_LISTEN", "127.0.0.1:9")
    yield state
    databases.drop("backed")
    databases.drop("other")


@pytest.fixture
def berth(state: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    def run(*arguments: object) -> SimpleNamespace:
        code = root.run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)
    return run


@pytest.fixture
def backed(state: Path) -> Iterator[Store]:
    """The house's database."""
    store = Store(os.environ["BERTH_DATABASE_URL"], seal=SEAL)
    yield store
    store.close()


@pytest.fixture
def work(backed: Store, cast: Any, house: Any, now: datetime) -> Callable[..., Workspace]:
    """work("run-1") = alice has launched it; the store is let go of."""
    def launch(name: str) -> Workspace:
        with backed.write() as session:
            request = LaunchRequest(name=name, image_id=cast.image_id)
            workspace = workspaces.launch(session, cast.alice, request, house=house, now=now)
        backed.close()
        return workspace
    return launch


def names(store: Store) -> list[str]:
    with store.read() as session:
        found = list(session.scalars(select(Workspace.name).order_by(Workspace.name)))
    store.close()
    return found


def members_of(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}      # type: ignore[union-attr]


def manifest_of(file: Path) -> dict[str, Any]:
    return dict(json.loads(members_of(file)["manifest.json"]))


def forged(file: Path, **changes: Any) -> Path:
    """The same backup with another manifest, or other members."""
    members = members_of(file)
    manifest = {**json.loads(members["manifest.json"]), **changes.pop("manifest", {})}
    members |= {"manifest.json": json.dumps(manifest).encode(), **changes}
    target = file.with_name("forged.tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target


def restored(
    berth: Any, tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch, *options: str,
) -> Store:
    """The backup on a new machine: its store, which whoever asks closes."""
    (tmp_path / "new").mkdir(exist_ok=True)
    monkeypatch.setenv("BERTH_STATE_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("BERTH_DATABASE_URL", databases.make("other"))
    if not IS_POSTGRESQL:
        databases.drop("other")     # not even an empty file
    done = berth("restore", tmp_path / "house.tar.gz", *options)
    assert done.code == 0, done.err
    return Store(os.environ["BERTH_DATABASE_URL"], seal=SEAL)


@pytest.fixture
def file(berth: Any, work: Any, tmp_path: Path) -> Path:
    """Yesterday's backup; there was one workspace. Today there are two."""
    work("old")
    path = tmp_path / "house.tar.gz"
    assert berth("backup", path).code == 0
    work("new")
    return path
