"""Rules of the house that a tool can hold: who may import whom, sizes of files, no registry named, README in step."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400
MEDIAN_FUNCTION_LINES, MOST_FUNCTION_LINES = 10, 60
# Files that tools write.
GENERATED = re.compile(r"(^|/)(requirements[\w-]*\.lock|.*\.lock|static/vendor/.*|package-lock\.json|.*\.po)$")
REGISTRY_HOSTS = re.compile(
    r"\b(?:[\w-]+\.)*(?:pypi\.org|pythonhosted\.org|npmjs\.org|npmjs\.com|docker\.com/v2|registry-1\.docker\.io|quay\.io|"
    r"deb\.debian\.org|archive\.ubuntu\.com|mirrors?\.\w+\.\w+)\b")


def tracked() -> list[Path]:
    """Files that are or will be committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def texts(pattern: str) -> Iterator[tuple[str, str]]:
    """Name and content of the files that people write and whose name matches."""
    for path in tracked():
        name = str(path.relative_to(ROOT))
        if re.search(pattern, name) and not GENERATED.search(name):
            yield name, path.read_text("utf-8", errors="replace")


@pytest.fixture(scope="module", autouse=True)
def needs_git() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: which files are ours is not known")


def test_nobody_imports_whom_they_may_not() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-logo"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    long = {name: lines for name, content in texts(r"\.(py|js|sh)$|^run$")
            if (lines := content.count("\n")) > MOST_LINES}
    assert not long


def test_functions_are_short() -> None:
    lengths = {f"{name}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
               for name, content in texts(r"^webapp/.*\.py$") for node in ast.walk(ast.parse(content))
               if isinstance(node, ast.FunctionDef)}
    assert statistics.median(lengths.values()) <= MEDIAN_FUNCTION_LINES
    assert not {where: lines for where, lines in lengths.items() if lines > MOST_FUNCTION_LINES}


def test_no_registry_is_named() -> None:
    """Where packages come from is the machine's business: mirrors and offline copies must work."""
    own = str(Path(__file__).relative_to(ROOT))
    named = {name: found.group() for name, content in texts(".") if name != own
             if (found := REGISTRY_HOSTS.search(content))}
    assert not named


def test_locks_name_no_index() -> None:
    for path in ROOT.glob("requirements*.lock"):
        assert not re.search(r"^--|https?://", path.read_text(), re.MULTILINE), path.name


def test_table_of_settings_in_the_readme_is_of_today() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "settings_table.py", "--check"], capture_output=True)
    assert done.returncode == 0, "run scripts/settings_table.py"


def test_exit_codes_in_the_readme_are_those_of_the_code() -> None:
    from webapp.cli import failure
    codes = {failure.FAILED, failure.USAGE, failure.NOT_FOUND, failure.REFUSED, failure.NOT_REACHED,
             failure.OTHER_VERSION, failure.INTERRUPTED, 0}
    section = (ROOT / "README.md").read_text("utf-8").partition("| exit code |")[2].partition("\n\n")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == codes


def test_every_command_is_in_the_readme() -> None:
    from webapp.cli.root import COMMANDS
    section = (ROOT / "README.md").read_text("utf-8").partition("## The berth command")[2]
    assert not [name for name in COMMANDS if f"berth {name}" not in section]
