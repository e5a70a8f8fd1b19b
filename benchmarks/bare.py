"""The other side of the comparison: `docker run -d` of the same image, with what Berth's own container has.

The command line is made from `docker inspect` of a workspace that Berth has just launched, and what comes out of it is
compared with that again. The files that Berth writes are in the volumes before the clock starts; passwd and group,
which no volume holds, are bind-mounted.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
import docker.errors
from engine import LABEL

RUN_SECONDS = 120.0
SECRETS = "/etc/berth"
ACCOUNTS = ("/etc/passwd", "/etc/group")
# What one and the same wish becomes different by: its ports, the files bound for ACCOUNTS, the terminal's size.
_OWN = {"PortBindings", "Mounts", "Binds", "ConsoleSize", "ContainerIDFile"}
_CONFIG = ("Image", "User", "Env", "Cmd", "Entrypoint", "WorkingDir", "StopSignal", "Healthcheck", "ExposedPorts",
           "Tty", "OpenStdin")
_FLAGS = {          # field of HostConfig → flag, for what goes over as it stands
    "Memory": "--memory", "MemorySwap": "--memory-swap", "ShmSize": "--shm-size", "PidsLimit": "--pids-limit",
    "IpcMode": "--ipc", "NetworkMode": "--network",
}
_LISTS = {"CapDrop": "--cap-drop", "SecurityOpt": "--security-opt", "GroupAdd": "--group-add"}

Inspected = Mapping[str, Any]


class Bare:
    """Containers of `docker run` like the workspace `model`, known by number; each can be made again and again."""

    def __init__(self, engine_url: str, instance: str, model: Inspected, *, ports: Sequence[int], folder: Path) -> None:
        """`ports`: two for each container, SSH and Jupyter. `folder`: for the files that are bound."""
        self._url = engine_url
        self._api = docker.APIClient(base_url=engine_url, version="auto", timeout=120, max_pool_size=64)
        self._label = {LABEL: instance}
        self._prefix = f"berth-{instance}-bare"
        self._model = model
        self._all_ports = ports
        self._folder = folder
        self._home = f"{self._prefix}-home"

    def prepare(self) -> None:
        """Volumes with the very files of the model's, and its accounts as files."""
        for path in ACCOUNTS:
            self._bound(path).write_bytes(_only_file(self._archive(path)))
        home = self._mount_at_home()["Target"]
        self._fill(self._home, home)
        for number in range(len(self._all_ports) // 2):
            self._fill(self._volume(number), SECRETS)

    def name(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def ports(self, number: int) -> tuple[int, int]:
        """SSH, Jupyter."""
        return self._all_ports[2 * number], self._all_ports[2 * number + 1]

    def command(self, number: int) -> list[str]:
        ssh, jupyter = self.ports(number)
        own = ["--name", self.name(number), "--publish", f"127.0.0.1:{ssh}:2222", "--publish",
               f"127.0.0.1:{jupyter}:8888", *self._mounts(number)]
        return ["docker", "--host", self._url, "run", "--detach", "--label", f"{LABEL}={self._label[LABEL]}",
                *flags(self._model), *own, self._model["Config"]["Image"]]

    def run(self, number: int) -> None:
        """Until the container has started. In a session of its own: Ctrl-C is not for it."""
        done = subprocess.run(self.command(number), capture_output=True, text=True, timeout=RUN_SECONDS, check=False,
                              start_new_session=True)
        if done.returncode:
            raise RuntimeError(f"docker run: {done.stderr.strip()}")

    def differences(self, number: int) -> list[str]:
        """Where a container that runs is not like the model, ports and names aside."""
        return differences(self._model, self._api.inspect_container(self.name(number)))

    def remove(self, number: int) -> None:
        with contextlib.suppress(docker.errors.NotFound):
            self._api.remove_container(self.name(number), force=True)

    def _mounts(self, number: int) -> list[str]:
        volumes = [(self._volume(number), SECRETS), (self._home, self._mount_at_home()["Target"])]
        mounts = [f"type=volume,source={name},target={target},volume-nocopy" for name, target in volumes]
        mounts += [f"type=bind,source={self._bound(path)},target={path}" for path in ACCOUNTS]
        return [word for mount in mounts for word in ("--mount", mount)]

    def _mount_at_home(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(
            mount for mount in self._model["HostConfig"]["Mounts"] if mount["Target"].startswith("/home/"))
        return found

    def _fill(self, volume: str, target: str) -> None:
        self._api.create_volume(volume, labels=self._label)
        with self._helper(volume, target) as helper:
            self._api.put_archive(helper, str(Path(target).parent), self._archive(target))

    @contextlib.contextmanager
    def _helper(self, volume: str, target: str) -> Iterator[str]:
        """A container that is never started: archives reach into its volumes."""
        config = self._api.create_host_config(binds=[f"{volume}:{target}:nocopy"])
        made: str = self._api.create_container(
            self._model["Config"]["Image"], host_config=config, labels=self._label)["Id"]
        try:
            yield made
        finally:
            self._api.remove_container(made, force=True)

    def _archive(self, path: str) -> bytes:
        stream, _ = self._api.get_archive(self._model["Id"], path)
        return b"".join(stream)

    def _volume(self, number: int) -> str:
        return f"{self._prefix}-etc-{number}"

    def _bound(self, path: str) -> Path:
        return self._folder / Path(path).name


def flags(model: Inspected) -> list[str]:
    """Flags of `docker run` for everything but name, ports, mounts and image."""
    config, host = model["Config"], model["HostConfig"]
    words = ["--hostname", config["Hostname"], "--user", config["User"], "--workdir", config["WorkingDir"],
             "--stop-signal", config["StopSignal"], "--no-healthcheck", "--cpus", f"{host['NanoCpus'] / 1e9:g}"]
    for variable in config["Env"]:
        words += ["--env", variable]
    for field, flag in _FLAGS.items():
        words += [flag, str(host[field])]
    for field, flag in _LISTS.items():
        words += [word for value in host[field] or () for word in (flag, value)]
    for limit in host["Ulimits"] or ():
        words += ["--ulimit", f"{limit['Name']}={limit['Soft']}:{limit['Hard']}"]
    words += ["--log-driver", host["LogConfig"]["Type"]]
    for name, value in host["LogConfig"]["Config"].items():
        words += ["--log-opt", f"{name}={value}"]
    return words


def differences(one: Inspected, other: Inspected) -> list[str]:
    """Fields of two inspected containers that matter and are not the same; absent and empty are."""
    fields = [("HostConfig", name) for name in sorted({*one["HostConfig"], *other["HostConfig"]} - _OWN)]
    fields += [("Config", name) for name in _CONFIG]
    return [f"{part}.{name}: {_plain(one, part, name)!r} and {_plain(other, part, name)!r}" for part, name in fields
            if _plain(one, part, name) != _plain(other, part, name)]


def _plain(inspected: Inspected, part: str, name: str) -> Any:
    value = inspected[part].get(name)
    if isinstance(value, list):
        return sorted(value, key=str) or None
    return value or None


def _only_file(archive: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        file = opened.extractfile(opened.getmembers()[0])
        return file.read() if file else b""
