"""The state file as this process may see it: where it is, when the driver answers, and which cards are shown."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from .tables import FAILURES

CONTAINER_STATE = "/usr/lib/simulated-gpus/state.json"
FIRST_PROCESS = "/proc/1/environ"
MOUNTED_CARDS = "BERTH_SIMULATED_GPUS"


class Refused(Exception):
    """The real one would print this on standard output and end with that code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text
def state_and_visible(options: dict[str, str]) -> tuple[str, str]:
    """Path of the state file, and the cards to show: UUIDs and numbers with commas between, or `all`.

    A toolkit names them in NVIDIA_VISIBLE_DEVICES. Where there is none, and Berth mounts this program, they are in
    BERTH_SIMULATED_GPUS: an engine whose default runtime is NVIDIA's would look for them as real cards.
    """
    given = options.get("--simulated-state")
    if given:
        return given, "all"
    path = os.environ.get("SIMULATED_GPUS_STATE", CONTAINER_STATE)
    asked = os.environ.get(MOUNTED_CARDS) or os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if path != CONTAINER_STATE:
        return path, asked
    try:
        with open(FIRST_PROCESS, "rb") as file:
            lines = file.read().decode(errors="replace").split("\0")
    except OSError:     # another user's process: what is left is this one's own environment
        return path, asked
    said = dict(line.partition("=")[::2] for line in lines)     # an engine appends to the image's: the last counts
    return path, said.get(MOUNTED_CARDS) or said.get("NVIDIA_VISIBLE_DEVICES", "")


def awake(path: str, parent: int | None) -> dict[str, Any]:
    """The state, once it no longer says that the driver hangs. Ends with its parent, so that nothing is left hanging.

    Raises: Refused: no state, which is a machine without a driver.
    """
    state = _read(path)
    fault = state["host"]["fault"]
    if fault == "slow":
        time.sleep(3)
    if fault == "stuck":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while fault in ("hang", "stuck"):
        time.sleep(0.1)
        if parent not in (None, os.getppid()):
            raise Refused(255, "")
        state = _read(path)
        fault = state["host"]["fault"]
    return state


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            state: dict[str, Any] = json.load(file)
        return state
    except (OSError, ValueError) as error:
        sys.stderr.write(f"simulated nvidia-smi: {error}\n")
        raise Refused(*FAILURES["no-driver"]) from error
def shown(state: dict[str, Any], visible: str, wanted: str | None) -> list[dict[str, Any]]:
    """The cards to show, each with `index` and `count`; those before a lost one and behind it keep their numbers.

    Raises: Refused: none.
    """
    names = state.get("instead", visible).split(",")    # of a toolkit that was told to be wrong
    cards = []
    for number, card in enumerate(state["cards"]):
        slices = [part for part in card["slices"] if part["uuid"] in names]
        if card["fault"] == "gone":
            continue
        if "all" in names or card["uuid"] in names or str(number) in names:
            cards.append(dict(card))
        elif slices:
            cards.append(dict(card, slices=slices))
    for index, card in enumerate(cards):
        card.update(index=index, count=len(cards))
    cards = [card for card in cards if wanted in (None, str(card["index"]), card["uuid"], card["bus_id"])]
    if not cards:
        raise Refused(*FAILURES["no-devices"])
    return cards
