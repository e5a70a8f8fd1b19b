"""The workflow that publishes the default images: what it builds, and that nothing is pushed unscanned."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from webapp.services.images import SEEDS

ROOT = Path(__file__).parents[2]
WORKFLOW = (ROOT / ".github/workflows/images.yml").read_text("utf-8")
SCRIPT = ROOT / "scripts/publish_image"
BASE = SEEDS[0][1]
TOKEN = "canary-token"


def test_bases_are_those_of_the_catalogue() -> None:
    listed = subprocess.run([sys.executable, "images/build.py", "--list"], cwd=ROOT,
                            env={**os.environ, "PYTHONPATH": "."},
                            check=True, capture_output=True, text=True)
    assert listed.stdout.split() == [base for _, base, _ in SEEDS]


def test_workflow_asks_for_that_list_and_has_none_of_its_own() -> None:
    assert "images/build.py --list" in WORKFLOW and "fromJSON(needs.list.outputs.bases)" in WORKFLOW
    assert 'scripts/publish_image "$BASE"' in WORKFLOW and "BASE: ${{ matrix.base }}" in WORKFLOW
    assert not [base for _, base, _ in SEEDS if base in WORKFLOW]


def test_it_runs_for_tags_and_by_hand_only() -> None:
    begins = WORKFLOW[WORKFLOW.index("\non:"):WORKFLOW.index("\npermissions:")]
    assert begins.split() == ["on:", "push:", "tags:", '["v*"]', "workflow_dispatch:"]


def test_rights_are_as_few_as_it_needs() -> None:
    assert re.findall(r"^ +(\w+): (read|write)$", WORKFLOW, re.MULTILINE) == [
        ("contents", "read"), ("contents", "read"), ("packages", "write")]


def test_what_it_runs_is_pinned() -> None:
    assert "uses:" not in WORKFLOW, "an action of somebody else: pin it by its commit and say so here"
    assert re.findall(r"runs-on: (\S+)", WORKFLOW) == ["ubuntu-24.04"] * 2
    assert re.search(r"^SCANNER=\S+:[0-9.]+@sha256:[0-9a-f]{64}$", SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert WORKFLOW.count("--require-hashes") == 2


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A docker that writes down what it was told and fails at what the file `fails` names; a Python that builds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    docker, python = folder / "docker", folder / "python"
    docker.write_text(f"""#!/bin/sh
echo "$*" >> {tmp_path}/calls
[ "$1" != login ] || cat > {tmp_path}/typed
[ "$1" != "$(cat {tmp_path}/fails 2>/dev/null)" ]
""")
    python.write_text(f"""#!/bin/sh
echo "python $*" >> {tmp_path}/calls
env >> {tmp_path}/environment
echo berth/workspace:2.8.0-abc
""")
    for program in (docker, python):
        program.chmod(0o755)
    return tmp_path


def publish(folder: Path) -> tuple[int, list[str]]:
    environment = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}", "PYTHON": f"{folder}/bin/python", "REGISTRY": "ghcr.io",
        "REPOSITORY": "Team/Berth/workspace", "REGISTRY_USER": "somebody", "REGISTRY_TOKEN": TOKEN,
        "TMPDIR": str(folder)}
    done = subprocess.run([str(SCRIPT), BASE], env=environment, capture_output=True, text=True)
    return done.returncode, (folder / "calls").read_text().splitlines()


def test_image_is_built_scanned_and_then_pushed(stand_ins: Path) -> None:
    code, calls = publish(stand_ins)
    assert code == 0
    assert [call.split()[0] for call in calls] == ["python", "save", "run", "tag", "login", "push", "logout"]
    assert calls[0] == f"python images/build.py --base {BASE}"
    assert calls[5] == "push ghcr.io/team/berth/workspace:2.8.0-abc"
    for wanted in ("--severity CRITICAL", "--ignore-unfixed", "--exit-code 1", "@sha256:"):
        assert wanted in calls[2]


@pytest.mark.parametrize("step", ["save", "run", "tag", "login"])
def test_what_goes_wrong_before_leaves_nothing_pushed(stand_ins: Path, step: str) -> None:
    (stand_ins / "fails").write_text(step)
    code, calls = publish(stand_ins)
    assert code != 0 and not [call for call in calls if call.startswith("push")]


def test_token_is_typed_to_the_registry_and_shown_to_nobody_else(stand_ins: Path) -> None:
    _, calls = publish(stand_ins)
    assert (stand_ins / "typed").read_text() == TOKEN
    assert TOKEN not in "".join(calls) and TOKEN not in (stand_ins / "environment").read_text()
