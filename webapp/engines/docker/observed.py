"""What the engine shows (JSON) → what Berth calls it. Fields may be missing or null in any state: `.get` everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from webapp.domain.container import (
    Container,
    ContainerDetail,
    ContainerState,
    EngineEvent,
    FolderMount,
    ImageFacts,
    Making,
    PublishedPort,
    VolumeMount,
)
from webapp.engines.docker.gpus import asked_for

# "2026-01-02T03:04:05.123456789Z": nanoseconds, more than datetime reads; or +02:00 where the engine's zone is not UTC.
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Others are noise here: exec_create with its command line, attach, top, archive-path, health_status, resize.
EVENTS = frozenset(
    {"create", "start", "die", "kill", "stop", "oom", "destroy", "rename", "pause", "unpause", "restart"}
)


def listed_container(row: Mapping[str, Any]) -> Container:
    """One row of GET /containers/json."""
    names = row.get("Names") or [""]    # null while a container is being removed
    return Container(
        id=row["Id"],
        name=names[0].removeprefix("/"),
        image_id=row.get("ImageID") or "",
        state=_state(row.get("State")),
        labels=row.get("Labels") or {},
        created_at=_EPOCH + timedelta(seconds=row.get("Created") or 0),
    )


def inspected_container(found: Mapping[str, Any]) -> ContainerDetail:
    """GET /containers/NAME/json."""
    state = found.get("State") or {}
    container = Container(
        id=found["Id"],
        name=(found.get("Name") or "").removeprefix("/"),
        image_id=found.get("Image") or "",
        state=_state(state.get("Status")),
        labels=(found.get("Config") or {}).get("Labels") or {},
        created_at=parse_time(found.get("Created")) or _EPOCH,
    )
    finished_at = parse_time(state.get("FinishedAt"))
    ended = finished_at is not None and not container.is_up
    host = found.get("HostConfig") or {}
    return ContainerDetail(
        container=container,
        exit_code=state.get("ExitCode") if ended else None,
        # 26 and later say so of a child while it runs, 20.10 still of an earlier run (measured).
        oom_killed=ended and bool(state.get("OOMKilled")),
        error=state.get("Error") or "",
        started_at=parse_time(state.get("StartedAt")),
        finished_at=finished_at,
        ports=published_ports(host.get("PortBindings") or {}),
        gpus=asked_for(found),
        cpu_millis=(host.get("NanoCpus") or 0) // 1_000_000,
        memory_bytes=host.get("Memory") or 0,
        making=_making(found),
        raw=found,
    )


def _making(found: Mapping[str, Any]) -> Making:
    """The way back of body.py."""
    config, host = found.get("Config") or {}, found.get("HostConfig") or {}
    uid = (config.get("User") or "").partition(":")[0]
    return Making(
        image=config.get("Image") or "",
        uid=int(uid) if uid.isascii() and uid.isdigit() else None,
        environment=dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        mounts=tuple(_mount(mount) for mount in host.get("Mounts") or ()),
        shm_bytes=host.get("ShmSize") or 0,
        pids=host.get("PidsLimit") or 0,
    )


def _mount(asked: Mapping[str, Any]) -> VolumeMount | FolderMount:
    kind = VolumeMount if asked.get("Type") == "volume" else FolderMount
    return kind(asked.get("Source") or "", asked.get("Target") or "", bool(asked.get("ReadOnly")))


def published_ports(bindings: Mapping[str, Any]) -> tuple[PublishedPort, ...]:
    """HostConfig.PortBindings: {"2222/tcp": [{"HostIp": "127.0.0.1", "HostPort": "2201"}]}; TCP only."""
    return tuple(
        PublishedPort(int(key.partition("/")[0]), host.get("HostIp") or "", int(host["HostPort"]))
        for key, hosts in bindings.items()
        if key.endswith("/tcp")
        for host in hosts or ()
        if host.get("HostPort")
    )


def image_facts(found: Mapping[str, Any]) -> ImageFacts:
    """GET /images/NAME/json."""
    config = found.get("Config") or {}
    return ImageFacts(
        id=found["Id"],
        size_bytes=found.get("Size") or 0,
        architecture=found.get("Architecture") or "",
        volumes=tuple(sorted(config.get("Volumes") or {})),
        labels=config.get("Labels") or {},
        digests=tuple(found.get("RepoDigests") or ()),
        environment=dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        created_at=parse_time(found.get("Created")),
    )


def engine_event(message: Mapping[str, Any]) -> EngineEvent | None:
    """One message of GET /events; None for what Berth does not follow."""
    action = message.get("Action") or ""
    actor = message.get("Actor") or {}
    if message.get("Type") != "container" or action not in EVENTS:
        return None
    return EngineEvent(
        at=_EPOCH + timedelta(microseconds=int(message.get("timeNano") or 0) // 1000),
        action=action,
        container_id=actor.get("ID") or "",
        container_name=(actor.get("Attributes") or {}).get("name") or "",
    )


def parse_time(text: str | None) -> datetime | None:
    """Aware UTC, to the microsecond; None for a missing time and for Go's zero time, year 1."""
    found = _TIME.fullmatch(text or "")
    if found is None or found[1].startswith("0001-"):
        return None
    fraction = (found[2] or "").ljust(6, "0")[:6]
    zone = "+00:00" if found[3] in (None, "Z") else found[3]
    return datetime.fromisoformat(f"{found[1]}.{fraction}{zone}").astimezone(UTC)


def _state(word: str | None) -> ContainerState:
    """A word that is not known yet counts as up: what the container holds is freed only on proof that it is down."""
    try:
        return ContainerState(word or "")
    except ValueError:
        return ContainerState.RESTARTING
