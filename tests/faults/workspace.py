"""One workspace as a test sees it: its row, its container, and the ways in."""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import subprocess
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker.errors
from sqlalchemy import select

from faults.waiting import until
from webapp.domain.workspace import Phase
from webapp.services import changes, workspaces
from webapp.services.changes import ChangeRequest
from webapp.store import tables
from webapp.web.connect import Way

if TYPE_CHECKING:
    from faults.house import House, Person

_CARD = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{36}")
WAIT_SECONDS = 90.0     # machines that run tests are busy
ADDRESS = "127.0.0.1"


def now() -> datetime:
    return datetime.now(UTC)


class Workspace:
    def __init__(self, house: House, owner: Person, id_: str) -> None:
        self.house, self.owner, self.id = house, owner, id_

    # -- its row

    def row(self) -> tables.Workspace:
        with self.house.store.read() as session:
            return session.get_one(tables.Workspace, self.id)

    def secret(self) -> tables.WorkspaceSecret:
        with self.house.store.read() as session:
            return session.get_one(tables.WorkspaceSecret, self.id)

    def ports(self) -> dict[str, int]:
        claims = select(tables.PortClaim).where(tables.PortClaim.workspace_id == self.id)
        with self.house.store.read() as session:
            return {claim.service: claim.port for claim in session.scalars(claims)}

    def cards(self) -> list[str]:
        """UUIDs that it holds, ascending."""
        claims = select(tables.GpuClaim.gpu_uuid).where(tables.GpuClaim.workspace_id == self.id)
        with self.house.store.read() as session:
            return sorted(session.scalars(claims))

    @property
    def private_volume(self) -> str:
        return f"berth-{self.house.instance}-w-{self.id}"

    # -- wishes

    def start(self) -> Workspace:
        return self._wish(workspaces.start)

    def stop(self) -> Workspace:
        return self._wish(workspaces.stop)

    def remove(self) -> Workspace:
        return self._wish(workspaces.remove)

    def change(self, *, start: bool = False, **typed: Any) -> Workspace:
        """As services.changes has it."""
        return self._wish(changes.change, ChangeRequest(**typed), house=self.house.rules, start=start)

    def _wish(self, service: Callable[..., Any], *asked: Any, **named: Any) -> Workspace:
        with self.house.store.write() as session:
            service(session, self.owner.actor, self.id, *asked, now=now(), **named)
        return self

    # -- waiting

    def until(self, phase: Phase, *, seconds: float = WAIT_SECONDS) -> tables.Workspace:
        """The row once this phase answers the last wish. A workspace that failed meanwhile is not waited for."""
        def arrived() -> tables.Workspace | None:
            row = self.row()
            settled = row.observed_generation == row.generation
            if settled and row.phase == Phase.FAILED != phase:
                raise AssertionError(self.how_it_is())
            return row if settled and row.phase == phase else None

        return until(arrived, seconds=seconds, what=lambda: f"{phase}, but {self.how_it_is()}")  # type: ignore[return-value]

    def until_row(
        self, holds: Callable[[tables.Workspace], bool], *, seconds: float = WAIT_SECONDS,
    ) -> tables.Workspace:
        def row() -> tables.Workspace | None:
            found = self.row()
            return found if holds(found) else None

        return until(row, seconds=seconds, what=self.how_it_is)  # type: ignore[return-value]

    def how_it_is(self) -> str:
        row = self.row()
        return (f"{row.phase} (wanted {row.desired}, generation {row.generation}, observed {row.observed_generation}, "
                f"failures {row.failures}), reason {row.reason}, note {row.note}\nlog tail: {row.log_tail}\n"
                f"{self.house.how_it_is()}")

    # -- its container

    def containers(self) -> list[Any]:
        return [one for one in self.house.containers() if one.attrs["Labels"].get("berth.workspace") == self.id]

    def container(self) -> Any:
        """The one of the revision that is on record, inspected."""
        return self.house.docker.containers.get(f"berth-{self.house.instance}-w-{self.id}-r{self.row().revision}")

    def run(self, *argv: str, user: str | None = None) -> str:
        """Output of a program run inside by the engine; as the person unless `user` is given."""
        status, output = self.container().exec_run(list(argv), user=user or str(self.owner.uid))
        text = str(output.decode(errors="replace"))
        assert status == 0, f"{argv} ended with {status}: {text}"
        return text

    def cards_inside(self) -> list[str]:
        """UUIDs that nvidia-smi lists in it, ascending."""
        return sorted(_CARD.findall(self.run("nvidia-smi", "-L")))

    def read_file(self, path: str) -> bytes:
        """Also from a container that is down."""
        pieces, _ = self.container().get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            content = archive.extractfile(archive.getmembers()[0])
            assert content is not None
            return content.read()

    def has_file(self, path: str, container: str) -> bool:
        """In that one of its containers, also when it is down."""
        with contextlib.suppress(docker.errors.NotFound):
            self.house.docker.api.get_archive(container, path)[0].close()   # type: ignore[attr-defined]
            return True
        return False

    # -- the ways in

    def known_hosts(self) -> Path:
        """The lines that the page shows, in a file."""
        path = self.house.folder / f"known-{self.id}"
        path.write_text(self.way().known_hosts + "\n")
        return path

    def way(self) -> Way:
        return Way(workspace_id=self.id, name=self.row().name, username=self.owner.username, host=ADDRESS,
                   port=self.ports()["ssh"], instance=self.house.instance,
                   host_public_key=self.secret().host_public_key)

    def ssh_argv(self, *options: str) -> list[str]:
        return [
            *self.house.ground.prefix, "ssh", "-F", "none", "-i", str(self.owner.key.path), "-o", "BatchMode=yes",
            "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes",
            "-o", f"UserKnownHostsFile={self.known_hosts()}", "-o", "GlobalKnownHostsFile=none",
            "-p", str(self.ports()["ssh"]), *options, f"{self.owner.username}@{ADDRESS}",
        ]

    def ssh(self, command: str, *, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*self.ssh_argv(), command], input=stdin, capture_output=True, timeout=120)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(errors="replace"),
                                           done.stderr.decode(errors="replace"))

    def said(self, command: str) -> str:
        """What a command says over SSH; it must succeed."""
        done = self.ssh(command)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def http(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None, token: str = "",
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body from Jupyter's published port; redirects are not followed."""
        connection = http.client.HTTPConnection(ADDRESS, self.ports()["jupyter"], timeout=30)
        sent = {**(headers or {}), **({"Authorization": f"token {token}"} if token else {})}
        try:
            connection.request(method, path, body=body or None, headers=sent)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def greets(self) -> bool:
        """Whether SSH answers on its port now."""
        try:
            with self.house.ground.connect(self.ports()["ssh"]) as connection:
                return connection.recv(8) == b"SSH-2.0-"
        except OSError:
            return False
