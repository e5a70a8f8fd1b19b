"""`berth key`: the key of the secrets in the database is replaced, and one that is lost is lived without."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.cli.conftest import Berth

from webapp.errors import SettingsError
from webapp.key_files import load_data_keys, seal_of
from webapp.settings import load_settings


@pytest.fixture
def house(berth: Berth) -> Berth:
    assert berth("migrate").code == 0
    return berth


def test_rotation_puts_a_new_key_first_and_keeps_one_before(house: Berth, state: Path) -> None:
    first = load_data_keys(load_settings())
    for _ in range(2):
        assert house("key", "rotate").code == 0
    second = load_data_keys(load_settings())
    assert len(first) == 1 and len(second) == 2 and not set(first) & set(second)
    assert (state / "data_key").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in state.glob("*data_key*")) == ["data_key"]


def test_nothing_is_forgotten_where_nothing_is_lost(house: Berth) -> None:
    assert house("key", "forget").out == "no secret is lost\n"


@pytest.mark.parametrize("content", ["", "short", "g" * 64, "0" * 63, f"{'0' * 64}\n{'1' * 10}"])
def test_damaged_file_is_named(house: Berth, state: Path, content: str) -> None:
    (state / "data_key").write_text(content)
    done = house("key", "rotate")
    assert done.code and "data_key" in done.err and "Put back the file of a backup" in done.err


def test_file_that_others_read_refuses(house: Berth, state: Path) -> None:
    (state / "data_key").chmod(0o644)
    done = house("migrate")
    assert done.code and "chmod 640" in done.err


def test_file_that_goes_away_is_not_made_anew_under_what_runs(house: Berth, state: Path) -> None:
    seal = seal_of(load_settings())
    sealed = seal.close("a", "text")
    (state / "data_key").rename(state / "away")
    with pytest.raises(SettingsError, match="not there any more"):
        seal.close("a", "text")
    assert not (state / "data_key").exists()
    (state / "away").rename(state / "data_key")
    assert seal.open("a", sealed) == "text"
