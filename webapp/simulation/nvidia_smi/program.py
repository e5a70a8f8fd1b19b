"""From arguments to output and exit code; again and again with --loop-ms."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from .document import document
from .reading import Refused, awake, shown, state_and_visible
from .rows import help_apps, help_gpu, query_apps, query_gpu
from .tables import BAD_ARGUMENT, CONFUSED, FAILURES, LOST
from .views import list_cards, table, topo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(arguments: Sequence[str]) -> int:
    """Prints, and returns the exit code; with --loop-ms only once something is wrong with the host."""
    parent, header = os.getppid(), True
    try:
        while True:
            text, code, pause_seconds = answer(arguments, parent=parent, header=header)
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            if not pause_seconds or code not in (0, LOST):
                return code
            header = False
            time.sleep(pause_seconds)
    except (BrokenPipeError, KeyboardInterrupt):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)    # nobody reads any more: nor does the flush at exit complain
        return 141


def answer(arguments: Sequence[str], *, parent: int | None = None, header: bool = True) -> tuple[bytes, int, float]:
    """What is printed once, the exit code, and seconds until the next time (0 = there is none).

    Waits as long as the host hangs, or until `parent` is no longer the parent of this process.
    """
    try:
        options = _options(arguments)
        path, visible = state_and_visible(options)
        text, code = _answer(options, awake(path, parent), visible, header=header)
        return text, code, float(options.get("--loop-ms", 0)) / 1000
    except Refused as refused:
        return refused.text.encode(), refused.code, 0


def _options(arguments: Sequence[str]) -> dict[str, str]:
    short = {"-i": "--id", "-L": "--list-gpus", "-q": "--query", "-x": "--xml-format", "-m": "--matrix",
             "-lms": "--loop-ms"}
    valued = ("--query-gpu", "--query-compute-apps", "--format", "--loop-ms", "--id", "--simulated-state")
    plain = ("--list-gpus", "--query", "--xml-format", "--help-query-gpu", "--help-query-compute-apps", "topo",
             "--matrix")
    found: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, given, value = argument.partition("=")
        name = short.get(name, name)
        if name not in valued + plain:
            raise Refused(BAD_ARGUMENT, CONFUSED)
        found[name] = value if given or name in plain else next(rest, "")
    return found
def _answer(options: dict[str, str], state: dict[str, Any], visible: str, *, header: bool) -> tuple[bytes, int]:
    """What to print and the exit code, with the faults of the host on top."""
    fault = state["host"]["fault"]
    if fault == "garbage":
        return bytes(range(256)) * 8 + b"\n\xff\xfe, GPU-, [\x00, \xf8 %\n", 0
    if fault in FAILURES:
        code, text = FAILURES[fault]
        raise Refused(code, text.format(library=state["host"]["driver"].rpartition(".")[0]))
    cards = shown(state, visible, options.get("--id"))
    text, code = _question(options)(options, state, cards, header)
    encoded = text.encode("utf-8", "surrogateescape")
    return (encoded[: len(encoded) // 2] if fault == "cut" else encoded), code


def _question(options: dict[str, str]) -> Callable[..., tuple[str, int]]:
    for name, answer in (("--help-query-gpu", help_gpu), ("--help-query-compute-apps", help_apps),
                         ("--query-gpu", query_gpu), ("--query-compute-apps", query_apps),
                         ("--list-gpus", list_cards), ("topo", topo), ("--query", document)):
        if name in options:
            return answer
    return table
