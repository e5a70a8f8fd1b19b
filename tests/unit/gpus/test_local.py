"""Running nvidia-smi here: deadlines hold whatever the program does, and there is never a second one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from webapp.gpus import local
from webapp.gpus.local import LocalRunner
from webapp.gpus.output import NoAnswer, Output
from webapp.gpus.query import inventory

DEADLINE_SECONDS = 0.3


@pytest.fixture
def runner() -> Iterator[LocalRunner]:
    runner = LocalRunner(deadline_seconds=DEADLINE_SECONDS)
    yield runner
    runner.close()


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def until_free(runner: LocalRunner) -> Output:
    """The first answer after what was overdue has gone; it must go within seconds."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        output = runner(sh("echo free"))
        if not output.no_answer:
            return output
        time.sleep(0.02)
    raise AssertionError("still overdue")


def test_output_and_exit_code_of_both_streams() -> None:
    output = LocalRunner()(sh("printf 'a\\377b\\n'; echo oops >&2; exit 9"))
    assert (output.exit_code, output.stdout, output.stderr, output.no_answer) == (9, "a\ufffdb\n", "oops\n", None)
    assert output.text == "a\ufffdb\n\noops\n"


def test_language_of_the_machine_does_not_matter() -> None:
    assert LocalRunner(environment={"LC_ALL": "xx", "BERTH": "1"})(sh("echo $LC_ALL $BERTH")).stdout == "C 1\n"


def test_missing_program_is_said_to_be_missing(runner: LocalRunner, tmp_path: Path) -> None:
    assert runner([str(tmp_path / "nvidia-smi")]).no_answer is NoAnswer.MISSING
    (tmp_path / "file").write_text("")
    assert runner([str(tmp_path / "file")]).no_answer is NoAnswer.MISSING


def test_machine_without_nvidia_smi_has_trouble_and_no_cards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = inventory(LocalRunner())
    assert seen.trouble is not None and seen.trouble.code == "smi_missing"


@pytest.mark.parametrize("script", [
    "echo early; sleep 60",
    "kill -STOP $$",                                # like state D, it does not act on a request to end
    "trap '' TERM; sleep 60 & wait; sleep 60",
    "exec >&- 2>&-; sleep 60",                      # nothing more to read, and still there
], ids=["slow", "stopped", "deaf", "silent"])
def test_deadline_holds_and_no_second_one_is_started(
    runner: LocalRunner, script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began = time.monotonic()
    late = runner(sh(script))
    first = time.monotonic() - began
    assert late.no_answer is NoAnswer.LATE and late.exit_code is None and first < DEADLINE_SECONDS + 1
    if "STOP" in script or "trap" in script:
        began = time.monotonic()
        assert runner(sh(f"touch {tmp_path}/second")).no_answer is NoAnswer.LATE
        assert time.monotonic() - began < 0.2 and not (tmp_path / "second").exists()
        monkeypatch.setattr(local, "KILL_AFTER_SECONDS", 0.0)
    assert until_free(runner).stdout == "free\n"


def test_what_was_printed_before_the_deadline_is_kept(runner: LocalRunner) -> None:
    assert runner(sh("echo early; sleep 60")).stdout == "early\n"


def test_endless_output_is_cut(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_BYTES", 100_000)
    output = runner([sys.executable, "-c", "while True: print('x' * 10000)"])
    assert output.no_answer in (NoAnswer.UNREADABLE, NoAnswer.LATE) and len(output.stdout) < 400_000
    assert until_free(runner).stdout == "free\n"


def test_a_program_of_the_program_ends_with_it(runner: LocalRunner, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    runner(sh(f"sleep 60 & echo $! > {pid_file}; wait"))
    until_free(runner)
    end = time.monotonic() + 5
    while is_running(int(pid_file.read_text())):
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
