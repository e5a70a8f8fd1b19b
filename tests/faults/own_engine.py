"""An engine that a test may stop, kill, freeze and fill: its own folder, its own network namespace."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import docker
import parts

from faults import standin
from faults.house import Ground
from faults.namespaces import namespace
from faults.toolkit import Toolkit
from faults.waiting import until
from webapp.simulation.state import Simulation

SCRIPT = parts.ROOT / "scripts" / "test_engine.py"
private = parts.load(SCRIPT)


@dataclass
class OwnEngine:
    scratch: Path
    namespace: str
    _command: list[str] = field(default_factory=list)       # of dockerd, to start it again as it was
    _process: subprocess.Popen[bytes] | None = None         # where this process started it

    @property
    def url(self) -> str:
        return f"unix://{self.scratch}/docker.sock"

    @property
    def toolkit(self) -> Toolkit:
        """Of an engine that was opened with cards."""
        return Toolkit(self.scratch)

    def start(self) -> None:
        """As a machine that boots: whatever an earlier one left running is ended first."""
        self._forget_bridge()
        self._script("start")
        self._command = [private.DOCKERD, *Path(f"/proc/{self.pid}/cmdline").read_text().rstrip("\0").split("\0")[1:]]

    def start_again(self) -> None:
        """As a supervisor does it: on top of what still runs."""
        with Path(self.scratch, "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, *self._command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env={**os.environ, "PATH": f"{self.scratch / 'bin'}:{os.environ['PATH']}"})
        until(lambda: private.status(self.scratch), what=lambda: Path(self.scratch, "dockerd.log").read_text()[-2000:])

    @property
    def pid(self) -> int:
        return int(Path(self.scratch, "dockerd.pid").read_text())

    def terminate(self) -> None:
        """It stops its containers first."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Its containers go on, without it."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def clean(self) -> None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
            self.thaw()
        if self._process is not None:       # a child of ours: the script would wait for somebody to reap it
            self._process.terminate()
            self._process.wait(60)
        self._script("clean")

    @property
    def _prefix(self) -> Sequence[str]:
        return ("nsenter", f"--net=/var/run/netns/{self.namespace}")

    def _end(self, number: signal.Signals) -> None:
        """And its containerd, which goes with it: a new dockerd takes one that nobody has reaped yet for alive."""
        pids = [self.pid, int(Path(self.scratch, "exec/containerd/containerd.pid").read_text())]
        os.kill(pids[0], number)
        until(lambda: self._reap() and not any(Path(f"/proc/{pid}").exists() for pid in pids), what="dockerd's end")

    def _reap(self) -> bool:
        """True when no child of this process is left."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return self._process is None

    def _forget_bridge(self) -> None:
        """A boot leaves none. The script looks into /sys, which shows another namespace's."""
        with contextlib.suppress(FileNotFoundError):
            bridge = json.loads(Path(self.scratch, "daemon.json").read_text())["bridge"]
            subprocess.run(["ip", "-n", self.namespace, "link", "delete", bridge], check=False, capture_output=True)

    def _script(self, verb: str) -> None:
        argv = [*self._prefix, sys.executable, str(SCRIPT), verb, "--scratch", str(self.scratch)]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def own_engine(
    name: str, *, disk_bytes: int | None = None, cards: Simulation | None = None,
) -> Iterator[tuple[OwnEngine, Ground]]:
    """Running, with the stand-in's images.

    Args:  name: letters, part of its namespace's name.   disk_bytes: size of its disk; None = the machine's own.
           cards: what its toolkit hands out, and an image with a Python to see them by; None = it has no toolkit.
    """
    scratch = Path(tempfile.mkdtemp(prefix="bt-"))      # short: paths of sockets below it have 107 bytes at most
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        inside = stack.enter_context(namespace(f"{parts.NAMESPACE}{name}-{os.getpid()}"))
        engine = OwnEngine(scratch, inside)
        if disk_bytes:
            stack.enter_context(_small_disk(scratch / "data", disk_bytes))
        if cards:
            engine.toolkit.set_up(cards)
        stack.callback(engine.clean)
        engine.start()
        client = stack.enter_context(contextlib.closing(docker.DockerClient(base_url=engine.url, timeout=120)))
        standin.make_images(client)
        if cards:
            standin.make_image_with_python(client)
        yield engine, Ground(engine.url, client, namespace=inside)


@contextlib.contextmanager
def _small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=711", "berth-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)
