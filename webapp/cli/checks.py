"""What the doctor looks at. Each check says what it saw; one that failed also says what to do."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from webapp.cli.house import now
from webapp.cli.reasons import advice, sentence
from webapp.cli.signs import agent_lives, web_trouble
from webapp.domain.gpu import Condition
from webapp.engines import Capabilities, open_engine
from webapp.engines.findings import Finding
from webapp.errors import AppError, EngineError
from webapp.key_files import DATA_KEY, check_registry_auth, load_secret_key, seal_of
from webapp.services import sealing
from webapp.settings import Settings
from webapp.store.reads import hold
from webapp.store.reads import house as reads
from webapp.store.schema import DatabaseBehind, check_current
from webapp.store.session import Store

MANUAL = "see “Network” in the README"
FINDINGS = {
    Finding.NETWORK_MISSING: ("the workspaces' network is not there", "start the agent: it makes it"),
    Finding.RULES_MISSING: ("workspaces reach services of this server", "start the agent as root: it sets the rules"),
    Finding.RULES_NO_TOOL: ("workspaces reach services of this server: no iptables", "apt-get install iptables"),
    Finding.RULES_NOT_PERMITTED: ("workspaces reach services of this server: the agent may not set firewall rules",
                                  "run the agent as root, or with CAP_NET_ADMIN"),
    Finding.RULES_REMOTE: ("the engine's network is on another machine, where Berth sets no rules",
                           f"set them there by hand: {MANUAL}"),
    Finding.RLIMITS_LOWERED: ("the engine cannot raise memlock, stack or open files as far as NCCL wants",
                              "give dockerd CAP_SYS_RESOURCE and LimitMEMLOCK=infinity"),
}

# A host may do without a GPU; that is a fault only where cards were seen before.
NO_GPU = ("smi_missing", "driver_not_loaded", "no_devices")

_UNGUARDED = set(Finding) - {Finding.RLIMITS_LOWERED}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    seen: str
    fix: str = ""
    reaches: bool = False   # about something that has to answer: the engine, the agent
    minor: bool = False     # Berth works; some jobs would run better


def run(settings: Settings) -> Iterator[Check]:
    """In an order in which the first failure explains the later ones."""
    yield Check("settings", True, f"state in {settings.state_dir}, instance {settings.instance}")
    yield from addresses(settings)
    yield _secret_key(settings)
    yield from _registries(settings)
    store = Store(settings.database_url)
    try:
        database = _database(store)
        yield database
        if database.ok:
            yield _agent(store)
            yield from _hold(store)
        yield _web(settings)
        yield from _engine(settings, store if database.ok else None)
        if database.ok:
            yield from _gpus(store)
            yield _images(store)
            yield _sealed(settings, store)
    finally:
        store.close()


def addresses(settings: Settings) -> Iterator[Check]:
    """Two settings that work alone and yet leave people outside, or their passwords open."""
    dashboard = urlsplit(settings.url)
    public = not _is_loopback(dashboard.hostname or "")
    if public and dashboard.scheme == "http":
        yield Check("address", False, f"{settings.url} sends passwords in clear text",
                    "put a reverse proxy with TLS before it and set BERTH_URL=https://…")
    if public and _is_loopback(settings.workspace_bind):
        yield Check("ports", False, f"SSH and Jupyter listen on {settings.workspace_bind}: only this server reaches "
                                    "them", "set BERTH_WORKSPACE_BIND to this server's address, or 0.0.0.0")


def _secret_key(settings: Settings) -> Check:
    try:
        load_secret_key(settings)
    except AppError as error:
        return Check("secret key", False, str(error), "as it says")
    return Check("secret key", True, "there, and private")


def _sealed(settings: Settings, store: Store) -> Check:
    try:
        known = seal_of(settings).known
        with store.read() as session:
            used = sealing.keys_in_use(session)
    except AppError as error:
        return Check("data key", False, str(error), "as it says")
    if lost := sum(count for key, count in used.items() if key not in (sealing.PLAIN, *known)):
        return Check("data key", False, f"{lost} secrets were sealed with a key that is not in it",
                     f"put the former {settings.state_dir / DATA_KEY} back, or: berth key forget")
    if plain := used[sealing.PLAIN]:
        return Check("data key", False, f"{plain} secrets in the database are not sealed", "berth migrate")
    return Check("data key", True, f"{used.total()} secrets are sealed with it")


def _registries(settings: Settings) -> Iterator[Check]:
    if settings.registry_auth is None and settings.registry_mirror is None:
        return
    try:
        check_registry_auth(settings)
    except AppError as error:
        yield Check("registries", False, str(error), "as it says")
        return
    logins = f"logins from {settings.registry_auth}" if settings.registry_auth else "this account's logins"
    mirror = f", Docker Hub by {settings.registry_mirror} first" if settings.registry_mirror else ""
    yield Check("registries", True, logins + mirror)


def _database(store: Store) -> Check:
    try:
        check_current(store)
    except AppError as error:
        return Check("database", False, str(error), "berth migrate" if isinstance(error, DatabaseBehind) else
                     "as it says")
    return Check("database", True, f"{store.product()}, {store.place} is current")


def _agent(store: Store) -> Check:
    if agent_lives(store, now()):
        return Check("agent", True, "alive", reaches=True)
    with store.read() as session:
        sign = reads.sign_of_life(session)
    seen = f"last sign of life {sign.alive_at:%Y-%m-%d %H:%M:%S} UTC" if sign and sign.alive_at else "has never run"
    return Check("agent", False, seen, "berth up, or berth agent under a service manager", reaches=True)


def _hold(store: Store) -> Iterator[Check]:
    with store.read() as session:
        on = hold.current(session)
    if on is not None:
        yield Check("hold", False, f"on hold since {on.since:%Y-%m-%d %H:%M} UTC: the agent only looks", "berth hold",
                    minor=True)


def _web(settings: Settings) -> Check:
    trouble = web_trouble(settings)
    if trouble:
        return Check("web", False, trouble, "berth up, or berth web under a service manager")
    return Check("web", True, f"answers at {settings.listen}")


def _engine(settings: Settings, store: Store | None) -> Iterator[Check]:
    """The engine asked now; its findings as the agent saw them, since rules are set with the agent's rights."""
    host = socket.gethostname()
    try:
        engine = open_engine(settings.engine_url, instance=settings.instance, host=host)
        try:
            capabilities = engine.describe()
        finally:
            engine.close()
    except EngineError as error:
        yield Check("engine", False, str(error), "start Docker, or set BERTH_ENGINE; this account must be root or in "
                                                 "the group docker", reaches=True)
        return
    yield Check("engine", True, f"Docker {capabilities.engine_version} on {capabilities.operating_system}, "
                                f"{capabilities.storage_driver}", reaches=True)
    yield from _findings(capabilities, store)


def _findings(capabilities: Capabilities, store: Store | None) -> Iterator[Check]:
    codes = _seen_by_agent(store)
    codes = capabilities.findings if codes is None else codes
    for code in codes:
        seen, fix = FINDINGS.get(Finding(code), (code, MANUAL)) if code in set(Finding) else (code, MANUAL)
        yield Check("host", False, seen, fix, minor=code == Finding.RLIMITS_LOWERED)
    if not _UNGUARDED.intersection(codes):
        yield Check("network", True, "workspaces are kept from this server's services and from each other")


def _seen_by_agent(store: Store | None) -> tuple[str, ...] | None:
    """None = no agent has looked yet."""
    if store is None:
        return None
    with store.read() as session:
        hosts = reads.hosts(session)
    return hosts[0].findings if hosts and hosts[0].capabilities is not None else None


def _gpus(store: Store) -> Iterator[Check]:
    with store.read() as session:
        hosts = reads.hosts(session)
    for host in hosts:
        yield _cards_of(host)
        for card in host.cards:
            if card.refusal and card.condition != Condition.OK:
                yield Check("gpu", False, sentence(card.refusal), advice(card.refusal), minor=True)


def _cards_of(host: reads.HostRow) -> Check:
    trouble, cards = host.gpu_trouble, host.cards
    if trouble and (cards or trouble["code"] not in NO_GPU):
        return Check("gpus", False, sentence(trouble), advice(trouble))
    if trouble:
        return Check("gpus", True, f"{sentence(trouble)} Workspaces have no GPUs.")
    if host.gpus_seen_at is None:
        return Check("gpus", True, f"not looked at yet on {host.name}")
    simulated = " simulated" if any(card.simulated for card in cards) else ""
    free = sum(not (card.holder or card.refusal) for card in cards)
    return Check("gpus", True, f"{len(cards)}{simulated} on {host.name}, {free} free, driver {host.driver_version}")


def _images(store: Store) -> Check:
    with store.read() as session:
        ready = [image for image in reads.images(session) if image.reference and image.withdrawn_at is None]
    if not ready:
        return Check("images", False, "none is ready, so nothing can be launched", "berth image prepare")
    return Check("images", True, f"{len(ready)} ready, first: {ready[0].title}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
