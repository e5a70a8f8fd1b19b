"""berth demo: what it sets and what it leaves to a person, what it refuses to touch, and what it prints again."""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from pathlib import Path

import pytest
from unit.cli.conftest import PASSWORD, Berth

from webapp.cli import announce, demo, demo_house, demo_mark, lock, up
from webapp.cli.demo_house import Demo, NoDemo
from webapp.cli.demo_mark import NotADemo
from webapp.domain.ports import PortRange
from webapp.engines.docker.belongings import Belongings
from webapp.errors import SettingsError
from webapp.key_files import seal_of
from webapp.services import people
from webapp.settings import default_state_dir, load_settings
from webapp.simulation import state as simulation
from webapp.simulation.install import state_file_in
from webapp.store.migrate import upgrade
from webapp.store.reads import people as reads
from webapp.store.session import Store


@pytest.fixture
def began(state: Path) -> Demo:
    """A demo that was set up once, as far as that goes without an engine."""
    return begin()


def begin() -> Demo:
    made = demo_house.enter(os.environ, may_begin=True)
    store = Store(made.settings.database_url, seal=seal_of(made.settings))
    upgrade(store)
    demo_house.furnish(store, demo=made)
    store.close()
    return made


def welcome(made: Demo) -> str:
    store = Store(made.settings.database_url, seal=seal_of(made.settings))
    lines = demo_mark.welcome(made.settings, store)
    store.close()
    return "\n".join(lines)


class TestSettings:
    def test_nothing_is_shared_with_the_instance_beside_it(self, tmp_path: Path) -> None:
        given = {"BERTH_INSTANCE": "demo1234"}
        real = load_settings({"BERTH_STATE_DIR": str(tmp_path), "BERTH_INSTANCE": "real1234"})
        own = load_settings({**given, **demo_house.defaults(given), "BERTH_STATE_DIR": str(tmp_path)})
        assert own.listen != real.listen and own.url != real.url
        assert not {own.ports.first, own.ports.last} & set(range(real.ports.first, real.ports.last + 1))
        assert demo_house.defaults({})["BERTH_STATE_DIR"] != default_state_dir()
        assert real.listen_address[1] not in own.ports and own.listen_address[1] not in real.ports

    def test_workspaces_have_another_host_name_than_the_dashboard(self, began: Demo) -> None:
        assert began.settings.url == "http://localhost:8100" and began.settings.workspace_host == "127.0.0.1"

    def test_gpus_are_simulated_and_no_device_is_asked_for(self, began: Demo) -> None:
        assert began.settings.simulated_gpus == "mounted"

    @pytest.mark.parametrize("name, value, field", [
        ("BERTH_PORTS", "31000-31099", "ports"),
        ("BERTH_LISTEN", "127.0.0.1:9100", "listen"),
        ("BERTH_URL", "http://gpu.localhost:9100", "url"),
        ("BERTH_SIMULATED_GPUS", "requested", "simulated_gpus"),
        ("BERTH_INSTANCE", "mine1234", "instance"),
    ])
    def test_what_a_person_set_wins(
        self, state: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, field: str,
    ) -> None:
        monkeypatch.setattr(demo_house, "belongings", lambda *_, **__: Belongings())
        monkeypatch.setenv(name, value)
        wanted = PortRange(31000, 31099) if field == "ports" else value
        assert getattr(demo_house.enter(os.environ, may_begin=True).settings, field) == wanted

    def test_empty_variable_counts_as_not_set(self) -> None:
        assert demo_house.defaults({"BERTH_PORTS": "", "BERTH_LISTEN": " "}) == demo_house.defaults({})

    def test_address_follows_the_port_that_was_chosen(self) -> None:
        assert demo_house.defaults({"BERTH_LISTEN": "[::1]:9100"})["BERTH_URL"] == "http://localhost:9100"

    def test_other_commands_see_the_demo_and_no_other_instance(self, began: Demo, berth: Berth) -> None:
        for name in demo_house.defaults({}).keys() - {"BERTH_STATE_DIR"} | {"BERTH_INSTANCE"}:
            del os.environ[name]
        rows = {row["variable"]: row["value"] for row in json.loads(berth("demo", "settings", "--json").out)}
        assert rows["BERTH_INSTANCE"] == began.mark.instance and rows["BERTH_SIMULATED_GPUS"] == "mounted"
        assert [row["username"] for row in json.loads(berth("demo", "user", "list", "--json").out)] == ["alice", "bob"]

    def test_instance_is_the_demos_own_also_without_the_word_demo(self, began: Demo, berth: Berth) -> None:
        del os.environ["BERTH_INSTANCE"]
        assert load_settings().instance == began.mark.instance
        assert began.mark.instance.startswith("demo") and began.mark.instance != "demo"


class TestMembers:
    def test_one_administrates_and_one_does_not(self, began: Demo) -> None:
        store = Store(began.settings.database_url, seal=seal_of(began.settings))
        with store.read() as session:
            members = [(row.username, row.is_admin) for row in reads.members(session)]
            assert people.active_admins(session) == 1
        store.close()
        assert members == [("alice", True), ("bob", False)]

    def test_passwords_are_in_a_file_of_its_owner_alone(self, began: Demo, state: Path) -> None:
        seen = (state / demo_mark.NAME).stat()
        assert stat.S_IMODE(seen.st_mode) == 0o600 and seen.st_uid == os.geteuid()

    def test_both_passwords_work_and_are_random(self, began: Demo) -> None:
        store = Store(began.settings.database_url, seal=seal_of(began.settings))
        with store.read() as session:
            assert all(people.authenticate(session, username=name, password=text)
                       for name, text in began.mark.passwords.items())
        store.close()
        assert len(set(began.mark.passwords.values())) == 2

    def test_every_start_prints_the_same_passwords(self, began: Demo) -> None:
        first = welcome(began)
        assert welcome(begin()) == first
        for name, text in began.mark.passwords.items():
            assert name in first and text in first
        assert "alice" in first and "an administrator" in first and "a member" in first

    def test_it_says_that_gpus_are_simulated_and_how_all_of_it_goes(self, began: Demo) -> None:
        said = welcome(began)
        assert "simulated" in said and "nothing computes on them" in said and "./run demo clean" in said

    def test_password_that_was_changed_is_not_printed_as_if_it_worked(self, began: Demo, berth: Berth) -> None:
        assert berth("demo", "user", "password", "bob", "--password-stdin", typed=f"{PASSWORD}\n").code == 0
        said = welcome(began)
        assert began.mark.passwords["bob"] not in said and PASSWORD not in said and "bob    (changed since)" in said
        assert began.mark.passwords["alice"] in said

    def test_real_instance_is_told_nothing_of_it(self, house: Berth) -> None:
        settings = load_settings()
        store = Store(settings.database_url, seal=seal_of(settings))
        assert demo_mark.welcome(settings, store) == []
        store.close()

    def test_announcement_has_them_beside_the_address(
        self, began: Demo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(announce, "_wait", lambda *_, **__: None)
        assert announce.main() == 0
        out = capsys.readouterr().out
        assert "Berth is up: http://localhost:8100" in out and began.mark.passwords["bob"] in out
        assert "/welcome/" not in out       # there is an administrator


class TestSimulatedHost:
    def test_four_cards_of_this_demo_alone(self, began: Demo, tmp_path: Path) -> None:
        cards = simulation.read(state_file_in(began.settings.state_dir)).cards
        assert len(cards) == 4
        assert all(simulation.is_simulated(card.uuid) and not card.processes for card in cards)

    def test_faults_stay_at_the_next_start(self, began: Demo, berth: Berth) -> None:
        assert berth("demo", "simulate", "fault", "2", "lost").code == 0
        begin()
        assert simulation.read(state_file_in(began.settings.state_dir)).cards[2].fault == "lost"

    def test_none_where_a_person_wants_real_cards(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BERTH_SIMULATED_GPUS", "no")
        made = begin()
        assert not state_file_in(state).exists() and "simulated" not in welcome(made)


class TestSomebodyElses:
    """BERTH_ variables of a real instance may be set in the shell in which somebody types ./run demo."""

    def test_state_folder_of_a_real_instance_is_refused(self, house: Berth, state: Path) -> None:
        before = sorted(state.iterdir())
        for arguments in (("demo",), ("demo", "clean"), ("demo", "user", "list")):
            done = house(*arguments)
            assert done.code in (3, 4) and str(state) in done.err
        assert sorted(state.iterdir()) == before

    def test_database_elsewhere_is_refused(self, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BERTH_DATABASE_URL", f"sqlite:///{tmp_path}/real.db")
        with pytest.raises(SettingsError, match="BERTH_DATABASE_URL"):
            begin()

    def test_instance_of_which_the_engine_has_something_is_refused(
        self, state: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(demo_house, "belongings", lambda *_, **__: Belongings(volumes=("berth-real1234-home-x",)))
        monkeypatch.setenv("BERTH_INSTANCE", "real1234")
        with pytest.raises(SettingsError, match="BERTH_INSTANCE.*real1234"):
            begin()
        assert demo_mark.read(state) is None

    def test_instance_of_another_cannot_be_slipped_in_later(
        self, began: Demo, berth: Berth, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(demo, "remove_all", lambda *_, **__: pytest.fail("removed something"))
        monkeypatch.setenv("BERTH_INSTANCE", "real1234")
        done = berth("demo", "clean")
        assert done.code == 1 and began.mark.instance in done.err

    def test_mark_of_another_account_is_none(self, began: Demo, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        with pytest.raises(NotADemo, match="another account"):
            demo_mark.read(state)

    def test_mark_is_never_a_link(self, began: Demo, state: Path, tmp_path: Path) -> None:
        (state / demo_mark.NAME).rename(tmp_path / "elsewhere")
        (state / demo_mark.NAME).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(NotADemo):
            demo_mark.read(state)

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"instance": "demo1234"}', '{"passwords": {}}',
                                         '{"instance": "demo1234", "passwords": ["alice"]}'])
    def test_mark_that_is_damaged_is_one_sentence(self, state: Path, berth: Berth, content: str) -> None:
        state.mkdir()
        (state / demo_mark.NAME).write_text(content)
        done = berth("demo", "clean")
        assert (done.code, done.err.count("\n")) == (4, 1) and "cannot be read" in done.err

    @pytest.mark.parametrize("folder", ["/root/berth-demo", "/run/berth-demo"])
    def test_folder_that_no_container_may_see_is_refused_at_once(self, folder: str) -> None:
        with pytest.raises(SettingsError, match="BERTH_STATE_DIR.*/var/lib/berth-demo"):
            demo_house._refuse_unmountable(Path(folder))


class TestCleaning:
    def test_without_a_demo_there_is_nothing_to_do(self, berth: Berth, state: Path) -> None:
        done = berth("demo", "clean")
        assert done.code == 3 and "./run demo" in done.err
        assert not state.exists()

    def test_it_removes_its_own_instance_and_its_folder(
        self, began: Demo, berth: Berth, state: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        asked: list[tuple[str, str]] = []

        def remove_all(url: str, instance: str, *, host: str) -> Belongings:
            asked.append((url, instance))
            return Belongings(containers=("one", "two"), networks=("net",))

        monkeypatch.setattr(demo, "remove_all", remove_all)
        done = berth("demo", "clean")
        assert done.code == 0
        assert done.out.splitlines() == ["removed one", "removed two", "removed net", f"removed {state}"]
        assert asked == [(began.settings.engine_url, began.mark.instance)]
        assert not state.exists()

    def test_not_while_it_runs(self, began: Demo, berth: Berth, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo, "remove_all", lambda *_, **__: pytest.fail("removed something"))
        descriptor = lock.take(state)
        done = berth("demo", "clean")
        os.close(descriptor)
        assert done.code == 4 and f"as process {os.getpid()}" in done.err and state.exists()

    def test_folder_stays_as_long_as_the_engine_cannot_be_asked(
        self, began: Demo, berth: Berth, state: Path,
    ) -> None:
        assert berth("demo", "clean").code == 5
        assert demo_mark.read(state) == began.mark


class TestStarting:
    @pytest.mark.parametrize("arguments", [("demo",), ("demo", "start")])
    def test_it_is_up_with_a_furnished_house(
        self, berth: Berth, state: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...],
    ) -> None:
        started: list[partial[None]] = []
        monkeypatch.setattr(up, "start", lambda *, furnish: started.append(furnish))
        assert berth(*arguments).code == 0
        assert started[0].func is demo_house.furnish and demo_mark.read(state) is not None

    def test_real_up_cannot_be_run_on_the_demos_settings(self, began: Demo, berth: Berth) -> None:
        assert berth("demo", "up").code == 2

    def test_exit_code_of_another_command_comes_through(self, began: Demo, berth: Berth) -> None:
        assert berth("demo", "user", "password", "nobody", "--password-stdin", typed=PASSWORD).code == 3

    def test_no_command_begins_a_demo_by_the_way(self, state: Path) -> None:
        with pytest.raises(NoDemo):
            demo_house.enter(os.environ, may_begin=False)
        assert not state.exists()
