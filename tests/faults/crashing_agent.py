"""The agent with an engine that a test can break: `python crashing_agent.py`, settings as for the agent.

A file named `order` in BERTH_TEST_ORDERS (a folder) says what to do with the calls that come after it was written:

    {"crash": 3, "side": "before"}      die right before the third one; "after": right after; "during": while it runs
    {"crash": 3, "side": "pause"}       stop (SIGSTOP) right before it, and make it when somebody sends SIGCONT
    {}                                  only note them

Every call that changes something on the engine, and the look at the cards inside, is noted in the folder's file
`calls`, a line each, before it is made. A file `clock` there says by how many seconds the agent's clock is ahead.
BERTH_TEST_CHANGE_SECONDS and BERTH_TEST_COMMIT_SECONDS shorten the time that the adapter gives to such a call,
BERTH_TEST_LOOK_SECONDS that between two looks at the cards, BERTH_TEST_ALIVE_SECONDS that between two signs of life;
BERTH_TEST_ROOM_MARGIN_BYTES says how much room must be left beside what is moved.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from webapp import agent, logs
from webapp.agent import context, inventory
from webapp.domain import moving
from webapp.engines import docker as docker_adapter
from webapp.engines import open_engine
from webapp.gpus.query import LIST
from webapp.settings import load_settings
from webapp.store.session import Store

CHANGES = frozenset({"ensure_image", "build", "create", "put", "start", "stop", "update", "commit", "remove",
                     "remove_volume", "remove_image"})
KILLED = 137
SHORTENED = (
    ("BERTH_TEST_CHANGE_SECONDS", docker_adapter, "CHANGE_SECONDS"),
    ("BERTH_TEST_COMMIT_SECONDS", docker_adapter, "COMMIT_SECONDS"),
    ("BERTH_TEST_ROOM_MARGIN_BYTES", moving, "ROOM_MARGIN_BYTES"),
    ("BERTH_TEST_LOOK_SECONDS", inventory, "EVERY_SECONDS"),
    ("BERTH_TEST_ALIVE_SECONDS", agent, "ALIVE_SECONDS"),
)


class BreakableEngine:
    """The engine port; what it does not watch goes straight through."""

    def __init__(self, engine: Any, orders: Path) -> None:
        self._engine, self._orders = engine, orders
        self._lock = threading.Lock()
        self._order_text, self._order, self._count = "", {}, 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._engine, name)
        return self._watched(name, call) if name in CHANGES | {"exec"} else call

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            if name == "exec" and LIST not in arguments:
                return call(*arguments, **named)
            side = self._side_of_this_call(name)
            if side == "before":
                os._exit(KILLED)
            if side == "pause":
                with _writing:      # sent to this very thread, or it would run on for a moment and into the call
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            if side == "during":
                threading.Thread(target=_die_soon, daemon=True).start()
            try:
                return call(*arguments, **named)
            finally:            # an error is an answer, too
                if side in ("after", "during"):
                    os._exit(KILLED)

        return watched

    def _side_of_this_call(self, name: str) -> str | None:
        """On which side of it to die; None = not at this one."""
        with self._lock:
            self._read_order()
            self._count += 1
            with (self._orders / "calls").open("a") as calls:
                calls.write(f"{name}\n")
            return self._order.get("side") if self._order.get("crash") == self._count else None

    def _read_order(self) -> None:
        try:
            text = (self._orders / "order").read_text()
        except FileNotFoundError:
            text = ""
        if text != self._order_text:
            self._order_text, self._order, self._count = text, json.loads(text or "{}"), 0


def _die_soon() -> None:
    time.sleep(random.uniform(0.0, 0.05))
    os._exit(KILLED)


_writing = threading.Lock()     # SQLite has one writer; one that stood still in the middle would keep out everybody


@contextmanager
def _write(store: Store) -> Iterator[Session]:
    with _writing, _plain_write(store) as session:
        yield session


_plain_write = Store.write


class _SetClock(datetime):
    """The agent's idea of the time of day; how long something took it asks of another clock."""

    folder: Path

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:     # type: ignore[override]
        try:
            ahead = float((cls.folder / "clock").read_text())
        except (FileNotFoundError, ValueError):
            ahead = 0.0
        return datetime.now(tz) + timedelta(seconds=ahead)


def main() -> None:
    settings = load_settings()
    logs.configure(settings.log_level, settings.log_format, process="agent")
    for variable, module, constant in SHORTENED:
        if variable in os.environ:
            setattr(module, constant, float(os.environ[variable]))
    orders = Path(os.environ["BERTH_TEST_ORDERS"])
    _SetClock.folder = orders
    context.datetime = _SetClock    # type: ignore[misc]
    Store.write = _write            # type: ignore[method-assign,assignment]

    def opener(url: str, **named: str) -> Any:
        return BreakableEngine(open_engine(url, **named), orders)

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    agent.run(settings, stop, opener=opener)


if __name__ == "__main__":
    main()
