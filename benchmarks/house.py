"""A scratch Berth: its own state folder, instance and ports; web, agent and supervisor as `berth up` leaves them.

Everything that it makes on the engine carries its instance id, which begins with t, and is gone when it closes.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypeVar

import engine
import requests
from processes import tree
from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.cli import children
from webapp.domain.actor import Actor
from webapp.domain.workspace import Phase, Service
from webapp.key_files import seal_of
from webapp.services import hosts, images, keys, people, workspaces
from webapp.settings import load_settings
from webapp.store.migrate import upgrade
from webapp.store.session import Store
from webapp.store.tables import AgentState, Member, PortClaim, Role, Workspace

USERNAME, PASSWORD = "bench", "correct horse battery"
START_SECONDS = 60.0
PHASE_SECONDS = 180.0
STEP_SECONDS = 0.01
STOP_SECONDS = 20.0
PR_SET_PDEATHSIG = 1        # prctl(2)

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


class HouseBroken(RuntimeError):
    """The scratch Berth did not do what it was started for."""


class House:
    """One Berth with one member and one image. Many threads may launch at once."""

    def __init__(self, engine_url: str, image: str, *, ports: Sequence[int]) -> None:
        """`ports`: free ones in a row: the first for web, the others for workspaces."""
        self.instance = f"t{secrets.token_hex(3)}"
        self.folder = Path(tempfile.mkdtemp(prefix="berth-benchmark-"))
        self.key = self.folder / "key"      # the member's, private
        self._image = image
        self._environment = self._environment_with(engine_url, ports)
        self._settings = load_settings(self._environment)
        self._store = Store(self._settings.database_url, seal=seal_of(self._settings))
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._browser = requests.Session()
        self._browser.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=64))
        self._member = Actor.house()
        self._form: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self._furnish()
            self._start()
            self._sign_in()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what people do

    def launch(self, name: str) -> tuple[str, float]:
        """Press the button: the workspace's id, and the moment (time.monotonic) before the request was sent."""
        began = time.monotonic()
        answer = self._browser.post(f"{self._settings.url}/launch", data={**self._form, "name": name},
                                    allow_redirects=False)
        if answer.status_code != requests.codes.see_other:
            raise HouseBroken(f"launch answered {answer.status_code}: {answer.text[:2000]}")
        return answer.headers["Location"].rstrip("/").rpartition("/")[2], began

    def remove(self, workspace_ids: Sequence[str]) -> None:
        """Remove them and wait until they are gone."""
        for workspace_id in workspace_ids:
            with self._store.write() as session:
                workspaces.remove(session, self._member, workspace_id, now=_now())
        for workspace_id in workspace_ids:
            self.wait_for(workspace_id, Phase.REMOVED)

    # -- what the database says

    def ports(self, workspace_id: str) -> tuple[int, int]:
        """SSH, Jupyter."""
        claims = select(PortClaim.service, PortClaim.port).where(PortClaim.workspace_id == workspace_id)
        with self._store.read() as session:
            found = dict(session.execute(claims).tuples().all())
        return found[Service.SSH], found[Service.JUPYTER]

    def wait_for(self, workspace_id: str, phase: Phase) -> datetime:
        """When the row came to say so.

        Raises:  HouseBroken: it failed, or PHASE_SECONDS are over.
        """
        deadline = time.monotonic() + PHASE_SECONDS
        while time.monotonic() < deadline:
            with self._store.read() as session:
                row = session.get_one(Workspace, workspace_id)
            if row.phase == phase and row.observed_generation == row.generation:
                return row.phase_at
            if row.phase == Phase.FAILED and phase != Phase.REMOVED:
                raise HouseBroken(f"{row.name} failed: {row.reason}\n{row.log_tail}")
            time.sleep(STEP_SECONDS)
        raise HouseBroken(f"{row.name} is {row.phase}, not {phase}, after {PHASE_SECONDS:.0f} s: {row.reason}")

    def troubles(self) -> str:
        """What went wrong with workspaces, and what web and agent have said last."""
        with self._store.read() as session:
            rows = session.scalars(select(Workspace).where(Workspace.reason.is_not(None))).all()
        return "\n".join([*(f"{row.id} {row.phase}: {row.reason}" for row in rows), self.log_tail()])

    # -- processes

    def processes(self) -> list[int]:
        """All of Berth: supervisor, agent, web, and what is below them."""
        return tree(self._running().pid)

    def processes_of(self, name: str) -> list[int]:
        """Those of one child of the supervisor, `agent` or `web`."""
        word = self._commands()[name][2]    # the module of `python -m`
        _supervisor, *below = self.processes()
        child = next(pid for pid in below if word in _command_line(pid))
        return tree(child)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._supervisor is None or self._supervisor.poll() is not None:
            raise HouseBroken(f"Berth does not run:\n{self.log_tail()}")
        return self._supervisor

    def _commands(self) -> dict[str, list[str]]:
        return {"agent": children.agent_command(), "web": children.web_command(self._settings)}

    def log_tail(self) -> str:
        """The end of what web, agent and supervisor have said."""
        return self._log().read_text()[-4000:]

    def _log(self) -> Path:
        return self.folder / "log"

    # -- start

    def _environment_with(self, engine_url: str, ports: Sequence[int]) -> dict[str, str]:
        """Ours, without the BERTH_ variables of whoever runs this."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        return {
            **kept, "BERTH_STATE_DIR": str(self.folder / "state"), "BERTH_ENGINE": engine_url,
            "BERTH_INSTANCE": self.instance, "BERTH_LISTEN": f"127.0.0.1:{ports[0]}",
            "BERTH_URL": f"http://localhost:{ports[0]}", "BERTH_WORKSPACE_HOST": "127.0.0.1",
            "BERTH_PORTS": f"{ports[1]}-{ports[-1]}", "BERTH_MAX_MEMORY": "1TiB", "BERTH_LOG_LEVEL": "warning",
        }

    def _furnish(self) -> None:
        """What `berth up` does before it starts anything, and a member with a key."""
        self._settings.state_dir.mkdir(exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        upgrade(self._store)
        with self._store.write() as session:
            hosts.ensure_local(session, name="benchmark", engine_url=self._settings.engine_url, now=_now())
            image = images.register_prepared(
                session, Actor.house(), base="benchmark/base:1", title="Benchmark", reference=self._image,
                cuda_version=None, has_jupyter=True, now=_now())
            self._member = Actor(self._add_member(session).id, is_admin=False)
        self._form = {"image_id": image.id, "cpus": "1", "memory": "1GiB", "shm": "", "gpu_way": "none"}

    def _add_member(self, session: Session) -> Member:
        member = people.create_member(session, Actor.house(), username=USERNAME, display_name="Benchmark",
                                      password=PASSWORD, role=Role.MEMBER, now=_now())
        keys.add_keys(session, Actor(member.id, is_admin=False), member_id=member.id, title="", now=_now(),
                      text=self.key.with_suffix(".pub").read_text())
        return member

    def _start(self) -> None:
        plan = {"children": [{"name": name, "command": command} for name, command in self._commands().items()]}
        with self._log().open("ab") as log:
            self._supervisor = subprocess.Popen(
                children.supervisor_command(json.dumps(plan)), env=self._environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, preexec_fn=_end_with_parent)
        self._until(self._agent_lives)
        self._until(self._web_answers)

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_so():
            self._running()
            if time.monotonic() > deadline:
                raise HouseBroken(f"Berth did not start in {START_SECONDS:.0f} s:\n{self.log_tail()}")
            time.sleep(STEP_SECONDS)

    def _agent_lives(self) -> bool:
        with self._store.read() as session:
            return session.get(AgentState, 1) is not None

    def _web_answers(self) -> bool:
        try:
            return self._browser.get(f"{self._settings.url}/healthz").ok
        except requests.ConnectionError:
            return False

    def _sign_in(self) -> None:
        form = {"csrf_token": self._csrf_token("/sign-in"), "username": USERNAME, "password": PASSWORD, "next": "/"}
        self._browser.post(f"{self._settings.url}/sign-in", data=form).raise_for_status()
        self._form["csrf_token"] = self._csrf_token("/launch")      # good for the whole session

    def _csrf_token(self, path: str) -> str:
        page = self._browser.get(f"{self._settings.url}{path}")
        found = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', page.text)
        if found is None:
            raise HouseBroken(f"no form at {path}: {page.status_code}")
        return found[1]

    # -- end

    def close(self) -> None:
        """End web and agent, then take everything off the engine, whatever became of it."""
        if self._supervisor is not None:
            self._supervisor.terminate()
            self._supervisor.wait(STOP_SECONDS)
        self._browser.close()
        self._store.close()
        engine.remove_all(self._settings.engine_url, self.instance)
        shutil.rmtree(self.folder)


def _end_with_parent() -> None:
    """A benchmark that is killed leaves no Berth behind."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _now() -> datetime:
    return datetime.now(UTC)
