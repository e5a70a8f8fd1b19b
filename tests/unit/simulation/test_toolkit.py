"""The toolkit stand-in: what Docker's hook gets, does, logs and refuses."""

from __future__ import annotations

import io
import json
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from unit.simulation.conftest import SimulatedHost

from webapp.simulation import install, toolkit

Hook = Callable[..., int]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A container's file system."""
    root = tmp_path / "bundle" / "rootfs"
    (root / "usr" / "bin").mkdir(parents=True)
    return root


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def hook(host: SimulatedHost, root: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hook:
    """hook("NVIDIA_VISIBLE_DEVICES=…", …) → exit code, run as runc runs it. `devices`: files below /dev."""
    program = install.install_program(tmp_path / "program")

    def run(*environment: str, phase: str = "prestart", devices: Sequence[str] = ()) -> int:
        (root.parent / "config.json").write_text(json.dumps(
            {"process": {"env": list(environment)}, "root": {"path": str(root)},
             "linux": {"devices": [{"path": path} for path in devices]}}))
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"id": "c0ffee", "bundle": str(root.parent)})))
        return toolkit.main(["--state", str(host.path), "--log", str(log), "--program", str(program), phase])
    return run


def test_container_gets_the_program_and_its_cards_alone(hook: Hook, host: SimulatedHost, root: Path) -> None:
    wanted = [host.uuids[3], host.uuids[0]]
    assert hook(f"NVIDIA_VISIBLE_DEVICES={','.join(wanted)}") == 0
    program = root / "usr/bin/nvidia-smi"
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert program.read_bytes() == install.program_bytes()
    state = json.loads((root / "usr/lib/simulated-gpus/state.json").read_text())
    assert [card["uuid"] for card in state["cards"]] == [host.uuids[0], host.uuids[3]]


def test_log_says_what_was_asked_for(hook: Hook, host: SimulatedHost, log: Path) -> None:
    hook(f"NVIDIA_VISIBLE_DEVICES={host.uuids[1]}", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    hook("NVIDIA_VISIBLE_DEVICES=void")
    lines = toolkit.handed_out(log)
    assert [(line["container"], line["visible"], line["capabilities"], line["error"]) for line in lines] == [
        ("c0ffee", host.uuids[1], "compute,utility", None), ("c0ffee", "void", "", None)]


def test_of_two_values_the_last_one_counts(hook: Hook, host: SimulatedHost, log: Path) -> None:
    hook("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void", f"NVIDIA_VISIBLE_DEVICES={host.uuids[1]}")
    assert toolkit.handed_out(log)[0]["visible"] == host.uuids[1]


@pytest.mark.parametrize("environment", [(), ("NVIDIA_VISIBLE_DEVICES=void",), ("NVIDIA_VISIBLE_DEVICES=none",)])
def test_nothing_asked_for_is_nothing_written(hook: Hook, root: Path, environment: tuple[str, ...]) -> None:
    assert hook(*environment) == 0
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_count_means_the_first_cards(hook: Hook, host: SimulatedHost, root: Path) -> None:
    """moby makes a number of a count: everybody gets card 0."""
    assert hook("NVIDIA_VISIBLE_DEVICES=0") == 0
    state = json.loads((root / "usr/lib/simulated-gpus/state.json").read_text())
    assert [card["uuid"] for card in state["cards"]] == [host.uuids[0]]


@pytest.mark.parametrize("fault", ["lost", "gone", None])
def test_card_that_is_not_there_is_refused_in_the_toolkits_words(
        hook: Hook, host: SimulatedHost, log: Path, capsys: pytest.CaptureFixture[str], fault: str | None) -> None:
    with host.changed() as simulation:
        simulation.cards[2].fault = fault
    wanted = host.uuids[2] if fault else "GPU-51e1a7ed-0000-0000-0000-000000000000"
    assert hook(f"NVIDIA_VISIBLE_DEVICES={host.uuids[0]},{wanted}") == 1
    assert capsys.readouterr().err == f"nvidia-container-cli: device error: {wanted}: unknown device\n"
    assert toolkit.handed_out(log)[0]["error"] == f"device error: {wanted}: unknown device"


def test_host_without_a_driver_starts_no_gpu_container(
        hook: Hook, host: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    with host.changed() as simulation:
        simulation.host.fault = "mismatch"
    assert hook("NVIDIA_VISIBLE_DEVICES=all") == 1
    assert "nvml error: driver/library version mismatch" in capsys.readouterr().err


def test_first_starts_can_be_made_to_fail(hook: Hook, host: SimulatedHost, log: Path) -> None:
    toolkit.fail_next(log, 2)
    assert [hook("NVIDIA_VISIBLE_DEVICES=all") for _ in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("which", ["another card", "none"])
def test_next_start_can_be_made_to_get_something_else(
        hook: Hook, host: SimulatedHost, log: Path, root: Path, which: str) -> None:
    state = root / "usr/lib/simulated-gpus/state.json"
    toolkit.hand_out_instead(log, host.uuids[3] if which == "another card" else "")
    assert hook(f"NVIDIA_VISIBLE_DEVICES={host.uuids[0]}") == 0
    got = [card["uuid"] for card in json.loads(state.read_text())["cards"]] if state.exists() else []
    assert got == ([host.uuids[3]] if which == "another card" else [])
    assert [line["visible"] for line in toolkit.handed_out(log)] == [host.uuids[0]]
    assert hook(f"NVIDIA_VISIBLE_DEVICES={host.uuids[0]}") == 0
    assert [card["uuid"] for card in json.loads(state.read_text())["cards"]] == [host.uuids[0]]


@pytest.mark.parametrize("host", ["mig"], indirect=True)
def test_slices_are_handed_out_by_their_uuid(hook: Hook, host: SimulatedHost, root: Path) -> None:
    parts = [part.uuid for part in host.cards[0].slices]
    assert hook(f"NVIDIA_VISIBLE_DEVICES={parts[1]},{parts[3]}") == 0
    state = json.loads((root / "usr/lib/simulated-gpus/state.json").read_text())
    assert [part["uuid"] for card in state["cards"] for part in card["slices"]] == [parts[1], parts[3]]


def test_image_that_points_out_of_itself_is_refused(
        hook: Hook, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "usr" / "bin").rmdir()
    (root / "usr" / "bin").symlink_to(outside)
    assert hook("NVIDIA_VISIBLE_DEVICES=all") == 1
    assert "leads out of the container" in capsys.readouterr().err
    assert not list(outside.iterdir())


def test_link_in_the_place_of_the_program_is_replaced_not_followed(hook: Hook, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (root / "usr" / "bin" / "nvidia-smi").symlink_to(outside)
    assert hook("NVIDIA_VISIBLE_DEVICES=all") == 0
    assert outside.read_text() == "mine"


def test_other_phases_do_nothing(hook: Hook, log: Path) -> None:
    assert hook("NVIDIA_VISIBLE_DEVICES=all", phase="poststop") == 0
    assert not log.exists()


def test_by_cdi_the_device_files_say_it_and_not_the_environment(
    hook: Hook, host: SimulatedHost, root: Path, log: Path,
) -> None:
    mine = [host.uuids[2], host.uuids[1]]
    devices = ["/dev/fuse", *(f"{toolkit.DEVICES}{uuid}" for uuid in mine)]
    assert hook("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void", devices=devices) == 0
    assert hook(f"NVIDIA_VISIBLE_DEVICES={host.uuids[0]}", devices=devices) == 0
    assert [line["visible"] for line in toolkit.handed_out(log)] == [",".join(mine)] * 2
    state = json.loads((root / "usr/lib/simulated-gpus/state.json").read_text())
    assert [card["uuid"] for card in state["cards"]] == [host.uuids[1], host.uuids[2]]


def test_installed_hook_is_what_dockerd_looks_for(host: SimulatedHost, tmp_path: Path, log: Path) -> None:
    path = install.install_toolkit(tmp_path / "bin", host.path, log)
    assert path.name == "nvidia-container-runtime-hook"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
