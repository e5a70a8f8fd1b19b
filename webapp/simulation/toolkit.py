#!/usr/bin/env python3
"""A stand-in for nvidia-container-runtime-hook, which Docker runs as root for each container that asked for GPUs.

It is one file and needs the standard library only. Docker names cards in the environment of the container
(NVIDIA_VISIBLE_DEVICES); the real hook brings their devices and the driver's files in. This one writes nvidia-smi and
the part of the state file that is about those cards into the container's root file system, and a line into its log:
the log is the truth about what each container got. What it wrote stays as it was then; loads put on a card later do
not show inside.

By CDI an engine asks nobody: it does what a file says of the device (install.install_cdi), and that names this hook,
which then finds the cards by their device files.

    nvidia-container-runtime-hook prestart < OCI state
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOOK_NAME = "nvidia-container-runtime-hook"     # moby registers its nvidia driver when this is on dockerd's PATH
_PROGRAM, _STATE = "usr/bin/nvidia-smi", "usr/lib/simulated-gpus/state.json"
_NOTHING = ("", "void", "none")
DEVICES = "/dev/simulated-gpus/"        # by CDI a container has a file there for each of its cards
_DRIVER_FAULTS = {
    "no-driver": "initialization error: nvml error: driver not loaded",
    "mismatch": "initialization error: nvml error: driver/library version mismatch",
    "no-library": "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: "
                  "no such file or directory",
    "no-devices": "initialization error: nvml error: no device found",
}


class Failed(Exception):
    """nvidia-container-cli would print this on standard error; the container does not start."""


def main(arguments: Sequence[str]) -> int:
    options = dict(zip(arguments[0:6:2], arguments[1:6:2], strict=True))     # of our own wrapper
    if arguments[6:] != ["prestart"]:
        return 0        # poststart and poststop: the real one does nothing either
    container = json.load(sys.stdin)
    with open(os.path.join(container["bundle"], "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    environment = dict(line.partition("=")[::2] for line in config["process"]["env"])   # of two, the last one counts
    asked = ",".join(_by_cdi(config)) or environment.get("NVIDIA_VISIBLE_DEVICES", "")
    line = {"container": container["id"], "visible": asked,
            "capabilities": environment.get("NVIDIA_DRIVER_CAPABILITIES", ""), "at": time.time(), "error": None}
    try:
        _give(options, asked, _root(container["bundle"], config))
        return 0
    except Failed as failed:
        line["error"] = str(failed)
        sys.stderr.write(f"nvidia-container-cli: {failed}\n")
        return 1
    finally:
        _append(options["--log"], line)


def handed_out(log_file: Path) -> list[dict[str, Any]]:
    """What each container asked for, oldest first: container (its id), visible, capabilities, at, error.

    error None = it got them. A container that was started again is in it again.
    """
    if not log_file.exists():
        return []
    return [json.loads(line) for line in log_file.read_text("utf-8").splitlines()]


def fail_next(log_file: Path, times: int, text: str = "initialization error: driver rpc error: timed out") -> None:
    """The next starts fail like that, whatever they ask for: a host whose driver comes up after its engine."""
    _knob(str(log_file), {"times": times, "text": text})


def hand_out_instead(log_file: Path, visible: str, times: int = 1) -> None:
    """The next starts get these, whatever they ask for, and the log says nothing of it: a toolkit that is wrong.

    `visible`: UUIDs with commas between; "" = no card at all.
    """
    _knob(str(log_file), {"times": times, "instead": visible})


def _give(options: Mapping[str, str], asked: str, root: str) -> None:
    told = _told(options["--log"])
    asked = told.get("instead", asked)
    if asked in _NOTHING:
        return
    with open(options["--state"], encoding="utf-8") as file:
        state = json.load(file)
    fault = state["host"]["fault"]
    if fault in _DRIVER_FAULTS:
        raise Failed(_DRIVER_FAULTS[fault])
    state["cards"] = _cards(state["cards"], asked)
    state |= {"instead": asked} if told else {}
    with open(options["--program"], "rb") as file:
        _write(root, _PROGRAM, file.read(), 0o755)
    _write(root, _STATE, json.dumps(state).encode(), 0o644)


def _by_cdi(config: Mapping[str, Any]) -> list[str]:
    """UUIDs. Not by the environment: it says `void` then, and a person may add to it."""
    paths = [str(device["path"]) for device in (config.get("linux") or {}).get("devices") or []]
    return [path.removeprefix(DEVICES) for path in paths if path.startswith(DEVICES)]


def _cards(cards: list[dict[str, Any]], asked: str) -> list[dict[str, Any]]:
    """Those of the list. Raises: Failed: the toolkit's sentence for one that is not there."""
    there = [(number, card) for number, card in enumerate(cards) if card["fault"] not in ("gone", "lost", "lost-stops")]
    if asked == "all":
        return [card for _, card in there]
    found: dict[str, dict[str, Any]] = {}
    for name in asked.split(","):
        for number, card in there:
            slices = [part for part in card["slices"] if part["uuid"] == name]
            if name in (card["uuid"], str(number)):
                found[card["uuid"]] = card
                break
            if slices:
                kept = found.setdefault(card["uuid"], dict(card, slices=[]))
                kept["slices"] = kept["slices"] + slices
                break
        else:
            raise Failed(f"device error: {name}: unknown device")
    return [card for _, card in there if card["uuid"] in found for card in (found[card["uuid"]],)]


def _root(bundle: str, config: Mapping[str, Any]) -> str:
    return os.path.realpath(os.path.join(bundle, config["root"]["path"]))


def _write(root: str, name: str, content: bytes, mode: int) -> None:
    """An image decides where its links point; this runs as root on the host and writes below the image's root only."""
    path = os.path.join(root, name)
    folder = os.path.realpath(os.path.dirname(path))
    if not f"{folder}/".startswith(f"{root}/"):
        raise Failed(f"mount error: {name} leads out of the container")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(path))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)


def _append(log_file: str, line: Mapping[str, Any]) -> None:
    """One write of one line: hooks of several containers run at once."""
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, (json.dumps(line) + "\n").encode())
    os.close(descriptor)


def _told(log_file: str) -> dict[str, Any]:
    """What a test told about this start; {} = nothing. Raises: Failed: it is to fail."""
    try:
        with open(f"{log_file}.told", encoding="utf-8") as file:
            told: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    if told["times"] <= 0:
        return {}
    _knob(log_file, dict(told, times=told["times"] - 1))
    if "text" in told:
        raise Failed(told["text"])
    return told


def _knob(log_file: str, told: Mapping[str, Any]) -> None:
    with open(f"{log_file}.told.new", "w", encoding="utf-8") as file:
        json.dump(told, file)
    os.replace(f"{log_file}.told.new", f"{log_file}.told")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
