"""The doorbell: the agent hears within 50 ms that somebody wants something.

SQLite: one dedicated connection, never pooled and always in autocommit, polls `PRAGMA data_version`: it stands still
inside a transaction and does not show its own commits (1.8 µs a poll, measured). After a ring `intent.seq` tells
whether the change was an intent or only one of the agent's own records. PostgreSQL: LISTEN (store.postgresql), to which
only intents speak. A lost ring costs the caller's time-out, never correctness.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Protocol

from webapp.store.postgresql import ListeningDoorbell
from webapp.store.session import Store

POLL_SECONDS = 0.02


class Doorbell(Protocol):
    """Not thread-safe: one thread listens."""

    def wait(self, timeout_seconds: float) -> bool:
        """True as soon as intent changed; False after the time-out."""
        ...

    def close(self) -> None: ...


def open_doorbell(store: Store) -> Doorbell:
    path = store.sqlite_path
    return ListeningDoorbell(store.url) if path is None else _PollingDoorbell(path)


class _PollingDoorbell:
    def __init__(self, sqlite_path: Path) -> None:
        self._connection = sqlite3.connect(sqlite_path, isolation_level=None, timeout=1.0)
        self._version = self._data_version()
        self._seq = self._intent_seq()

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            if self._rang():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_SECONDS, left))

    def close(self) -> None:
        self._connection.close()

    def _rang(self) -> bool:
        version = self._data_version()
        if version == self._version:
            return False
        self._version = version
        seq = self._intent_seq()
        changed, self._seq = seq != self._seq, seq
        return changed

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _intent_seq(self) -> int:
        row = self._connection.execute("SELECT seq FROM intent WHERE id = 1").fetchone()
        return int(row[0]) if row else 0
