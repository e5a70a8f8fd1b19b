"""The key that seals secrets travels with the secrets that it sealed, or neither does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from databases import Databases
from datakey import KEY

from services.backup.conftest import MODE, members_of, restored
from webapp.key_files import seal_of
from webapp.settings import load_settings
from webapp.store.sealing import DataKeyMissing
from webapp.store.session import Store
from webapp.store.tables import WorkspaceSecret

OTHER = "e" * 64


@pytest.fixture(autouse=True)
def data_key(state: Path) -> Path:
    path = state / "data_key"
    path.write_text(KEY + "\n")
    path.chmod(0o640)
    return path


def token(workspace_id: str) -> str:
    """As whoever starts there now reads it."""
    settings = load_settings()
    store = Store(settings.database_url, seal=seal_of(settings))
    try:
        with store.read() as session:
            return session.get_one(WorkspaceSecret, workspace_id).jupyter_token
    finally:
        store.close()


def test_new_machine_opens_what_the_old_one_sealed(
    berth: Any, work: Any, tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace = work("run-1")
    before = token(workspace.id)
    assert berth("backup", tmp_path / "house.tar.gz").code == 0
    assert members_of(tmp_path / "house.tar.gz")["data_key"] == f"{KEY}\n".encode()
    restored(berth, tmp_path, databases, monkeypatch)
    kept = tmp_path / "new" / "data_key"
    assert kept.read_text() == f"{KEY}\n" and kept.stat().st_mode & MODE == 0o640
    assert token(workspace.id) == before


def test_key_that_came_after_the_backup_is_kept_beside(
    berth: Any, work: Any, tmp_path: Path, state: Path, data_key: Path,
) -> None:
    workspace = work("run-1")
    before = token(workspace.id)
    assert berth("backup", tmp_path / "house.tar.gz").code == 0
    data_key.write_text(OTHER + "\n")
    with pytest.raises(DataKeyMissing):
        token(workspace.id)
    assert berth("restore", tmp_path / "house.tar.gz", "--replace").code == 0
    assert token(workspace.id) == before
    assert [path.read_text() for path in state.glob("data_key.replaced-*")] == [OTHER + "\n"]


def test_backup_without_keys_has_no_such_key(berth: Any, work: Any, tmp_path: Path, data_key: Path) -> None:
    work("run-1")
    assert berth("backup", tmp_path / "house.tar.gz", "--without-keys").code == 0
    members = members_of(tmp_path / "house.tar.gz")
    assert "data_key" not in members and not any(KEY.encode() in content for content in members.values())
    data_key.write_text(OTHER + "\n")
    assert berth("restore", tmp_path / "house.tar.gz", "--replace").code == 0
    assert data_key.read_text() == OTHER + "\n"
