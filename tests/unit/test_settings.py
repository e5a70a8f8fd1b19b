"""Settings: what is refused and how it is said, defaults, and the two files that are made once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from webapp.domain.ports import PortRange
from webapp.domain.sizes import GIB
from webapp.errors import SettingsError
from webapp.key_files import check_registry_auth, load_secret_key
from webapp.settings import Knobs, Settings, house_rules, load_settings, shown_values, table
from webapp.store.session import Store

BAD = [
    ("BERTH_STATE_DIR", "var/berth"),
    ("BERTH_STATE_DIR", "/var/../etc"),
    ("BERTH_DATABASE_URL", "mysql://berth@localhost/berth"),
    ("BERTH_DATABASE_URL", "postgresql://berth@localhost"),
    ("BERTH_DATABASE_URL", "postgresql:/berth"),
    ("BERTH_DATABASE_URL", "postgresql://berth@localhost:0/berth"),
    ("BERTH_DATABASE_URL", "postgresql://berth:a@b@localhost/berth"),
    ("BERTH_DATABASE_URL", "postgresql://berth:a#b@localhost/berth"),
    ("BERTH_DATABASE_URL", "postgresql://berth@localhost/berth?password=x"),
    ("BERTH_DATABASE_URL", "postgresql+asyncpg://berth@localhost/berth"),
    ("BERTH_DATABASE_URL", "sqlite:///berth.db"),
    ("BERTH_DATABASE_URL", "sqlite://"),
    ("BERTH_DATABASE_URL", "sqlite:////tmp/x.db?mode=ro"),
    ("BERTH_URL", "berth.example.org"),
    ("BERTH_URL", "ftp://berth.example.org"),
    ("BERTH_URL", "https://berth.example.org/berth"),
    ("BERTH_URL", "https://someone@berth.example.org"),
    ("BERTH_URL", "http://localhost:99999"),
    ("BERTH_URL", "http://"),
    ("BERTH_LISTEN", "8000"),
    ("BERTH_LISTEN", ":8000"),
    ("BERTH_LISTEN", "127.0.0.1:0"),
    ("BERTH_LISTEN", "127.0.0.1:65536"),
    ("BERTH_LISTEN", "::1:8000"),
    ("BERTH_WORKSPACE_HOST", "gpu1:22"),
    ("BERTH_WORKSPACE_HOST", "http://gpu1"),
    ("BERTH_WORKSPACE_HOST", "gpu_1"),
    ("BERTH_WORKSPACE_HOST", "999.1.1.1"),
    ("BERTH_WORKSPACE_BIND", "localhost"),
    ("BERTH_WORKSPACE_BIND", "10.0.0"),
    ("BERTH_ALLOW_SAME_HOST", "perhaps"),
    ("BERTH_ENGINE", "/var/run/docker.sock"),
    ("BERTH_ENGINE", "unix:/var/run/docker.sock"),
    ("BERTH_ENGINE", "ssh://gpu1"),
    ("BERTH_ENGINE", "tcp://user:word@gpu1:2376"),
    ("BERTH_INSTANCE", "Lab"),
    ("BERTH_INSTANCE", "lab"),
    ("BERTH_INSTANCE", "lab-berth"),
    ("BERTH_PORTS", "20000"),
    ("BERTH_PORTS", "80-90"),
    ("BERTH_PORTS", "30000-20000"),
    ("BERTH_PORTS", "20000-70000"),
    ("BERTH_PORTS", "２００００-２９９９９"),
    ("BERTH_TRUSTED_PROXIES", "proxy.example"),
    ("BERTH_TRUSTED_PROXIES", "10.0.0.1/8"),
    ("BERTH_VOLUME_ROOTS", "data"),
    ("BERTH_VOLUME_ROOTS", "/"),
    ("BERTH_VOLUME_ROOTS", "/etc"),
    ("BERTH_VOLUME_ROOTS", "/usr/local/data"),
    ("BERTH_VOLUME_ROOTS", "/data:/proc/self"),
    ("BERTH_REGISTRY_AUTH", "docker/config.json"),
    ("BERTH_REGISTRY_MIRROR", "https://cache.example.org"),
    ("BERTH_REGISTRY_MIRROR", "mirror"),
    ("BERTH_REGISTRY_MIRROR", "user:word@cache.example.org"),
    ("BERTH_DEFAULT_CPUS", "two"),
    ("BERTH_DEFAULT_MEMORY", "8g"),
    ("BERTH_DEFAULT_MEMORY", "8"),
    ("BERTH_MAX_CPUS", "0"),
    ("BERTH_MAX_CPUS", "1.234"),
    ("BERTH_MAX_MEMORY", "８GiB"),
    ("BERTH_MAX_MEMORY", "1MiB"),
    ("BERTH_SIMULATED_GPUS", "four"),
    ("BERTH_LOG_LEVEL", "loud"),
    ("BERTH_LOG_FORMAT", "xml"),
]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"BERTH_STATE_DIR": str(tmp_path / "state")}


@pytest.mark.parametrize("variable, value", BAD)
def test_bad_value_is_refused_and_named(environ: dict[str, str], variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({**environ, variable: value})
    sentence = str(refused.value)
    assert sentence.startswith(f"{variable} cannot be used: ")
    assert len(sentence.partition(": ")[2]) > 10    # what would do


def test_every_variable_has_a_bad_value_above() -> None:
    assert {row.variable for row in table()} == {variable for variable, _ in BAD}


def test_several_bad_values_are_told_at_once(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({**environ, "BERTH_PORTS": "x", "BERTH_LOG_LEVEL": "y"})
    assert [line.split()[0] for line in str(refused.value).splitlines()] == ["BERTH_PORTS", "BERTH_LOG_LEVEL"]


@pytest.mark.parametrize("url", [
    "mysql://berth:hunter2@db/berth", "postgresql://berth:hunter2@db", "postgresql://berth:hunter2@db/x?password=1",
    "postgresql://berth:hunter2@db:port/berth"])
def test_password_in_a_database_url_that_cannot_be_used_is_not_repeated(url: str, environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({**environ, "BERTH_DATABASE_URL": url})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "PostgreSQL"])
def test_address_of_a_postgresql_is_taken_in_each_spelling(scheme: str, environ: dict[str, str]) -> None:
    settings = load_settings({**environ, "BERTH_DATABASE_URL": f"{scheme}://berth@/berth?host=/run/postgresql"})
    assert settings.database_url == "postgresql+psycopg://berth@/berth?host=/run/postgresql"


def test_password_of_the_database_is_in_nothing_that_is_shown(environ: dict[str, str]) -> None:
    settings = load_settings(
        {**environ, "BERTH_DATABASE_URL": "postgresql://berth:hunt%40r2@db:5433/berth?sslmode=verify-full"})
    assert shown_values(settings)["BERTH_DATABASE_URL"] == "postgresql://berth:…@db:5433/berth?sslmode=verify-full"
    store = Store(settings.database_url)
    assert store.url.password == "hunt@r2"
    assert store.place == "postgresql://berth@db:5433/berth"
    for shown in (repr(settings), str(settings), repr(store.url), repr(store.engine)):
        assert "hunt" not in shown


def test_misspelt_variable_is_refused_with_the_nearest(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="BERTH_PORT cannot be used.*Did you mean BERTH_PORTS"):
        load_settings({**environ, "BERTH_PORT": "20000-29999"})


def test_unknown_variable_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="BERTH_COLOUR_OF_DOOR.*berth settings"):
        load_settings({**environ, "BERTH_COLOUR_OF_DOOR": "red"})


def test_variables_of_the_tests_are_no_settings(environ: dict[str, str]) -> None:
    load_settings({**environ, "BERTH_TEST_ENGINE": "unix:///somewhere"})


def test_empty_variable_counts_as_not_set(environ: dict[str, str]) -> None:
    assert load_settings({**environ, "BERTH_PORTS": "", "BERTH_URL": " "}).ports == PortRange(20000, 29999)


@pytest.mark.parametrize("url, host", [
    ("http://berth.example.org", "berth.example.org"),
    ("https://berth.example.org:8443", "BERTH.example.org."),
    ("http://10.0.0.5:8000", "10.0.0.5"),
    ("http://[::1]:8000", "0:0:0:0:0:0:0:1"),
])
def test_same_host_name_for_dashboard_and_workspaces_is_refused(environ: dict[str, str], url: str, host: str) -> None:
    both = {**environ, "BERTH_URL": url, "BERTH_WORKSPACE_HOST": host}
    with pytest.raises(SettingsError, match="BERTH_WORKSPACE_HOST.*cookie.*BERTH_ALLOW_SAME_HOST=true"):
        load_settings(both)
    assert load_settings({**both, "BERTH_ALLOW_SAME_HOST": "true"}).allow_same_host


def test_localhost_and_its_address_are_two_names(environ: dict[str, str]) -> None:
    settings = load_settings({**environ, "BERTH_URL": "http://localhost:8000", "BERTH_WORKSPACE_HOST": "127.0.0.1"})
    assert not settings.allow_same_host


@pytest.mark.parametrize("variables, named", [
    ({"BERTH_LISTEN": "127.0.0.1:20500"}, "BERTH_LISTEN"),
    ({"BERTH_DEFAULT_CPUS": "4", "BERTH_MAX_CPUS": "2"}, "BERTH_DEFAULT_CPUS"),
    ({"BERTH_DEFAULT_MEMORY": "4GiB", "BERTH_MAX_MEMORY": "2GiB"}, "BERTH_DEFAULT_MEMORY"),
])
def test_values_that_do_not_go_together_are_refused(
    environ: dict[str, str], variables: dict[str, str], named: str,
) -> None:
    with pytest.raises(SettingsError, match=named):
        load_settings({**environ, **variables})


def test_root_around_the_state_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="BERTH_VOLUME_ROOTS.*lie in each other"):
        load_settings({"BERTH_STATE_DIR": "/srv/berth-test-nowhere/state", "BERTH_INSTANCE": "labs",
                       "BERTH_VOLUME_ROOTS": "/srv/berth-test-nowhere"})


def test_root_that_others_may_change_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SettingsError, match="BERTH_VOLUME_ROOTS.*chmod go-w"):
        load_settings({**environ, "BERTH_VOLUME_ROOTS": str(folder)})


def test_root_that_is_not_there_yet_is_accepted(environ: dict[str, str]) -> None:
    roots = load_settings({**environ, "BERTH_VOLUME_ROOTS": "/srv/berth-test-a:/srv/berth-test-b/"}).volume_roots
    assert roots == (Path("/srv/berth-test-a"), Path("/srv/berth-test-b"))


def test_defaults_fit_this_machine(environ: dict[str, str]) -> None:
    house = house_rules(load_settings(environ))
    assert house.max_cpu_millis == (os.cpu_count() or 1) * 1000
    assert house.default_cpu_millis == min(2000, house.max_cpu_millis)
    assert house.default_memory_bytes <= max(house.max_memory_bytes // 2, 2**28)


def test_default_memory_follows_a_low_limit(environ: dict[str, str]) -> None:
    house = house_rules(load_settings({**environ, "BERTH_MAX_MEMORY": "4GiB"}))
    assert (house.default_memory_bytes, house.max_memory_bytes) == (2 * GIB, 4 * GIB)


def test_engine_is_where_the_docker_command_looks(environ: dict[str, str]) -> None:
    assert load_settings(environ).engine_url == "unix:///var/run/docker.sock"
    assert load_settings({**environ, "DOCKER_HOST": "tcp://10.0.0.9:2375"}).engine_url == "tcp://10.0.0.9:2375"
    both = {**environ, "DOCKER_HOST": "tcp://10.0.0.9:2375", "BERTH_ENGINE": "unix:///run/other.sock"}
    assert load_settings(both).engine_url == "unix:///run/other.sock"


def test_docker_host_of_another_kind_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="DOCKER_HOST.*BERTH_ENGINE"):
        load_settings({**environ, "DOCKER_HOST": "ssh://gpu1"})


def test_instance_is_made_once_and_kept(environ: dict[str, str]) -> None:
    first = load_settings(environ)
    assert load_settings(environ).instance == first.instance
    assert (first.state_dir / "instance").read_text().strip() == first.instance
    assert load_settings({**environ, "BERTH_INSTANCE": "other"}).instance == "other"


def test_spoilt_instance_file_is_refused(environ: dict[str, str]) -> None:
    (load_settings(environ).state_dir / "instance").write_text("Not One\n")
    with pytest.raises(SettingsError, match="BERTH_INSTANCE"):
        load_settings(environ)


def test_state_folder_is_closed_to_others(environ: dict[str, str]) -> None:
    assert stat.S_IMODE(load_settings(environ).state_dir.stat().st_mode) & 0o007 == 0


def test_secret_key_is_made_once_and_private(environ: dict[str, str]) -> None:
    settings = load_settings(environ)
    key = load_secret_key(settings)
    assert len(key) >= 64 and load_secret_key(settings) == key
    assert stat.S_IMODE((settings.state_dir / "secret_key").stat().st_mode) & 0o037 == 0


@pytest.mark.parametrize("content, mode", [("a" * 64, 0o644), ("short", 0o640), ("", 0o640)])
def test_unsafe_secret_key_refuses_to_start(environ: dict[str, str], content: str, mode: int) -> None:
    settings = load_settings(environ)
    path = settings.state_dir / "secret_key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(SettingsError, match="secret_key"):
        load_secret_key(settings)


def test_table_describes_every_variable_in_one_sentence() -> None:
    for row in table():
        assert row.unit and row.default and row.description.endswith("."), row


def test_values_in_force_are_shown_for_every_variable(environ: dict[str, str]) -> None:
    values = shown_values(load_settings({**environ, "BERTH_PORTS": "21000-22000"}))
    assert list(values) == [row.variable for row in table()]
    assert (values["BERTH_PORTS"], values["BERTH_ALLOW_SAME_HOST"]) == ("21000-22000", "false")


def test_knobs_and_settings_have_the_same_names() -> None:
    assert {name.replace("engine_url", "engine") for name in Settings.__dataclass_fields__} == set(Knobs.model_fields)


def test_state_folder_is_made_also_when_the_instance_is_given(tmp_path: Path) -> None:
    load_settings({"BERTH_STATE_DIR": str(tmp_path / "new"), "BERTH_INSTANCE": "given1"})

    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize("mirror, kept", [
    ("cache.example.org", "cache.example.org"), ("127.0.0.1:5000", "127.0.0.1:5000"),
    ("cache.example.org:5000/hub/", "cache.example.org:5000/hub"), ("localhost", "localhost")])
def test_mirror_is_host_port_and_path(environ: dict[str, str], mirror: str, kept: str) -> None:
    assert load_settings({**environ, "BERTH_REGISTRY_MIRROR": mirror}).registry_mirror == kept


def test_logins_for_registries_are_a_file_of_ones_own(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"auths": {"registry.example.org": {"auth": "Y2FuYXJ5OmNhbmFyeQ=="}}}')
    path.chmod(0o600)
    check_registry_auth(load_settings({**environ, "BERTH_REGISTRY_AUTH": str(path)}))
    check_registry_auth(load_settings(environ))


@pytest.mark.parametrize("content, mode", [
    (None, 0), ("auths canary", 0o600), ('["canary"]', 0o600), ("{}", 0o600), ('{"auths": {}}', 0o640),
    ('{"auths": {}}', 0o604)])
def test_logins_that_cannot_be_used_refuse_to_start_and_are_not_repeated(
    environ: dict[str, str], tmp_path: Path, content: str | None, mode: int,
) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    with pytest.raises(SettingsError, match="BERTH_REGISTRY_AUTH cannot be used") as caught:
        check_registry_auth(load_settings({**environ, "BERTH_REGISTRY_AUTH": str(path)}))
    assert "canary" not in str(caught.value)
