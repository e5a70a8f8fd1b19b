"""Old and new Berth on one database: the old refuses with a sentence, and nothing is upgraded under a living agent."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import older
import pytest
from unit.cli.conftest import Berth

from webapp.agent.exclusion import alone
from webapp.cli import up
from webapp.cli.supervisor import Child
from webapp.errors import AgentAlreadyRuns
from webapp.settings import load_settings
from webapp.store.migrate import upgrade
from webapp.store.schema import current
from webapp.store.session import Store

OTHER_VERSION = 6
VERBS = [
    ("up",), ("web",), ("agent",), ("migrate",), ("gpu", "list"), ("user", "list"),
    ("user", "add", "bob", "--name", "Bob", "--password-stdin"), ("user", "password", "alice", "--password-stdin"),
    ("user", "invite"), ("team", "list"), ("team", "add", "vision"), ("team", "join", "vision", "alice"),
    ("team", "leave", "vision", "alice"), ("volume", "list"), ("volume", "remove", "data"),
    ("volume", "add", "data", "--team", "vision"), ("image", "list"), ("image", "withdraw", "x/y:1"),
    ("image", "offer", "x/y:1"),
]


@pytest.fixture
def newer(house: Berth, state: Path) -> Iterator[Berth]:
    """The command of this Berth on a database of the next."""
    with closing(sqlite3.connect(state / "berth.db", isolation_level=None)) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        yield house
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_each_command_refuses_a_newer_database(newer: Berth, words: tuple[str, ...]) -> None:
    done = newer(*words, typed="a new password\n")
    assert (done.code, done.out) == (OTHER_VERSION, "")
    sentence = done.err.splitlines()[-1]    # `up` says its steps before
    assert "upgraded by a newer Berth (9999" in sentence and "restore the backup" in sentence


def test_doctor_says_it_beside_the_other_checks(newer: Berth) -> None:
    done = newer("doctor")
    assert "upgraded by a newer Berth (9999" in done.out + done.err


@pytest.mark.parametrize(("module", "words"), [
    ("webapp.cli.agent_process", ()), ("webapp.cli.announce", ()),
    ("gunicorn", ("--bind", "127.0.0.1:0", "webapp.cli.wsgi:make_app()")),
])
def test_children_of_up_refuse_it_too(newer: Berth, module: str, words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == (4 if module == "gunicorn" else OTHER_VERSION)
    assert "upgraded by a newer Berth (9999" in done.stderr and "Traceback" not in done.stderr


def test_supervisor_gives_up_on_that_code(house: Berth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up.web_account, "prepare", lambda settings: (None, None))
    plan = up._plan(load_settings(), up.Steps())
    assert plan["final"] == [OTHER_VERSION]
    assert all(Child(**child).command for child in plan["children"])


@pytest.fixture
def behind(state: Path, tmp_path: Path) -> Iterator[Store]:
    """A house of the version before, in the state folder."""
    store = Store(load_settings().database_url)
    older.make(store, "0002", tmp_path)
    yield store
    store.close()


def test_older_database_says_how_it_is_upgraded(behind: Store, berth: Berth) -> None:
    done = berth("user", "list")
    assert done.code == OTHER_VERSION and "Run: berth migrate" in done.err
    assert berth("migrate").out == "database upgraded to 0004\n"
    assert berth("migrate").out == "database is current at 0004\n"
    assert "alice" in berth("user", "list").out


def test_up_upgrades_nothing_under_a_living_agent(
    behind: Store, berth: Berth, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up, "END_SECONDS", 0)
    with alone(load_settings().state_dir):
        done = berth("up")
    assert done.code == 4 and f"as process {os.getpid()}" in done.err
    assert current(behind) == "0002"


def test_up_waits_for_an_agent_that_is_just_ending(behind: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    held = alone(settings.state_dir)
    held.__enter__()
    monkeypatch.setattr("webapp.agent.exclusion.time.sleep", lambda _: held.__exit__(None, None, None))
    up._wait_for_agent(settings, behind)


def test_agent_of_another_process_is_named(behind: Store, tmp_path: Path) -> None:
    hold = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); " \
           "sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path / "agent.lock")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(AgentAlreadyRuns, match=f"as process {other.pid}\\."), alone(tmp_path):
            pass
        other.communicate()
    with alone(tmp_path):
        pass


def test_upgrade_that_was_made_meanwhile_is_told_as_current(behind: Store) -> None:
    assert [upgrade(behind), upgrade(behind)] == [True, False]
