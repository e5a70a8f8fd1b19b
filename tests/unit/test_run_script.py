"""./run on machines that lack something: one sentence, and nothing done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "dirname", "readlink", "sha256sum", "cat", "id", "rm", "env")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Only what ./run looks at before it makes anything."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("run", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with the shell's tools and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(str(shutil.which(tool)))
    return folder


def python(path: Path, version: str, *, venv: bool = True) -> None:
    """A stand-in for python3 that says it is of some version, and with or without the venv module."""
    new_enough = tuple(map(int, version.split("."))) >= (3, 11)
    script = path / "python3"
    script.write_text(f"""#!/bin/sh
case "$2" in
    *platform*) echo "Python {version}" ;;
    *ensurepip*) exit {int(not (new_enough and venv))} ;;
    *) exit {int(not new_enough)} ;;
esac
""")
    script.chmod(0o755)


def run(checkout: Path, path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = (checkout / "run").read_text().replace('export PATH="$PATH:', 'export PATH="$PATH" #')
    (checkout / "run").write_text(source)   # the real one adds the folders where this machine's Python may be
    return subprocess.run([checkout / "run", *arguments], env={"PATH": str(path), "HOME": str(checkout), **environment},
                          capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("version", ["3.9.2", "3.10.12"])
@pytest.mark.parametrize("verb", ["up", "test"])
def test_old_python_is_one_sentence(checkout: Path, path: Path, version: str, verb: str) -> None:
    python(path, version)
    done = run(checkout, path, verb)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"here is Python {version}" in done.stderr and "apt-get install python3 python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


def test_no_python_is_one_sentence(checkout: Path, path: Path) -> None:
    done = run(checkout, path, "up")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no Python" in done.stderr and "apt-get install" in done.stderr


def test_python_without_venv_is_one_sentence(checkout: Path, path: Path) -> None:
    python(path, "3.12.3", venv=False)
    done = run(checkout, path, "up")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "apt-get install python3-venv" in done.stderr and "Python 3.12.3" in done.stderr


def test_unknown_verb_shows_the_verbs(checkout: Path, path: Path) -> None:
    done = run(checkout, path, "launch")
    assert done.returncode == 2 and "./run up" in done.stderr


@pytest.fixture
def installed(checkout: Path) -> Path:
    """A checkout whose virtual environment is made: its Python says that the engine answers, its berth what it was
    asked and with which variables."""
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text("#!/bin/sh\n")
    (programs / "berth").write_text("#!/bin/sh\necho \"berth $*\"\nenv | grep ^BERTH_ || true\n")
    lock = (checkout / "requirements.lock").read_bytes()
    (checkout / ".venv" / "berth-run").write_text(f"{sha256(lock).hexdigest()}  -\n")
    (checkout / ".venv" / "berth-project").touch()
    for program in programs.iterdir():
        program.chmod(0o755)
    return checkout


@pytest.fixture
def complete(path: Path) -> Path:
    """A PATH on which nothing has to be installed."""
    for tool in ("iptables", "debootstrap", "grep"):
        (path / tool).symlink_to("/bin/true" if tool != "grep" else str(shutil.which("grep")))
    return path


@pytest.mark.parametrize("arguments, asked", [
    (("up",), "berth up"), (("demo",), "berth demo"), (("demo", "clean"), "berth demo clean"),
    (("demo", "simulate", "fault", "2", "lost"), "berth demo simulate fault 2 lost"),
])
def test_what_is_set_is_left_to_the_berth_command(
    installed: Path, complete: Path, arguments: tuple[str, ...], asked: str,
) -> None:
    done = run(installed, complete, *arguments, BERTH_PORTS="31000-31099", BERTH_STATE_DIR="/srv/demo")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["BERTH_PORTS=31000-31099", "BERTH_STATE_DIR=/srv/demo", asked]


def test_machine_without_debootstrap_or_root_cannot_run_a_modern_engine_and_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "modern_engine.py", "run", "true"], capture_output=True,
                          text=True, env={"PATH": str(tmp_path), "BERTH_TEST_MODERN": str(tmp_path / "modern")})
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr.startswith("a modern engine needs ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "modern").exists()


def test_ci_runs_what_people_run() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec ./run test"
    assert all(os.access(ROOT / name, os.X_OK) for name in ("run", ".ci/run"))
