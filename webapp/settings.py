"""The deployment's settings: environment variables BERTH_…, read once, checked, and then frozen.

`Knobs` holds each variable's unit, default, description and check, so that the README's table and `berth settings`
cannot drift from what is read. A value that cannot be used refuses to start and says what would do.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from webapp import settings_checks as check
from webapp.domain.house import MIN_MEMORY_BYTES, HouseRules
from webapp.domain.ports import PortRange
from webapp.domain.sizes import MIB, MOST_BYTES, format_cpus, format_size, parse_cpus, parse_size
from webapp.errors import SettingsError

PREFIX = "BERTH_"
TEST_PREFIX = "BERTH_TEST_"     # belongs to the test suite; never a setting
INSTANCE_CHARACTERS = 8
STATE_DIR_MODE = 0o750          # the web's own group may look in; `berth up` gives it that group


@dataclass(frozen=True, slots=True)
class Settings:
    """What `Knobs` describes, with every default filled in."""

    state_dir: Path             # absolute; exists
    database_url: str = dataclasses.field(repr=False)   # sqlite:////absolute/path, or postgresql+psycopg://…
    url: str                    # scheme://host[:port], no slash at the end
    listen: str                 # address:port
    workspace_host: str
    workspace_bind: str
    allow_same_host: bool
    engine_url: str
    instance: str               # part of every name on an engine: berth-<instance>-…
    ports: PortRange
    volume_roots: tuple[Path, ...]
    trusted_proxies: str            # networks with , between, as ipaddress writes them
    registry_auth: Path | None  # None = what `docker login` wrote for the agent's account
    registry_mirror: str | None     # host[:port][/path]
    default_cpus: str           # domain.sizes
    default_memory: str
    max_cpus: str
    max_memory: str
    simulated_gpus: str         # no | mounted | requested
    log_level: str              # debug | info | warning | error
    log_format: str             # console | json

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host (without brackets) and port of `listen`."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def _knob(unit: str, default: str, description: str, *, shown: str | None = None) -> Any:
    """One variable. `default` "" = worked out by load_settings; `shown` says how, for the table."""
    return Field(default=default, description=description, json_schema_extra={"unit": unit, "shown": shown or default})


class Knobs(BaseModel):
    """One field per variable, as text; "" = not set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: Annotated[str, AfterValidator(check.absolute_path)] = _knob(
        "path", "", "Folder for the database, the secret key and the lock files.",
        shown="`/var/lib/berth` for root, else `~/.local/share/berth`")
    database_url: Annotated[str, AfterValidator(check.database_url)] = _knob(
        "URL", "", "Where the database is: `sqlite:///` and a full path, or `postgresql://user:password@host/name`.",
        shown="`sqlite:///` and `berth.db` in the state folder")
    url: Annotated[str, AfterValidator(check.public_url)] = _knob(
        "URL", "http://localhost:8000", "Address at which people open the dashboard.")
    listen: Annotated[str, AfterValidator(check.listen)] = _knob(
        "address:port", "127.0.0.1:8000", "Where the web process listens.")
    trusted_proxies: Annotated[str, AfterValidator(check.networks)] = _knob(
        "addresses with , between", "", "Reverse proxies whose `X-Forwarded-For` is believed; addresses or networks.",
        shown="none")
    workspace_host: Annotated[str, AfterValidator(check.host_name)] = _knob(
        "host name", "127.0.0.1", "Name at which people reach SSH and Jupyter; never the dashboard's own.")
    workspace_bind: Annotated[str, AfterValidator(check.ip_address)] = _knob(
        "IP address", "127.0.0.1", "Address of this server on which the workspaces' ports are published.")
    allow_same_host: Annotated[str, AfterValidator(check.truth)] = _knob(
        "true or false", "false", "Accepts one host name for both, so that members' programs see dashboard cookies.")
    engine: Annotated[str, AfterValidator(check.engine_url)] = _knob(
        "URL", "", "Address of the Docker Engine.", shown="`$DOCKER_HOST`, else `unix:///var/run/docker.sock`")
    instance: Annotated[str, AfterValidator(check.instance)] = _knob(
        "4–12 of a–z, 0–9", "", "Part of every name that Berth gives on an engine; set it before the first start.",
        shown="made once, kept in the state folder")
    ports: Annotated[str, AfterValidator(check.port_range)] = _knob(
        "first-last", "20000-29999", "Ports handed out to workspaces, both ends included.")
    volume_roots: Annotated[str, AfterValidator(check.volume_roots)] = _knob(
        "paths with : between", "", "Root-owned folders below which team volumes may lie; empty allows none.",
        shown="none")
    registry_auth: Annotated[str, AfterValidator(check.absolute_path)] = _knob(
        "path", "", "Logins for registries: a `config.json` as `docker login` writes it, readable by the agent alone.",
        shown="that of the agent's account")
    registry_mirror: Annotated[str, AfterValidator(check.mirror)] = _knob(
        "host:port/path", "", "Registry that is asked first for images of Docker Hub.", shown="none")
    default_cpus: Annotated[str, AfterValidator(check.cpus)] = _knob(
        "cores", "", "CPU that the launch form offers.", shown="`2`, or all of a smaller server")
    default_memory: Annotated[str, AfterValidator(check.memory)] = _knob(
        "MiB, GiB, TiB", "", "Memory that the launch form offers.", shown="`8GiB`, or half of a smaller server")
    max_cpus: Annotated[str, AfterValidator(check.cpus)] = _knob(
        "cores", "", "Most CPU that one workspace may have.", shown="all of the server")
    max_memory: Annotated[str, AfterValidator(check.memory)] = _knob(
        "MiB, GiB, TiB", "", "Most memory that one workspace may have.", shown="all of the server")
    simulated_gpus: Annotated[str, AfterValidator(check.one_of("no", "mounted", "requested"))] = _knob(
        "word", "no", "`mounted` or `requested`: the GPUs of `berth simulate` in place of real ones, mounted into "
        "containers, or asked of an engine that has the toolkit's stand-in.")
    log_level: Annotated[str, AfterValidator(check.one_of("debug", "info", "warning", "error"))] = _knob(
        "word", "info", "Least important log lines to write: `debug`, `info`, `warning` or `error`.")
    log_format: Annotated[str, AfterValidator(check.one_of("console", "json"))] = _knob(
        "word", "console", "`console` for people, `json` for one JSON object per line.")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table of settings."""

    variable: str
    unit: str
    default: str
    description: str


def table() -> list[Row]:
    """Every variable, in the order of `Knobs`."""
    return [_row(name) for name in Knobs.model_fields]


def shown_values(settings: Settings) -> dict[str, str]:
    """Variable → the value in force, as one would write it; the database's password is blanked, the only secret."""
    fields = {**{name: name for name in Knobs.model_fields}, "engine": "engine_url"}
    values = {_variable(name): _as_text(getattr(settings, field)) for name, field in fields.items()}
    return {**values, "BERTH_DATABASE_URL": check.without_password(settings.database_url)}


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in `environ` (default: this process's), checked. Makes the state folder and the instance id.

    Raises:  SettingsError: an unknown BERTH_ variable, a value that cannot be used, or two that do not go together.
    """
    given = os.environ if environ is None else environ
    _refuse_unknown(given)
    knobs = _parse(given)
    state_dir = Path(knobs.state_dir or default_state_dir())
    max_cpu_millis, max_memory_bytes = _machine()
    max_cpus = knobs.max_cpus or format_cpus(max_cpu_millis)
    max_memory = knobs.max_memory or format_size(max_memory_bytes)
    settings = Settings(
        state_dir=state_dir,
        database_url=knobs.database_url or f"sqlite:///{state_dir / 'berth.db'}",
        url=knobs.url,
        listen=knobs.listen,
        workspace_host=knobs.workspace_host,
        workspace_bind=knobs.workspace_bind,
        allow_same_host=knobs.allow_same_host == "true",
        engine_url=knobs.engine or _docker_host(given),
        instance=knobs.instance or _kept_instance(state_dir),
        ports=check.as_range(knobs.ports),
        trusted_proxies=knobs.trusted_proxies,
        volume_roots=tuple(map(Path, filter(None, knobs.volume_roots.split(":")))),
        registry_auth=Path(knobs.registry_auth) if knobs.registry_auth else None,
        registry_mirror=knobs.registry_mirror or None,
        default_cpus=knobs.default_cpus or _less_cpus("2", max_cpus),
        default_memory=knobs.default_memory or _less_memory("8GiB", max_memory),
        max_cpus=max_cpus,
        max_memory=max_memory,
        simulated_gpus=knobs.simulated_gpus,
        log_level=knobs.log_level,
        log_format=knobs.log_format,
    )
    _refuse_what_does_not_go_together(settings)
    _make_folder(state_dir)
    return settings


def house_rules(settings: Settings) -> HouseRules:
    """What one workspace may have, as plain numbers for the services."""
    return HouseRules(
        ports=settings.ports,
        default_cpu_millis=_cpu_millis(settings.default_cpus),
        max_cpu_millis=_cpu_millis(settings.max_cpus),
        default_memory_bytes=_bytes(settings.default_memory),
        max_memory_bytes=_bytes(settings.max_memory),
    )


# -- reading


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = [name.upper() for name in Knobs.model_fields]
    for name in sorted(given):
        word = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX) and word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            hint = f"Did you mean {PREFIX}{near[0]}?" if near else "Unset it; “berth settings” lists all there are"
            raise SettingsError(name=name, why=f"there is no such setting. {hint}")


def _parse(given: Mapping[str, str]) -> Knobs:
    """An empty variable counts as not set, as in most programs."""
    values = {name: given[_variable(name)].strip() for name in Knobs.model_fields if given.get(_variable(name))}
    try:
        return Knobs.model_validate({name: value for name, value in values.items() if value})
    except ValidationError as error:
        problems = [(str(problem["loc"][0]), str(problem["ctx"]["error"])) for problem in error.errors()]
        first, *more = [(name, why + _quoted(name, values[name])) for name, why in problems]
        others = "".join(f"\n{SettingsError(name=_variable(name), why=why)}" for name, why in more)
        raise bad(first[0], first[1] + others) from None


def _quoted(name: str, value: str) -> str:
    """What was given, but for the address of a database: people put passwords there."""
    return "" if name == "database_url" else f" (it is “{check.excerpt(value)}”)"


def _refuse_what_does_not_go_together(settings: Settings) -> None:
    if not settings.allow_same_host and check.same_host(urlsplit(settings.url).hostname or "", settings.workspace_host):
        raise bad("workspace_host", (
            f"{settings.workspace_host} is the dashboard's host name too, and browsers send its cookie to every port "
            "of a name: programs in workspaces would see it. Give one of BERTH_URL and BERTH_WORKSPACE_HOST another "
            "name, or set BERTH_ALLOW_SAME_HOST=true if you trust every member"))
    if settings.listen_address[1] in settings.ports:
        raise bad("listen", f"its port lies in BERTH_PORTS ({_as_text(settings.ports)}). Move one of them")
    if _cpu_millis(settings.default_cpus) > _cpu_millis(settings.max_cpus):
        raise bad("default_cpus", f"it is more than BERTH_MAX_CPUS ({settings.max_cpus}). Lower it")
    if _bytes(settings.default_memory) > _bytes(settings.max_memory):
        raise bad("default_memory", f"it is more than BERTH_MAX_MEMORY ({settings.max_memory}). Lower it")
    for root in settings.volume_roots:
        if settings.state_dir.is_relative_to(root) or root.is_relative_to(settings.state_dir):
            raise bad("volume_roots", f"{root} and the state folder {settings.state_dir} lie in each other. Move one")


# -- defaults


def default_state_dir() -> str:
    return "/var/lib/berth" if os.geteuid() == 0 else os.path.expanduser("~/.local/share/berth")


def _docker_host(given: Mapping[str, str]) -> str:
    """Where the docker command looks, so that Berth works where that does."""
    url = given.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        return check.engine_url(url)
    except ValueError as error:
        raise SettingsError(name="DOCKER_HOST", why=f"{error}, or set BERTH_ENGINE") from None


def _machine() -> tuple[int, int]:
    """Cores of this machine in thousandths, and its memory in bytes, whole MiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (os.cpu_count() or 1) * 1000, max(min(memory, MOST_BYTES), MIN_MEMORY_BYTES) // MIB * MIB


def _less_cpus(wanted: str, most: str) -> str:
    return format_cpus(min(_cpu_millis(wanted), _cpu_millis(most)))


def _less_memory(wanted: str, most: str) -> str:
    half = max(_bytes(most) // 2, MIN_MEMORY_BYTES) // MIB * MIB
    return format_size(min(_bytes(wanted), half))


def _kept_instance(state_dir: Path) -> str:
    alphabet = string.ascii_lowercase + string.digits
    made = "".join(secrets.choice(alphabet) for _ in range(INSTANCE_CHARACTERS))
    kept = kept_file(state_dir / "instance", made, mode=0o644)
    try:
        return check.instance(kept)
    except ValueError as error:
        raise bad("instance", f"{state_dir / 'instance'} holds “{check.excerpt(kept)}”: {error}") from None


def kept_file(path: Path, made: str, *, mode: int) -> str:
    """What the file holds; made with `made` first if it is not there. Of two that make it at once one wins."""
    _make_folder(path.parent)
    try:
        if not path.exists():
            write_once(path, made, mode)
        return path.read_text("ascii").strip()
    except (OSError, UnicodeError) as error:
        raise _unusable(path, error) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=STATE_DIR_MODE)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(path: Path, error: Exception) -> SettingsError:
    why = error.strerror if isinstance(error, OSError) else "it is not text"
    return bad("state_dir", f"{path}: {why}. Choose a folder that this account may write, or run as the account "
                             "that owns it")


def write_once(path: Path, text: str, mode: int) -> None:
    """Whole or not at all: a file of its own, then a link, which fails if somebody was faster."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.write(descriptor, f"{text}\n".encode())
        os.fsync(descriptor)
        os.link(scratch, path)
    except FileExistsError:
        pass
    finally:
        os.close(descriptor)
        scratch.unlink()


# -- words


def _row(name: str) -> Row:
    field = Knobs.model_fields[name]
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    shown = str(extra["shown"])
    default = f"`{shown}`" if shown == field.default else shown
    return Row(_variable(name), str(extra["unit"]), default, field.description or "")


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def bad(name: str, why: str) -> SettingsError:
    return SettingsError(name=_variable(name), why=why)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    if isinstance(value, PortRange):
        return f"{value.first}-{value.last}"
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _cpu_millis(text: str) -> int:
    return parse_cpus(text, field="cpus", maximum=check.MOST_CPU_MILLIS)


def _bytes(text: str) -> int:
    return parse_size(text, field="memory", minimum=MIN_MEMORY_BYTES, maximum=None)
