"""The agent and the web as processes of their own, which a test may kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from faults.waiting import until

ROOT = Path(__file__).parents[2]
PLAIN = ("-m", "webapp.cli.agent_process")                          # what `berth up` starts
CRASHING = (str(Path(__file__).with_name("crashing_agent.py")),)    # the same, with a wrapper around the engine
WEB = ("-c", "from webapp.cli.root import main; main()", "web")
START_SECONDS = 60.0
STOP_SECONDS = 30.0


class Process:
    """One of them. Its log goes to a file, so that nobody has to read a pipe."""

    def __init__(
        self, entry: Sequence[str], environment: Mapping[str, str], log: Path, *, prefix: Sequence[str] = (),
    ) -> None:
        """`entry`: arguments for Python.   `prefix`: a command line that runs another one, such as nsenter."""
        self.log = log
        self._skip = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, *entry], cwd=ROOT, env=dict(environment), stdin=subprocess.DEVNULL,
                stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_started(self, sign: Callable[[], bool]) -> None:
        until(lambda: sign() or not self.is_alive, seconds=START_SECONDS, what=self.said)
        assert self.is_alive, f"it ended with {self._process.returncode}:\n{self.said()}"

    def wait_dead(self, seconds: float = 60.0) -> int:
        """Its exit status."""
        until(lambda: not self.is_alive, seconds=seconds, what=lambda: f"its end:\n{self.said()[-3000:]}")
        return self._process.returncode

    @property
    def is_paused(self) -> bool:
        """By SIGSTOP: none of its threads runs."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As a power cut does it."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        self._end(signal.SIGTERM)
        return self._process.returncode

    def said(self) -> str:
        """The log of this process alone."""
        with self.log.open("rb") as file:
            file.seek(self._skip)
            return file.read().decode(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        if self.is_alive:
            os.kill(self.pid, number)
            self.resume()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._process.wait()
            raise AssertionError(f"it did not stop:\n{self.said()[-3000:]}") from None
