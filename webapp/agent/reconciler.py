"""One host's loop: what is wanted (rows) against what runs (the engine's list), a worker for each difference.

A pass never waits for a worker. It runs when the doorbell rings, when the engine reports an event, when a worker ends,
when a next try is due, and every few seconds anyway: events and rings are hints, the pass is the truth.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from webapp.agent import fencing, health, hold, images, keys_back, operations, sweeping, torch_check, worker
from webapp.agent.context import HostContext
from webapp.agent.crew import Crew
from webapp.agent.sightings import Sighting
from webapp.domain.container import LABEL_WORKSPACE, Container
from webapp.domain.plan import EnsureImage, Rest, Seen, Wanted, own_containers, plan, trespassers
from webapp.domain.workspace import Phase
from webapp.errors import EngineError, EngineUnreachable
from webapp.services import observations
from webapp.store.reads import agent as reads
from webapp.store.reads import hold as hold_reads
from webapp.store.reads.hold import Hold
from webapp.store.tables import Operation

log = structlog.get_logger(__name__)

PASS_SECONDS = 5.0              # at the latest
SILENT_PASS_SECONDS = 2.0       # while the engine does not answer
DESCRIBE_SECONDS = 60.0         # how often the host's facts and rules are looked at again
WORKERS = 24                    # 20 launches at once do not queue behind each other; most of their time is waiting
PORTERS = 4                     # pulls, builds and copies of hours: nothing else waits for them
CHECKERS = 2                    # importing PyTorch takes a core each; nobody waits for it
KEYS_SECONDS = 10.0             # how often those are looked for whose keys were in no backup
SEEN_SECONDS = 10.0             # how often "seen" is written down while nothing else changes
RESTLESS_SECONDS = 1.0          # after an event the list may still show the old state (seen: 20 ms after "die")
RESTLESS_PASS_SECONDS = 0.2
CROWD_SECONDS = 0.1             # events and ends of work come in crowds; a ring is not kept waiting
OOM_GRACE = timedelta(seconds=2)    # an oom event whose container ends within this was the end of the whole workspace
OOM_MEMORY = timedelta(minutes=1)   # one that is older is no news


class Hands(Protocol):
    """Who does the work: a Crew, or in tests the caller's own thread."""

    def submit(self, key: str, work: Callable[..., None], *arguments: object) -> None: ...


class HostLoop:
    """`run` is the loop's thread; `wake`, `something_happened` and `out_of_memory` may be called from any."""

    def __init__(self, context: HostContext, stop: threading.Event, hands: Hands | None = None) -> None:
        self.context = context
        self._stop = stop
        self._wake = threading.Event()
        self._ring = threading.Event()
        self._crew = Crew(f"work-{context.host_name}", size=WORKERS, stop=stop, after_each=self._wake.set,
                          outage=context.outage)
        self._checkers = Crew(f"check-{context.host_name}", size=CHECKERS, stop=stop, after_each=lambda: None,
                              outage=context.outage)
        self._hands: Hands = hands or self._crew
        self._second_hands: Hands = hands or self._checkers
        self._porters = Crew(f"images-{context.host_name}", size=PORTERS, stop=stop, after_each=self._wake.set,
                             outage=context.outage)
        self._long_hands: Hands = hands or self._porters
        self._health = health.HealthCheck(context)
        self._health_due = 0.0
        self._describe_due = 0.0
        self._seen_due = 0.0
        self._sweep_due = 0.0
        self._keys_due = 0.0
        self._restless_until = 0.0
        self._engine_was_away = False
        self._oom_events: queue.SimpleQueue[tuple[str, datetime]] = queue.SimpleQueue()
        self._ooms: dict[str, datetime] = {}

    def wake(self) -> None:
        """Look at once."""
        self._ring.set()
        self._wake.set()

    def something_happened(self, *, ended: bool = True) -> None:
        """An event of the engine: look soon; after an end once more, when its list has caught up with its events."""
        if ended:
            self._restless_until = self.context.monotonic() + RESTLESS_SECONDS
        self._wake.set()

    def out_of_memory(self, container_name: str, at: datetime) -> None:
        """An event said so; the next passes find out whether the workspace lives on."""
        self._oom_events.put((container_name, at))
        self.something_happened()

    def run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self._ring.clear()
            pause = self._pass_whatever_happens()
            if self.context.monotonic() < self._restless_until:
                pause = min(pause, RESTLESS_PASS_SECONDS)
            if self._wake.wait(pause):
                self._ring.wait(CROWD_SECONDS)

    def finish(self, seconds: float) -> None:
        """After a stop: give those at work some time."""
        if not self._crew.wait(seconds):
            log.info("agent.left_at_work", host=self.context.host_name)

    def one_pass(self) -> float:
        """Seconds until the next one, unless something wakes the loop before. Raises what the store raises."""
        try:
            return self._look()
        except EngineError as error:
            return self._engine_failed(error)

    def _pass_whatever_happens(self) -> float:
        """This thread must not end: a host without its loop would look well and do nothing."""
        try:
            return self.one_pass()
        except Exception as error:
            if not self.context.outage.explains(error):
                log.exception("reconciler.pass_failed", host=self.context.host_name)
            return PASS_SECONDS

    def _look(self) -> float:
        context = self.context
        with context.store.read() as session:
            on_hold = hold_reads.current(session)
            rows = reads.wanted_on(session, context.host_id, context.instance)
            waiting = reads.waiting_operations(session, context.host_id)
        self._describe_when_due(on_hold)
        began = context.monotonic()
        listed = tuple(context.engine.list())
        context.sightings.note(Sighting(began, listed))
        if self._engine_was_away:       # perhaps with the machine, and its driver
            self._engine_was_away = False
            context.cards.look_again.set()
        rows += self._come_back(rows, listed, on_hold)
        self._record_seen()
        self._read_keys_back()
        if on_hold is not None:
            return self._only_look(on_hold, rows, listed, waiting)
        for wanted in rows:
            for container in trespassers(wanted, listed):
                self._hands.submit(f"fence {container.id}", fencing.stop, context, wanted.workspace_id, container)
        for operation in waiting:
            hands = self._long_hands if operation.kind in images.DOERS else self._hands
            hands.submit(f"operation {operation.id}", operations.carry_out, context, operation.id)
        next_pass = context.now() + timedelta(seconds=PASS_SECONDS)
        for wanted in rows:
            due = self._reconcile(wanted, listed)
            next_pass = min(next_pass, due or next_pass)
        self._look_after(rows, listed)
        self._try_cards(rows)
        self._sweep_when_due(rows, listed)
        return max(0.02, (next_pass - context.now()).total_seconds())

    def _only_look(
        self, on_hold: Hold, rows: Sequence[Wanted], listed: tuple[Container, ...], waiting: Sequence[Operation],
    ) -> float:
        """Nothing that is below the call of this in `_look` is done."""
        hold.look(self.context, on_hold, rows, listed)
        for operation in waiting:
            if operation.kind in operations.LOOKS:
                self._hands.submit(f"operation {operation.id}", operations.carry_out, self.context, operation.id)
        return PASS_SECONDS

    def _reconcile(self, wanted: Wanted, listed: tuple[Container, ...]) -> datetime | None:
        """Start a worker when there is something to do; the time of the next try when there will be."""
        step = plan(wanted, Seen(own_containers(wanted, listed)), now=self.context.now())
        if isinstance(step, Rest):
            return step.until
        # A new launch is spared a list of its own. For all else the pass's list may be older than the row.
        hint = worker.Hint(wanted, listed) if isinstance(step, EnsureImage) else None
        self._hands.submit(wanted.workspace_id, worker.work_on, self.context, wanted.workspace_id, hint)
        return None

    def _come_back(
        self, rows: Sequence[Wanted], listed: tuple[Container, ...], on_hold: Hold | None,
    ) -> list[Wanted]:
        """Workspaces that are gone for good and have a container all the same, of an agent that was replaced; not those
        that an administrator let go as a hold ended.
        """
        known = {wanted.workspace_id for wanted in rows}
        unknown = {one.labels.get(LABEL_WORKSPACE, "") for one in listed} - known
        if not unknown:
            return []
        with self.context.store.read() as session:
            if on_hold is None:
                unknown -= hold_reads.forgotten(session, self.context.host_id)
            return reads.wanted_of(session, unknown, self.context.host_id, self.context.instance)

    def _look_after(self, rows: Sequence[Wanted], listed: tuple[Container, ...]) -> None:
        running = [wanted for wanted in rows if wanted.phase is Phase.RUNNING]
        self._note_ooms(running, listed)
        if self.context.monotonic() < self._health_due:
            return
        self._health_due = self.context.monotonic() + health.EVERY_SECONDS
        for wanted in running:
            self._hands.submit(f"health {wanted.workspace_id}", self._health.look_at, wanted)

    def _try_cards(self, rows: Sequence[Wanted]) -> None:
        if not any(wanted.phase is Phase.RUNNING and wanted.gpus for wanted in rows):
            return
        with self.context.store.read() as session:
            unchecked = reads.to_be_checked(session, self.context.host_id, self.context.epoch)
        for workspace_id in unchecked:
            self._second_hands.submit(f"torch {workspace_id}", torch_check.try_cards, self.context, workspace_id)

    def _sweep_when_due(self, rows: Sequence[Wanted], listed: tuple[Container, ...]) -> None:
        """Never beside the workspace's own worker: the crew lets one be at work on it at a time."""
        if self.context.monotonic() < self._sweep_due:
            return
        self._sweep_due = self.context.monotonic() + sweeping.EVERY_SECONDS
        for workspace_id in sweeping.left_over(self.context, rows, listed):
            self._hands.submit(workspace_id, sweeping.sweep, self.context, workspace_id)

    def _note_ooms(self, running: Sequence[Wanted], listed: tuple[Container, ...]) -> None:
        while not self._oom_events.empty():
            name, at = self._oom_events.get()
            self._ooms[name] = at
        up = {one.id: one.name for one in listed if one.is_up}
        for wanted in running:
            name = up.get(wanted.container_id or "", "")
            at_last = self._ooms.get(name)
            if at_last is not None and self.context.now() - at_last > OOM_GRACE:
                self._health.note_out_of_memory(wanted.workspace_id, at_last)
                del self._ooms[name]
        oldest = self.context.now() - OOM_MEMORY
        self._ooms = {name: at for name, at in self._ooms.items() if at > oldest}

    def _describe_when_due(self, on_hold: Hold | None) -> None:
        context = self.context
        if context.monotonic() < self._describe_due:
            return
        try:
            if on_hold is None:
                context.engine.prepare()
        except EngineUnreachable:
            raise
        except EngineError as error:    # launches fail and say so; what runs must be looked after all the same
            log.error("engine.not_prepared", host=context.host_name, detail=str(error))
        capabilities = asdict(context.engine.describe())
        self._describe_due = context.monotonic() + DESCRIBE_SECONDS
        with context.store.write() as session:
            observations.record_host_seen(session, context.host_id, capabilities=capabilities, epoch=context.epoch,
                                          now=context.now())
        self._second_hands.submit("images", images.look, context)

    def _read_keys_back(self) -> None:
        """After a restore from a backup without keys."""
        if self.context.monotonic() < self._keys_due:
            return
        self._keys_due = self.context.monotonic() + KEYS_SECONDS
        with self.context.store.read() as session:
            without = reads.without_secrets(session, self.context.host_id)
        for workspace_id in without:
            self._hands.submit(f"keys {workspace_id}", keys_back.read_back, self.context, workspace_id)

    def _record_seen(self) -> None:
        context = self.context
        if context.monotonic() < self._seen_due:
            return
        self._seen_due = context.monotonic() + SEEN_SECONDS
        with context.store.write() as session:
            observations.record_host_seen(session, context.host_id, capabilities=None, epoch=context.epoch,
                                          now=context.now())

    def _engine_failed(self, error: EngineError) -> float:
        log.warning("engine.failed", host=self.context.host_name, detail=str(error),
                    next_try_seconds=SILENT_PASS_SECONDS)
        self._seen_due = self._describe_due = 0.0       # back again: its rules may have gone with it
        self._engine_was_away = True
        if isinstance(error, EngineUnreachable):
            with self.context.store.write() as session:
                observations.record_host_silent(session, self.context.host_id, trouble=str(error),
                                                epoch=self.context.epoch, now=self.context.now())
        return SILENT_PASS_SECONDS
