"""One host's cards, looked at again and again: what its driver lists, and who else is on them.

Nothing waits for a look. A driver that hangs makes what is known old, no more: the rows stay, and nothing new gets a
card that was not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from webapp.agent import occupants
from webapp.agent.context import HostContext
from webapp.domain.container import Container, GpuUser
from webapp.domain.gpu import Condition, InventoryTrouble
from webapp.errors import EngineError
from webapp.gpus.query import OLDEST, ask_fields, inventory
from webapp.services import inventory as records
from webapp.store.reads import agent as reads

log = structlog.get_logger(__name__)

EVERY_SECONDS = 15.0        # a card that falls off is refused within this; each look is three to six short programs


class Watch:
    """`run` is a thread of its own; `look` is one step of it, which raises what the store raises."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._cards = context.cards
        self._driver_version: str | None = None         # of which these are the fields
        self._fields: frozenset[str] | None = None
        self._trouble: str | None = None                # code, as it was logged
        self._foreign: Sequence[GpuUser] = ()           # as the engine said last
        self._own: Sequence[Container] = ()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._cards.look_again.clear()
            self._look_whatever_happens()
            self._cards.look_again.wait(EVERY_SECONDS)

    def look(self) -> None:
        context = self._context
        held = self._held()
        seen = inventory(self._cards.run, known_fields=self._fields, host=context.host_name)
        self._ask_engine()
        held |= self._held()        # what was given back or claimed meanwhile is not somebody else's
        around = occupants.Around(self._foreign, self._own, held)
        busy = occupants.busy(seen.gpus, around, occupants.unknown if self._cards.simulated else occupants.container_of)
        with context.store.write() as session:
            recorded = records.record(
                session, context.host_id, records.Look(seen, busy, self._cards.simulated), epoch=context.epoch,
                now=context.now())
        if recorded is None:
            return
        self._cards.was_read.set()
        self._tell(seen.trouble, recorded.changes)
        self._learn_fields(seen.driver_version)

    def _look_whatever_happens(self) -> None:
        try:
            self.look()
        except Exception as error:
            if not self._context.outage.explains(error):
                log.exception("gpus.look_failed", host=self._context.host_name)

    def _held(self) -> frozenset[tuple[str, str]]:
        with self._context.store.read() as session:
            return reads.all_claims(session, self._context.host_id)

    def _ask_engine(self) -> None:
        """While it is silent, what it said last holds. Of cards that no engine hands out it has nothing to say."""
        if self._cards.mounts:
            return
        try:
            self._own, self._foreign = self._context.engine.list(), self._context.engine.gpu_users()
        except EngineError as error:
            log.debug("gpus.engine_silent", host=self._context.host_name, detail=str(error))

    def _learn_fields(self, driver_version: str | None) -> None:
        """Once for each version of the driver: until then, each look asks by itself."""
        if driver_version is None or driver_version == self._driver_version:
            return
        fields = ask_fields(self._cards.run)
        if fields != OLDEST:
            self._fields, self._driver_version = fields, driver_version

    def _tell(self, trouble: InventoryTrouble | None, changes: Sequence[records.Change]) -> None:
        """What is different from the last look."""
        host, code = self._context.host_name, trouble.code if trouble else None
        if trouble and code != self._trouble:
            log.warning("gpus.trouble", host=host, reason=code, detail=trouble.facts.get("detail"))
        if trouble is None and self._trouble is not None:
            log.info("gpus.trouble_over", host=host)
        self._trouble = code
        for change in changes:
            say = log.error if change.now in (Condition.LOST, Condition.FAULTY) else log.info
            say("gpu.changed", host=host, gpu=change.key, was=change.was and str(change.was),
                now=change.now and str(change.now), reason=change.reason)
