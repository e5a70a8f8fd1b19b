"""nvidia-smi as one file: on a host's PATH, alone in a folder as in a container, streaming, hanging."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from unit.simulation.conftest import SimulatedHost

from webapp.domain.container import FolderMount
from webapp.simulation import install, presets, toolkit

DEADLINE_SECONDS = 10.0


def test_host_runs_it_from_its_path(host: SimulatedHost, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    install.install_host(folder, host.path)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "NVIDIA_VISIBLE_DEVICES": "void"}   # a host heeds no such
    done = subprocess.run(["nvidia-smi", "-L"], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == (host.smi("-L").text, "", 0)


def test_nobody_else_may_change_what_the_agent_runs(host: SimulatedHost, tmp_path: Path) -> None:
    """The agent's umask leaves the group everything, and the group of its state folder is the web's."""
    before = os.umask(0o007)
    try:
        folder = install.install_host(tmp_path / "bin", host.path).parent
    finally:
        os.umask(before)
    assert [path.name for path in (folder, *folder.iterdir()) if path.stat().st_mode & 0o022] == []


def test_one_file_runs_by_itself_without_berth(host: SimulatedHost, tmp_path: Path) -> None:
    """As in a container: copied alone, another folder, an empty environment, no installed packages."""
    program = tmp_path / "alone"
    program.write_bytes(install.program_bytes())
    program.chmod(0o755)
    environment = {"PATH": os.path.dirname(sys.executable) + ":/usr/bin:/bin",
                   "SIMULATED_GPUS_STATE": str(host.path), "NVIDIA_VISIBLE_DEVICES": host.uuids[3]}
    done = subprocess.run([program, "-L"], env=environment, cwd="/", capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {host.uuids[3]})\n", "")
    done = subprocess.run([sys.executable, "-I", "-S", program, "--query-gpu=colour", "--format=csv"], env=environment,
                          cwd="/", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize("host", ["mig"], indirect=True)
def test_cdi_file_names_cards_and_slices_and_each_brings_its_own_device(host: SimulatedHost, tmp_path: Path) -> None:
    hook = tmp_path / "bin" / "hook"
    content = json.loads(install.install_cdi(tmp_path / "cdi", host.path, hook).read_text())
    slices = [part.uuid for card in host.cards for part in card.slices]
    brought = {device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
               for device in content["devices"]}
    assert slices and content["kind"] == "nvidia.com/gpu"
    assert brought.pop("all") == [f"{toolkit.DEVICES}{uuid}" for uuid in host.uuids]
    assert brought == {uuid: [f"{toolkit.DEVICES}{uuid}"] for uuid in (*host.uuids, *slices)}
    assert "NVIDIA_VISIBLE_DEVICES=void" in content["containerEdits"]["env"]
    assert [one["path"] for one in content["containerEdits"]["hooks"]] == [str(hook)]


def test_stream_shows_a_load_that_is_put_on_meanwhile(host: SimulatedHost, tmp_path: Path) -> None:
    program = install.install_host(tmp_path / "bin", host.path)
    command = [program, "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        assert [stream.stdout.readline() for _ in range(4)] == ["0, 0\n", "1, 0\n", "2, 0\n", "3, 0\n"]
        with host.changed() as simulation:
            presets.put_load(simulation.cards[0], utilization_percent=90)
        wait_for_line(stream, "0, 90\n")
        with host.changed() as simulation:
            simulation.host.fault = "mismatch"
        wait_for_line(stream, "Failed to initialize NVML: Driver/library version mismatch\n")
        assert stream.wait(DEADLINE_SECONDS) == 18


def wait_for_line(stream: subprocess.Popen[str], wanted: str) -> None:
    assert stream.stdout is not None
    for line in stream.stdout:
        if line == wanted:
            return
    raise AssertionError(f"ended without {wanted!r}")


def test_stream_ends_when_nobody_reads(host: SimulatedHost, tmp_path: Path) -> None:
    program = install.install_host(tmp_path / "bin", host.path)
    stream = subprocess.Popen([program, "--query-gpu=index", "--format=csv", "--loop-ms=10"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    assert stream.stdout is not None and stream.stderr is not None
    stream.stdout.readline()
    stream.stdout.close()
    assert stream.wait(DEADLINE_SECONDS) == 141
    assert stream.stderr.read() == b""
    stream.stderr.close()


def test_stuck_driver_ignores_the_request_to_end_and_goes_on_when_healed(host: SimulatedHost, tmp_path: Path) -> None:
    program = install.install_host(tmp_path / "bin", host.path)
    with host.changed() as simulation:
        simulation.host.fault = "stuck"
    with subprocess.Popen([program, "-L"], stdout=subprocess.PIPE, text=True) as stuck:
        wait_until_ignored(stuck.pid)
        stuck.send_signal(signal.SIGTERM)
        assert stuck.poll() is None
        with host.changed() as simulation:
            simulation.host.fault = None
        assert stuck.communicate(timeout=DEADLINE_SECONDS)[0] == host.smi("-L").text


def wait_until_ignored(pid: int) -> None:
    """SigIgn of proc(5) says when the handler is set; before that the signal would end it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        ignored = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigIgn" in line)
        if int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("it never began to ignore SIGTERM")


def test_hanging_one_does_not_outlive_whoever_asked(host: SimulatedHost, tmp_path: Path) -> None:
    program = install.install_host(tmp_path / "bin", host.path)
    with host.changed() as simulation:
        simulation.host.fault = "hang"
    # The shell ends while it hangs and has the pipe open: reading to the end is waiting for it.
    shell = ["sh", "-c", f"{program} -L & sleep 0.2"]
    assert subprocess.run(shell, stdout=subprocess.PIPE, timeout=DEADLINE_SECONDS).stdout == b""


def test_container_gets_the_folder_read_only(host: SimulatedHost) -> None:
    mounts = install.container_mounts(host.path)
    assert mounts == (
        FolderMount(str(host.path.parent), "/usr/lib/simulated-gpus", read_only=True),
        FolderMount(str(host.path.parent / "nvidia-smi"), "/usr/bin/nvidia-smi", read_only=True))
    inode = (host.path.parent / "nvidia-smi").stat().st_ino
    install.container_mounts(host.path)
    assert (host.path.parent / "nvidia-smi").stat().st_ino == inode     # what is mounted already stays the same file
