"""The supervisor with real processes: restarts, stops, and leaves nothing behind when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webapp.cli import supervisor

# A child that writes its process id, then does what its argument says.
CHILD = """
import os, signal, sys, time
path, what = sys.argv[1:]
if what == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(path, "a") as out:
    out.write(f"{os.getpid()}\\n")
if what == "die":
    sys.exit(7)
if what == "refuse":
    sys.exit(6)
time.sleep(60)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(one="sleep", …): the supervisor with these children; each writes its ids into tmp_path/name."""
    started: list[subprocess.Popen[str]] = []

    def run(**children: str) -> subprocess.Popen[str]:
        plan: dict[str, Any] = {"children": [
            {"name": name, "command": [sys.executable, "-c", CHILD, str(tmp_path / name), what.removesuffix(" once")],
             "once": what.endswith(" once")} for name, what in children.items()], "final": [6]}
        process = subprocess.Popen([sys.executable, supervisor.__file__, json.dumps(plan)],
                                   stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


@pytest.fixture
def ids(tmp_path: Path) -> Callable[..., list[int]]:
    """ids("web", 2): the process ids that it wrote, as soon as there are two."""
    def read(name: str, count: int = 1) -> list[int]:
        path = tmp_path / name
        wait_until(lambda: path.exists() and path.read_text().count("\n") >= count)
        return [int(line) for line in path.read_text().splitlines()]
    return read


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_all_children(start: Start, ids: Callable[..., list[int]], number: signal.Signals) -> None:
    process = start(web="sleep", agent="sleep")
    pids = ids("web") + ids("agent")
    process.send_signal(number)
    assert process.wait(timeout=5) == 0
    assert not any(map(is_there, pids))


def test_child_that_dies_is_started_again_and_said(start: Start, ids: Callable[..., list[int]]) -> None:
    process = start(web="sleep")
    first, = ids("web")
    os.kill(first, signal.SIGKILL)
    assert len(set(ids("web", 2))) == 2
    process.terminate()
    assert process.stderr is not None
    assert "web was ended by SIGKILL; starting it again in 1 s" in process.stderr.read()


def test_child_that_runs_once_is_not_started_again(start: Start, ids: Callable[..., list[int]]) -> None:
    process = start(announce="die once", web="die")
    ids("web", 2)
    assert len(ids("announce")) == 1
    process.terminate()
    assert process.wait(timeout=5) == 0


def test_child_that_ends_for_good_ends_all_with_its_code(
    start: Start, ids: Callable[..., list[int]], tmp_path: Path,
) -> None:
    process = start(web="sleep", agent="refuse")
    assert process.wait(timeout=5) == 6
    others = tmp_path / "web"           # it may not even have come to write its id
    assert len(ids("agent")) == 1 and not (others.exists() and any(map(is_there, ids("web"))))
    assert process.stderr is not None and "starting it again" not in process.stderr.read()


def test_pauses_grow_and_have_an_end() -> None:
    child = supervisor.Child("web", [])
    pauses = []
    for _ in range(7):
        supervisor._put_off(child)
        pauses.append(child.pause_seconds)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_children_end_with_a_supervisor_that_was_killed(start: Start, ids: Callable[..., list[int]]) -> None:
    process = start(web="sleep", agent="sleep")
    pids = ids("web") + ids("agent")
    process.kill()
    wait_until(lambda: not any(map(is_there, pids)))


def test_second_signal_does_not_wait_for_a_stubborn_child(start: Start, ids: Callable[..., list[int]]) -> None:
    process = start(web="stubborn")
    pid, = ids("web")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in (process.stderr.readline() if process.stderr else ""))
    process.send_signal(signal.SIGINT)
    process.wait(timeout=supervisor.STOP_SECONDS - 1)
    assert not is_there(pid)


def test_program_that_is_not_there_is_said_and_tried_again(tmp_path: Path) -> None:
    child = supervisor.Child("web", [str(tmp_path / "nothing")])
    supervisor._start_when_due(child)
    assert child.process is None and child.pause_seconds == 1


def test_supervisor_needs_nothing_but_the_standard_library() -> None:
    """It stays in memory as long as Berth runs."""
    source = "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]); import supervisor; " \
             "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    done = subprocess.run([sys.executable, "-I", "-c", source, str(Path(supervisor.__file__).parent)],
                          capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["supervisor"]
