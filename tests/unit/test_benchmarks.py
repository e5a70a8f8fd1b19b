"""Benchmarks: how they end, their arithmetic, the same goals in documents and code. Nothing is timed here."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))     # they are run by path and find each other beside them

bare = importlib.import_module("bare")
processes = importlib.import_module("processes")
report = importlib.import_module("report")
Goal = report.Goal

SCRIPTS = sorted(path for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text())
MODEL: dict[str, Any] = {
    "Config": {
        "Hostname": "one", "User": "10001:10001", "WorkingDir": "/home/alice", "StopSignal": "SIGTERM", "Image": "i:1",
        "Env": ["HOME=/home/alice", "A=b c"], "Healthcheck": {"Test": ["NONE"]},
    },
    "HostConfig": {
        "Memory": 1 << 30, "MemorySwap": 1 << 30, "ShmSize": 1 << 28, "NanoCpus": 1_500_000_000, "PidsLimit": 4096,
        "IpcMode": "private", "NetworkMode": "berth-t1", "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"],
        "GroupAdd": ["20001"], "Ulimits": [{"Name": "nofile", "Soft": 1024, "Hard": 2048}],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m"}}, "Mounts": [{"Target": "/home/alice"}],
    },
}


def changed(part: str, **fields: Any) -> dict[str, Any]:
    return {**MODEL, part: {**MODEL[part], **fields}}


# -- the last line


def test_there_is_a_benchmark() -> None:
    assert "launch.py" in [path.name for path in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_ends_with_its_closing_line(script: Path) -> None:
    main = next(node for node in ast.parse(script.read_text()).body
                if isinstance(node, ast.FunctionDef) and node.name == "main")
    last = main.body[-1]
    assert isinstance(last, ast.Return) and isinstance(last.value, ast.Call)
    assert ast.unparse(last.value.func) == "finish"
    name, _figures, goals = last.value.args
    assert (ast.literal_eval(name), ast.unparse(goals)) == (script.stem, "GOALS")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_documents_and_code_name_the_same_goals(script: Path) -> None:
    section = (BENCHMARKS / "README.md").read_text().partition(f"\n## {script.stem}\n")[2].partition("\n## ")[0]
    written = {name: float(most) for name, most in re.findall(r"^\| `(\w+)` \| ≤ ([\d.]+) \|", section, re.MULTILINE)}
    goals = importlib.import_module(script.stem).GOALS
    assert written == {name: goal.at_most for name, goal in goals.items()}


def test_the_closing_line_is_one_line_of_json_in_the_agreed_form() -> None:
    line = report.closing_line("launch", {"ratio": 1.0512345, "rounds": 7, "memory_mb": None}, {"ratio": Goal(1.15)})
    assert "\n" not in line
    assert json.loads(line) == {
        "benchmark": "launch",
        "figures": {"ratio": 1.051, "rounds": 7, "memory_mb": None},
        "goals": {"ratio": {"at_most": 1.15}},
        "met": True,
    }


@pytest.mark.parametrize(("figure", "met"), [(1.15, True), (1.1501, False), (None, False), (0, True)])
def test_a_goal_is_met_up_to_its_figure_and_never_unmeasured(figure: float | None, met: bool) -> None:
    assert json.loads(report.closing_line("b", {"ratio": figure}, {"ratio": Goal(1.15)}))["met"] is met


def test_one_goal_missed_is_not_met() -> None:
    line = report.closing_line("b", {"one": 1, "two": 3}, {"one": Goal(2), "two": Goal(2)})
    assert json.loads(line)["met"] is False


def test_a_goal_without_a_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="raito"):
        report.closing_line("b", {"ratio": 1}, {"raito": Goal(2)})


@pytest.mark.parametrize("json_only", [True, False])
def test_finish_prints_the_json_last(json_only: bool, capsys: pytest.CaptureFixture[str]) -> None:
    code = report.finish("b", {"ratio": 2.0, "other": None}, {"ratio": Goal(1)}, json_only=json_only)
    *table, last = capsys.readouterr().out.splitlines()
    assert (code, json.loads(last)["met"]) == (0, False)
    assert len(table) == (0 if json_only else 2)
    assert json_only or "MISSED" in table[0]


# -- arithmetic


def test_a_ratio_is_the_median_of_each_rounds_own() -> None:
    slow_second_round = [1.1, 22.0, 1.3], [1.0, 20.0, 1.0]
    assert report.ratio(*slow_second_round) == pytest.approx(1.1)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0, 1.0], [1.0]), ([1.0], []), ([1.0], [0.0])])
def test_a_ratio_of_nothing_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="either side"):
        report.ratio(ours, theirs)


def test_memory_and_cpu_of_this_process() -> None:
    tree = processes.tree(os.getpid())
    assert tree[0] == os.getpid()
    assert processes.pss_mb(tree) > 5
    assert processes.cpu_seconds(tree) > 0


def test_a_machine_is_busy_between_nothing_and_all() -> None:
    assert 0 <= processes.busy_percent(seconds=0.05) <= 100


def test_a_process_that_has_ended_counts_nothing() -> None:
    gone = [2**22 + 1]      # above the kernel's highest process id
    assert (processes.pss_mb(gone), processes.cpu_seconds(gone)) == (0, 0)


# -- the same container


def test_every_limit_becomes_a_flag() -> None:
    words = bare.flags(MODEL)
    pairs = set(zip(words, words[1:], strict=False))
    assert pairs >= {
        ("--memory", "1073741824"), ("--memory-swap", "1073741824"), ("--shm-size", "268435456"), ("--cpus", "1.5"),
        ("--pids-limit", "4096"), ("--ipc", "private"), ("--network", "berth-t1"), ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"), ("--group-add", "20001"), ("--ulimit", "nofile=1024:2048"),
        ("--log-driver", "json-file"), ("--log-opt", "max-size=10m"), ("--user", "10001:10001"), ("--env", "A=b c"),
    }


def test_the_same_container_has_no_differences() -> None:
    twin = changed("HostConfig", PortBindings={"2222/tcp": []}, Devices=[], Binds=None)
    assert bare.differences(MODEL, twin) == []


@pytest.mark.parametrize(("part", "field", "value"), [
    ("HostConfig", "Memory", 1 << 31), ("HostConfig", "CapDrop", None), ("HostConfig", "Privileged", True),
    ("Config", "Image", "i:2"), ("Config", "Env", ["HOME=/root"]),
])
def test_a_difference_is_named(part: str, field: str, value: object) -> None:
    (different,) = bare.differences(MODEL, changed(part, **{field: value}))
    assert different.startswith(f"{part}.{field}: ")
