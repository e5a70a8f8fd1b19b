"""What a move needs to know, read from what engines say and from the machine's own folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from webapp.engines.docker.changing import held_memory, room_of

MIB = 2**20


@pytest.mark.parametrize(("stats", "mib"), [
    pytest.param({}, None, id="down"),
    pytest.param({"usage": 100 * MIB, "stats": {"active_file": 30 * MIB, "inactive_file": 20 * MIB,
                                                "file": 60 * MIB, "shmem": 10 * MIB}}, 50, id="version 2"),
    pytest.param({"usage": 100 * MIB, "stats": {"total_active_file": 30 * MIB, "total_inactive_file": 20 * MIB,
                                                "active_file": 1, "total_cache": 60 * MIB}}, 50, id="version 1"),
    pytest.param({"usage": 100 * MIB}, 100, id="no details: all of it"),
    pytest.param({"usage": MIB, "stats": {"active_file": 3 * MIB}}, 0, id="never less than nothing"),
])
def test_memory_that_is_held(stats: dict[str, Any], mib: int | None) -> None:
    assert held_memory(stats) == (None if mib is None else mib * MIB)


class TestRoom:
    def test_of_a_folder_of_this_machine(self, tmp_path: Path) -> None:
        (tmp_path / "containers" / "abc").mkdir(parents=True)
        room = room_of(tmp_path, ["abc"])
        assert room is not None and 0 < room.free_bytes <= room.total_bytes

    def test_folder_without_the_engines_containers_is_another_machines(self, tmp_path: Path) -> None:
        assert room_of(tmp_path, ["abc"]) is None

    def test_folder_that_is_not_there(self, tmp_path: Path) -> None:
        assert room_of(tmp_path / "nowhere", []) is None
