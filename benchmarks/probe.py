"""Is it up? One prober for everything that is compared, and no code of Berth's in it."""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

READY_SECONDS = 120.0       # the longest wait for one workspace
TRY_SECONDS = 2.0
LOGIN_SECONDS = 60.0


class NotReady(RuntimeError):
    """A container did not come up in time, or the measurement was broken off."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where one container is reached, on 127.0.0.1. `key`: how the engine's events name it (see StartEvents)."""

    key: str
    ssh_port: int
    jupyter_port: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds since the request."""

    created: float      # the engine had made the container
    started: float      # … and started it
    ssh: float          # SSH greeted
    ready: float        # … and Jupyter's /api answered


class StartEvents:
    """When the engine made and started each container, as its events say (they come 2 ms after the fact).

    Probing before that would be useless and unfair: the first connections to a network that is being set up hang for a
    second, and they take CPU from what is measured.
    """

    def __init__(self, engine_url: str, key_label: str) -> None:
        """`key_label`: the label that names a container; one without it goes by its name."""
        self._api = docker.APIClient(base_url=engine_url, version="auto")
        self._key_label = key_label
        self._seen: dict[tuple[str, str], float] = {}
        self._changed = threading.Condition()
        self._stream = self._api.events(decode=True, filters={"type": "container", "event": ["create", "start"]})
        self._broken_off = False
        threading.Thread(target=self._listen, name="events", daemon=True).start()

    def wait(self, action: str, key: str) -> float:
        """The moment (time.monotonic) of `action`, create or start. Raises NotReady."""
        with self._changed:
            self._changed.wait_for(lambda: self._broken_off or (action, key) in self._seen, READY_SECONDS)
            if (action, key) not in self._seen:
                raise NotReady(f"no {action} event of {key}")
            return self._seen[action, key]

    def break_off(self) -> None:
        with self._changed:
            self._broken_off = True
            self._changed.notify_all()

    @property
    def broken_off(self) -> bool:
        return self._broken_off

    def close(self) -> None:
        self.break_off()
        self._api.close()

    def _listen(self) -> None:
        try:
            for event in self._stream:
                self._note(event, time.monotonic())
        except Exception:
            self.break_off()    # closed, or the engine went away: nobody may wait for events that cannot come

    def _note(self, event: dict[str, Any], at: float) -> None:
        attributes = event["Actor"]["Attributes"]
        with self._changed:
            self._seen[event["Action"], attributes.get(self._key_label) or attributes["name"]] = at
            self._changed.notify_all()


def watch(target: Target, events: StartEvents, began: float, *, step_seconds: float) -> Timing:
    """Follow one container until SSH greets and Jupyter answers. `began`: time.monotonic() of the request."""
    created, started = (events.wait(action, target.key) for action in ("create", "start"))
    ssh = _until(lambda: _ssh_greets(target.ssh_port), events, step_seconds)
    ready = _until(lambda: _jupyter_answers(target.jupyter_port), events, step_seconds)
    return Timing(created - began, started - began, ssh - began, ready - began)


def log_in(target: Target, username: str, key: Path) -> float:
    """Seconds that OpenSSH takes to run `true` there. Raises NotReady when it cannot."""
    options = ("BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null",
               "LogLevel=ERROR")
    command = ["ssh", "-F", "/dev/null", "-i", str(key), "-p", str(target.ssh_port),
               *(word for option in options for word in ("-o", option)), f"{username}@127.0.0.1", "true"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOGIN_SECONDS, check=False,
                          start_new_session=True)
    if done.returncode:
        raise NotReady(f"ssh to {target.key}: {done.stderr.strip()}")
    return time.monotonic() - began


def _until(answers: Callable[[], bool], events: StartEvents, step_seconds: float) -> float:
    deadline = time.monotonic() + READY_SECONDS
    while not answers():
        if events.broken_off or time.monotonic() > deadline:
            raise NotReady("no answer")
        time.sleep(step_seconds)
    return time.monotonic()


def _ssh_greets(port: int) -> bool:
    """A connection alone proves nothing: Docker's proxy accepts for anybody."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TRY_SECONDS) as connection:
            return connection.recv(8) == b"SSH-2.0-"
    except OSError:
        return False


def _jupyter_answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TRY_SECONDS)
    try:
        connection.request("GET", "/api")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
