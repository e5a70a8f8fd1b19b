"""ContainerSpec → the body of POST /containers/create. Pure, and the only place that decides what a container may be.

Every field is set, harmless defaults too: an image that was committed from a container carries that container's
settings, and an engine's configuration file changes what an absent field means. What has no field in ContainerSpec
(privileged, devices, capabilities, namespaces of the host) has no way into the body.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from webapp.domain.container import ContainerSpec, FolderMount, PublishedPort, VolumeMount
from webapp.domain.mounts import parse_host_folder
from webapp.engines import NETWORK_PREFIX
from webapp.engines.docker import gpus
from webapp.errors import InvalidInput

# NCCL pins memory and PyTorch's DataLoader opens a file per tensor; both fail on the kernel's defaults.
# An engine without CAP_SYS_RESOURCE cannot raise them: see rlimits.py.
RLIMITS = {"memlock": -1, "stack": 64 * 1024 * 1024, "nofile": 65536}   # bytes, bytes, files; -1 = unlimited
LOG_OPTIONS = {"max-size": "10m", "max-file": "3"}      # json-file has no cap by default (moby#27957)

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMED_THING = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def container_body(
    spec: ContainerSpec, rlimits: Mapping[str, int] = RLIMITS, cdi_gpus: Collection[str] = frozenset(),
) -> dict[str, Any]:
    """The whole body. `rlimits`: what this engine is able to set, see rlimits.py. `cdi_gpus`: UUIDs it knows by CDI.

    Cmd null = the image's own. Entrypoint null = always the image's own, which a commit keeps.

    Raises: ValueError: a part of `spec` that would reach further than ContainerSpec promises.
    """
    if not spec.network.startswith(NETWORK_PREFIX):
        raise ValueError(f"not a network of Berth's: {spec.network!r}")     # "host" and "container:…" go here too
    return {
        "Image": spec.image,
        "Hostname": spec.hostname,
        "User": f"{spec.uid}:{spec.gid}",
        "Env": [*_environment(spec.environment), *gpus.environment(spec.gpus, cdi_gpus)],
        "Labels": dict(spec.labels),
        "Cmd": list(spec.command) or None,
        "Entrypoint": None,
        "WorkingDir": spec.working_dir,
        "Healthcheck": {"Test": ["NONE"]},     # 155 ms of CPU each; Berth probes over the ports
        "StopSignal": "SIGTERM",
        "ExposedPorts": {f"{port.container_port}/tcp": {} for port in spec.ports},
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "HostConfig": _host_config(spec, rlimits, cdi_gpus),
        "NetworkingConfig": {"EndpointsConfig": {spec.network: {}}},
    }


def _host_config(
    spec: ContainerSpec, rlimits: Mapping[str, int], cdi_gpus: Collection[str]
) -> dict[str, Any]:
    limits = spec.limits
    return {
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,      # absent would be twice the memory (measured)
        "ShmSize": limits.shm_bytes,
        "NanoCpus": limits.cpu_millis * 1_000_000,
        "PidsLimit": limits.pids,
        "OomKillDisable": False,
        "Privileged": False,
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Devices": [],
        "DeviceRequests": gpus.device_requests(spec.gpus, cdi_gpus),
        "DeviceCgroupRules": [],
        "IpcMode": "private",       # an engine may have "shareable" as its default
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",           # as the engine is set up; "host" would undo userns-remap
        "GroupAdd": [str(gid) for gid in spec.group_ids],
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in sorted(rlimits.items())],
        "LogConfig": {"Type": "json-file", "Config": dict(LOG_OPTIONS)},
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},    # the agent decides (for-linux#1130)
        "AutoRemove": False,
        "Init": False,              # the image brings tini
        "ReadonlyRootfs": False,
        "PublishAllPorts": False,
        "PortBindings": _port_bindings(spec.ports),
        "Binds": [],                # the short form cuts paths at colons (docker-py#2041); Mounts do not
        "Mounts": [_mount(mount) for mount in (*spec.mounts, *spec.gpus.mounts)],
        "VolumesFrom": [],
        "Links": [],
        "NetworkMode": spec.network,
    }


def _environment(environment: Mapping[str, str]) -> list[str]:
    """What decides about GPUs or gets into every process cannot come from a person; GPUs come with a claim only."""
    for name, value in environment.items():
        if not _ENVIRONMENT_NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"not a variable of an environment: {name!r}")
    return [f"{name}={value}" for name, value in environment.items() if not is_reserved_variable(name)]


def is_reserved_variable(name: str) -> bool:
    return gpus.is_reserved(name) or name == "LD_PRELOAD"


def _port_bindings(ports: Iterable[PublishedPort]) -> dict[str, list[dict[str, str]]]:
    """One address and one port each: left to the engine, IPv4 and IPv6 got different ports (moby#43246)."""
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in ports:
        if not port.host_address or not 0 < port.host_port < 65536:
            raise ValueError(f"not one address and one port: {port}")
        key = f"{port.container_port}/tcp"
        bindings.setdefault(key, []).append({"HostIp": port.host_address, "HostPort": str(port.host_port)})
    return bindings


def _mount(mount: VolumeMount | FolderMount) -> dict[str, Any]:
    if isinstance(mount, FolderMount):
        return {
            "Type": "bind",
            "Source": _folder(mount.source),
            "Target": mount.target,
            "ReadOnly": mount.read_only,
            # rprivate: what is mounted inside stays inside. A folder that is missing is an error, not made.
            "BindOptions": {"Propagation": "rprivate", "CreateMountpoint": False},
        }
    if not _NAMED_THING.fullmatch(mount.volume):
        raise ValueError(f"not a volume's name: {mount.volume!r}")
    return {
        "Type": "volume",
        "Source": mount.volume,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "VolumeOptions": {"NoCopy": True, "Labels": dict(mount.labels)},
    }


def _folder(source: str) -> str:
    """Last look at the text of a path: nothing that is the host's system, and no socket of an engine."""
    try:
        path = parse_host_folder(source, roots=("/",))
    except InvalidInput as error:
        raise ValueError(f"not a folder for workspaces: {source!r}") from error
    if path.endswith(".sock"):
        raise ValueError(f"not a folder for workspaces: {source!r}")
    return path
