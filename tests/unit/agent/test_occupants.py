"""Whose work a card does: containers of others, processes, and what of our own is not where it should be."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from webapp.agent.occupants import Around, busy, container_of
from webapp.domain.container import Container, ContainerState, GpuUser
from webapp.domain.gpu import Gpu, MigMode, MigSlice, Process

CARD, OTHER = "GPU-11111111-aaaa-bbbb-cccc-000000000001", "GPU-22222222-aaaa-bbbb-cccc-000000000002"
PART, SECOND_PART = "MIG-11111111-aaaa-bbbb-cccc-00000000000a", "MIG-11111111-aaaa-bbbb-cccc-00000000000b"
OURS, THEIRS = "a" * 64, "b" * 64
HELD = frozenset({("w1", CARD)})
IN_NONE = ""


def gpu(uuid: str = CARD, index: int = 0, *processes: Process, **changes: Any) -> Gpu:
    return Gpu(uuid, index, "NVIDIA A100", **{"processes": processes, **changes})


def computing(pid: int = 7, name: str | None = "/usr/bin/python3", kind: str | None = "C") -> Process:
    return Process(pid, name, None, kind)


def workspace(uuid: str = CARD, state: ContainerState = ContainerState.RUNNING) -> Container:
    labels = {"berth.workspace": "w1", "berth.gpus": uuid}
    return Container(OURS, "berth-test1-w-w1-r1", "sha256:1", state, labels, datetime(2026, 11, 3, tzinfo=UTC))


def who(card: Gpu, around: Around, container: str | None = IN_NONE) -> dict[str, str]:
    return {uuid: reason.facts["who"] for uuid, reason in busy([card], around, lambda pid: container).items()}


@pytest.mark.parametrize("asked, is_busy", [
    (CARD, True), ("0", True), ("all", True), (CARD[:12], True), (CARD.upper().replace("GPU", "gpu"), True),
    (OTHER, False), ("1", False), ("GPU-", False), ("00", False),
])
def test_card_is_of_the_foreign_container_that_was_given_it(asked: str, is_busy: bool) -> None:
    around = Around(foreign=[GpuUser("llm", (asked,))])
    assert who(gpu(), around) == ({CARD: "llm"} if is_busy else {})


@pytest.mark.parametrize("asked, parts", [
    (PART, {PART}), ("0:1", {SECOND_PART}), ("0", {CARD, PART, SECOND_PART}), (CARD, {CARD, PART, SECOND_PART}),
    ("all", {CARD, PART, SECOND_PART}), (OTHER, set()),
])
def test_slice_is_of_whoever_was_given_it_or_its_whole_card(asked: str, parts: set[str]) -> None:
    card = gpu(mig_mode=MigMode.ENABLED, mig_slices=(MigSlice(0, PART, "3g.40gb"), MigSlice(1, SECOND_PART)))
    found = busy([card], Around(foreign=[GpuUser("llm", (asked,))]), container_of)
    assert set(found) == parts
    if PART in parts:
        assert found[PART].facts["gpu"] == "GPU 0 (NVIDIA A100 MIG 3g.40gb)"


def test_process_on_a_card_with_slices_is_on_one_that_nobody_can_name() -> None:
    card = gpu(CARD, 0, computing(), mig_mode=MigMode.ENABLED, mig_slices=(MigSlice(0, PART),))
    assert who(card, Around()) == {}


@pytest.mark.parametrize("container, held, name", [
    (IN_NONE, frozenset(), "python3 (process 7)"),          # of the machine
    (IN_NONE, HELD, "python3 (process 7)"),                 # beside the workspace that holds the card
    (None, frozenset(), "python3 (process 7)"),             # nobody knows: not free
    (None, HELD, None),                                     # nobody knows: its holder's
    (THEIRS, HELD, "python3 (process 7)"),                  # privileged, perhaps: it asked for no card
    (OURS, HELD, None),
    (OURS, frozenset(), "berth-test1-w-w1-r1"),             # it does not hold it any more
    (OURS, frozenset({("w2", CARD)}), "berth-test1-w-w1-r1"),
])
def test_process_that_computes_is_its_holders_or_a_strangers(
    container: str | None, held: frozenset[tuple[str, str]], name: str | None,
) -> None:
    around = Around(own=[workspace(OTHER)], held=held | {("w1", OTHER)})
    assert who(gpu(CARD, 0, computing()), around, container) == ({CARD: name} if name else {})


@pytest.mark.parametrize("state, name", [
    (ContainerState.RUNNING, "berth-test1-w-w1-r1"), (ContainerState.PAUSED, "berth-test1-w-w1-r1"),
    (ContainerState.EXITED, None),
])
def test_workspace_that_runs_with_a_card_that_it_does_not_hold_keeps_it_busy(
    state: ContainerState, name: str | None,
) -> None:
    assert who(gpu(), Around(own=[workspace(state=state)])) == ({CARD: name} if name else {})
    assert who(gpu(), Around(own=[workspace(state=state)], held=HELD)) == {}


def test_process_that_only_draws_leaves_the_card_free() -> None:
    card = gpu(CARD, 0, computing(1, "Xorg", "G"))
    assert who(card, Around()) == {}
    assert who(gpu(CARD, 0, computing(1, "Xorg", "G"), computing(2, "blender", "C+G")), Around()) == {
        CARD: "blender (process 2)"}


def test_what_is_not_told_is_not_made_up() -> None:
    assert who(gpu(processes=None), Around()) == {}
    assert who(gpu(uuid=None), Around(foreign=[GpuUser("llm", ("all",))])) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("name, shown", [
    (None, "process 7"), ("", "process 7"), ("/opt/venv/bin/python3 train.py --token=s3cret", "python3 (process 7)"),
    ("x" * 4000, "x" * 40 + " (process 7)"),
])
def test_of_a_process_only_its_program_is_named(name: str | None, shown: str) -> None:
    assert who(gpu(CARD, 0, computing(7, name)), Around()) == {CARD: shown}


@pytest.mark.parametrize("lines, found", [
    (f"12:memory:/docker/{OURS}\n11:cpu,cpuacct:/docker/{OURS}\n0::/system.slice/containerd.service\n", OURS),
    (f"0::/system.slice/docker-{OURS}.scope\n", OURS),
    (f"0::/docker/{THEIRS}/docker/{OURS}\n", OURS),                                  # an engine in a container
    (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{OURS}.scope\n", OURS),
    (f"0::/docker/{OURS}/init.scope\n", OURS),
    ("0::/user.slice/user-1000.slice/session-2.scope\n", IN_NONE),
    ("0::/\n", IN_NONE),
    (f"0::/docker/{OURS}f\n", IN_NONE),                                              # 65 digits are no id
])
def test_container_of_a_process_by_its_control_groups(tmp_path: Path, lines: str, found: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(lines)
    assert container_of(7, tmp_path) == found


def test_process_that_has_ended_is_in_no_known_place(tmp_path: Path) -> None:
    assert container_of(7, tmp_path) is None
