"""The berth command: exit codes, one sentence for each error, JSON for scripts, one `berth up` at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from unit.cli.conftest import PASSWORD, Berth

from webapp.cli import checks, lock, root, up, web_account, workspace_image
from webapp.cli.failure import AddressTaken, RunsAlready
from webapp.errors import EngineUnreachable
from webapp.key_files import seal_of
from webapp.settings import load_settings
from webapp.store.session import Store


def test_help_is_quick_and_names_every_command() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "webapp.cli.root", "--help"], capture_output=True, text=True)
    assert time.monotonic() - began < 1
    assert done.returncode == 0
    assert not [name for name in root.COMMANDS if f"\n  {name} " not in done.stdout]


@pytest.mark.parametrize("name", root.COMMANDS)
def test_every_command_has_help(berth: Berth, name: str) -> None:
    done = berth(name, "--help")
    assert done.code == 0 and done.out.startswith(f"Usage: berth {name}")


def test_unknown_command_is_a_wrong_argument(berth: Berth) -> None:
    assert berth("launch").code == 2


def test_bad_setting_is_one_sentence(berth: Berth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_PORTS", "1-2")
    done = berth("user", "list")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("berth: BERTH_PORTS cannot be used: ")


def test_database_that_was_never_made_says_what_to_run(berth: Berth) -> None:
    done = berth("user", "list")
    assert done.code == 6 and "berth migrate" in done.err


def test_database_that_cannot_be_opened_is_one_sentence(house: Berth, state: Path) -> None:
    for path in state.glob("berth.db*"):
        path.unlink()
    (state / "berth.db").mkdir()
    done = house("user", "list")
    assert done.code == 1 and done.err.startswith("berth: The database ") and done.err.count("\n") == 1


def test_user_appears_in_the_list(house: Berth) -> None:
    row, = json.loads(house("user", "list", "--json").out)
    assert (row["username"], row["display_name"], row["is_admin"], row["uid"]) == ("alice", "Alice", False, 10000)
    assert "alice" in house("user", "list").out


def test_name_that_cannot_be_used_is_a_wrong_argument(house: Berth) -> None:
    done = house("user", "add", "root", "--password-stdin", typed=PASSWORD)
    assert done.code == 2 and "root" in done.err and "Traceback" not in done.err


def test_every_problem_of_a_new_user_is_told(house: Berth) -> None:
    done = house("user", "add", "Bob Ross", "--password-stdin", typed="short\n")
    assert done.code == 2 and "username: " in done.err and "password: " in done.err


def test_unknown_user_is_not_found(house: Berth) -> None:
    done = house("user", "password", "bob", "--password-stdin", typed=PASSWORD)
    assert done.code == 3 and "bob" in done.err


def test_invite_is_a_link_below_the_dashboards_address(house: Berth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_URL", "https://berth.example.org")
    assert house("user", "invite").out.startswith("https://berth.example.org/welcome/")
    assert json.loads(house("user", "invite", "--admin", "--json").out)["role"] == "admin"


def test_team_and_volume(house: Berth) -> None:
    assert house("team", "add", "vision").code == 0
    assert house("team", "join", "vision", "alice").code == 0
    assert house("volume", "add", "imagenet", "--team", "vision", "--read-only").code == 0
    volume, = json.loads(house("volume", "list", "--json").out)
    assert (volume["name"], volume["target"], volume["read_only"]) == ("imagenet", "/data/imagenet", True)
    assert house("team", "leave", "vision", "alice").code == 0
    assert house("volume", "remove", "imagenet").code == 0
    assert json.loads(house("volume", "list", "--json").out) == []


@pytest.mark.parametrize("arguments", [
    ("team", "join", "nobody", "alice"),
    ("volume", "add", "x", "--team", "nobody"),
    ("volume", "remove", "nothing"),
    ("image", "withdraw", "example/nothing:1"),
])
def test_what_is_not_there_is_not_found(house: Berth, arguments: tuple[str, ...]) -> None:
    assert house(*arguments).code == 3


def test_folder_outside_the_roots_is_a_wrong_argument(house: Berth) -> None:
    house("team", "add", "vision")
    assert house("volume", "add", "x", "--team", "vision", "--folder", "/etc").code == 2


def test_image_without_a_version_is_refused(house: Berth) -> None:
    done = house("image", "add", "example/torch:latest", "--title", "Torch")
    assert done.code == 2 and "latest" in done.err


def test_image_goes_through_its_states(house: Berth) -> None:
    def state_of() -> str:
        row, = json.loads(house("image", "list", "--json").out)
        return str(row["state"])

    assert house("image", "add", "example/torch:1", "--title", "Torch", "--base").code == 0
    assert state_of() == "not prepared"
    assert house("image", "withdraw", "example/torch:1").code == 0
    assert state_of() == "withdrawn"
    assert house("image", "offer", "example/torch:1").code == 0
    assert state_of() == "not prepared"


def test_prepared_image_becomes_an_entry_once(house: Berth, state: Path) -> None:
    store = Store(load_settings().database_url, seal=seal_of(load_settings()))
    for jupyter in (True, True, False, False):
        made = workspace_image.Prepared("berth-base:bookworm", f"berth/workspace:x-{jupyter}".lower(), jupyter, True)
        workspace_image.register(store, made, up.ACTOR, now=up.now())
    store.close()
    rows = json.loads(house("image", "list", "--json").out)
    assert [(row["base"], row["state"], row["jupyter"]) for row in rows] == [
        ("berth-base:bookworm", "ready", True), (None, "ready", False)]


def test_prepare_without_an_engine_is_one_sentence(
    house: Berth, state: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BERTH_ENGINE", f"unix://{state}/none.sock")
    done = house("image", "prepare", "example/torch:1")
    assert done.code == 1 and done.err.startswith("berth: The workspace image could not be made")


def test_settings_are_shown_with_their_origin(berth: Berth) -> None:
    rows = {row["variable"]: row for row in json.loads(berth("settings", "--json").out)}
    assert rows["BERTH_STATE_DIR"]["set"] and not rows["BERTH_PORTS"]["set"]
    assert rows["BERTH_PORTS"]["value"] == "20000-29999"


@pytest.fixture
def silent_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise EngineUnreachable(host="gpu1", detail="connection refused")

    monkeypatch.setattr(checks, "open_engine", unreachable)


@pytest.mark.usefixtures("silent_engine")
def test_doctor_names_what_does_not_answer_and_what_to_do(house: Berth) -> None:
    done = house("doctor", "--json")
    found = {check["name"]: check for check in json.loads(done.out)}
    assert done.code == 5
    assert found["database"]["ok"] and not found["engine"]["ok"] and not found["agent"]["ok"]
    assert all(check["fix"] for check in found.values() if not check["ok"])


@pytest.mark.usefixtures("silent_engine")
def test_doctor_before_the_first_start(berth: Berth) -> None:
    found = {check["name"]: check for check in json.loads(berth("doctor", "--json").out)}
    assert found["database"]["fix"] == "berth migrate"


@pytest.mark.parametrize("variables, names", [
    ({}, []),
    ({"BERTH_URL": "http://berth.example.org", "BERTH_WORKSPACE_BIND": "0.0.0.0"}, ["address"]),
    ({"BERTH_URL": "https://berth.example.org"}, ["ports"]),
])
def test_doctor_sees_addresses_that_leave_people_outside(
    state: Path, variables: dict[str, str], names: list[str],
) -> None:
    settings = load_settings({"BERTH_STATE_DIR": str(state), **variables})
    assert [check.name for check in checks.addresses(settings)] == names


def test_every_finding_of_an_engine_has_a_sentence_and_a_fix() -> None:
    assert set(checks.FINDINGS) == set(checks.Finding)


def test_second_up_is_refused_and_names_the_first(berth: Berth, state: Path) -> None:
    load_settings()
    descriptor = lock.take(state)
    done = berth("up")
    assert done.code == 4
    assert f"as process {os.getpid()}" in done.err and "BERTH_STATE_DIR" in done.err
    os.close(descriptor)


def test_up_says_at_once_that_the_simulated_host_is_missing(berth: Berth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_SIMULATED_GPUS", "requested")
    done = berth("up")
    assert done.code == 3 and "berth simulate init" in done.err, done


def test_lock_of_a_killed_up_is_free(state: Path) -> None:
    load_settings()
    (state / "up.lock").write_text("999999\n")
    descriptor = lock.take(state)
    assert lock.holder(state) == os.getpid()
    os.close(descriptor)
    assert lock.holder(state) is None


def test_lock_never_follows_a_link(state: Path, tmp_path: Path) -> None:
    load_settings()
    (tmp_path / "victim").write_text("untouched")
    (state / "up.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        lock.take(state)
    assert (tmp_path / "victim").read_text() == "untouched"


def test_lock_is_taken_once(state: Path) -> None:
    load_settings()
    with (state / "up.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RunsAlready):
            lock.take(state)


def test_port_of_another_program_is_named_before_anything_starts(
    state: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up, "END_SECONDS", 0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("BERTH_LISTEN", f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(AddressTaken, match="BERTH_LISTEN"):
            up._wait_for_port(load_settings())


def test_web_keeps_the_account_of_a_person_who_is_not_root(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert web_account.prepare(settings) == (None, None)


def test_code_below_a_closed_folder_is_told_before_an_account_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    settings = load_settings({"BERTH_STATE_DIR": str(closed / "state")})
    monkeypatch.setattr(web_account, "_account", lambda: pytest.fail("made an account"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account, why = web_account.prepare(settings)
    assert account is None and why is not None and "may look into" in why
