"""One host's loop: what is wanted (rows) against what runs (the engine's list), a worker for each difference.

A pass never waits for a worker. It runs when the doorbell rings, when the engine reports an event, when a worker ends,
when a next try is due, and every few seconds anyway: events and rings are hints, the pass is the truth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime, timedelta

import structlog

from webapp.agent import health, operations, worker
from webapp.agent.context import HostContext
from webapp.domain.container import LABEL_WORKSPACE, Container
from webapp.domain.plan import EnsureImage, Rest, Seen, Wanted, own_containers, plan
from webapp.domain.workspace import Phase
from webapp.errors import EngineError, EngineUnreachable
from webapp.services import observations
from webapp.store.reads import agent as reads

log = structlog.get_logger(__name__)

PASS_SECONDS = 5.0              # at the latest
SILENT_PASS_SECONDS = 2.0       # while the engine does not answer
DESCRIBE_SECONDS = 60.0         # how often the host's facts and rules are looked at again
WORKERS = 24                    # 20 launches at once do not queue behind each other; most of their time is waiting
SEEN_SECONDS = 10.0             # how often "seen" is written down while nothing else changes
RESTLESS_SECONDS = 1.0          # after an event the list may still show the old state (seen: 20 ms after "die")
RESTLESS_PASS_SECONDS = 0.2
OOM_GRACE = timedelta(seconds=2)    # an oom event whose container ends within this was the end of the whole workspace


class HostLoop:
    """`run` is the loop's thread; `wake` may be called from any."""

    def __init__(self, context: HostContext, stop: threading.Event) -> None:
        self.context = context
        self._stop = stop
        self._wake = threading.Event()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix=f"work-{context.host_name}")
        self._busy: set[str] = set()
        self._busy_lock = threading.Lock()
        self._health = health.HealthCheck(context)
        self._health_due = 0.0
        self._describe_due = 0.0
        self._seen_due = 0.0
        self._restless_until = 0.0
        self._ooms: dict[str, datetime] = {}

    def wake(self) -> None:
        self._wake.set()

    def something_happened(self) -> None:
        """An event of the engine: look now, and once more when its list has caught up with its events."""
        self._restless_until = time.monotonic() + RESTLESS_SECONDS
        self.wake()

    def out_of_memory(self, container_name: str, at: datetime) -> None:
        """An event said so; the next passes find out whether the workspace lives on."""
        self._ooms[container_name] = at
        self.something_happened()

    def run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause = self._pass()
            except EngineError as error:
                pause = self._engine_failed(error)
            except Exception:
                log.exception("reconciler.pass_failed", host=self.context.host_name)
                pause = PASS_SECONDS
            if time.monotonic() < self._restless_until:
                pause = min(pause, RESTLESS_PASS_SECONDS)
            self._wake.wait(pause)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _pass(self) -> float:
        """Seconds until the next pass, if nothing wakes it before."""
        context = self.context
        self._describe_when_due()
        with context.store.read() as session:
            rows = reads.wanted_on(session, context.host_id, context.instance)
            waiting = reads.waiting_operations(session, context.host_id)
        listed = tuple(context.engine.list())
        rows += self._come_back(rows, listed)
        self._record_seen()
        for operation in waiting:
            self._submit(f"operation {operation.id}", operations.carry_out, context, operation.id)
        next_pass = context.now() + timedelta(seconds=PASS_SECONDS)
        for wanted in rows:
            due = self._reconcile(wanted, listed)
            next_pass = min(next_pass, due or next_pass)
        self._look_after(rows, listed)
        return max(0.02, (next_pass - context.now()).total_seconds())

    def _reconcile(self, wanted: Wanted, listed: tuple[Container, ...]) -> datetime | None:
        """Start a worker when there is something to do; the time of the next try when there will be."""
        step = plan(wanted, Seen(own_containers(wanted, listed)), now=self.context.now())
        if isinstance(step, Rest):
            return step.until
        # A new launch is spared a list of its own. For all else the pass's list may be older than the row.
        hint = worker.Hint(wanted, listed) if isinstance(step, EnsureImage) else None
        self._submit(wanted.workspace_id, worker.work_on, self.context, wanted.workspace_id, hint)
        return None

    def _come_back(self, rows: Sequence[Wanted], listed: tuple[Container, ...]) -> list[Wanted]:
        """Workspaces that are gone for good and have a container all the same, of an agent that was replaced."""
        known = {wanted.workspace_id for wanted in rows}
        unknown = {one.labels.get(LABEL_WORKSPACE, "") for one in listed} - known
        if not unknown:
            return []
        with self.context.store.read() as session:
            return reads.wanted_of(session, unknown, self.context.host_id, self.context.instance)

    def _submit(self, key: str, work: Callable[..., None], *arguments: object) -> None:
        with self._busy_lock:
            if key in self._busy:
                return
            self._busy.add(key)
        self._pool.submit(self._run, key, work, *arguments)

    def _run(self, key: str, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception:
            log.exception("worker.failed", key=key, host=self.context.host_name)
            time.sleep(1.0)                     # a bug must not become a hot loop
        finally:
            with self._busy_lock:
                self._busy.discard(key)
            self.wake()

    def _look_after(self, rows: Sequence[Wanted], listed: tuple[Container, ...]) -> None:
        running = [wanted for wanted in rows if wanted.phase is Phase.RUNNING]
        self._note_ooms(running, listed)
        if time.monotonic() < self._health_due:
            return
        self._health_due = time.monotonic() + health.EVERY_SECONDS
        for wanted in running:
            self._submit(f"health {wanted.workspace_id}", self._health.look_at, wanted)

    def _note_ooms(self, running: Sequence[Wanted], listed: tuple[Container, ...]) -> None:
        up = {one.id: one.name for one in listed if one.is_up}
        for wanted in running:
            name = up.get(wanted.container_id or "")
            at = self._ooms.get(name or "")
            if at is not None and self.context.now() - at > OOM_GRACE:
                self._health.note_out_of_memory(wanted.workspace_id, at)
                self._ooms.pop(name or "", None)
        oldest = self.context.now() - timedelta(minutes=1)
        self._ooms = {name: at for name, at in self._ooms.items() if at > oldest}

    def _describe_when_due(self) -> None:
        if time.monotonic() < self._describe_due:
            return
        self.context.engine.prepare()
        capabilities = asdict(self.context.engine.describe())
        self._describe_due = time.monotonic() + DESCRIBE_SECONDS
        with self.context.store.write() as session:
            observations.record_host_seen(session, self.context.host_id, capabilities=capabilities,
                                          now=self.context.now())

    def _record_seen(self) -> None:
        if time.monotonic() < self._seen_due:
            return
        self._seen_due = time.monotonic() + SEEN_SECONDS
        with self.context.store.write() as session:
            observations.record_host_seen(session, self.context.host_id, capabilities=None, now=self.context.now())

    def _engine_failed(self, error: EngineError) -> float:
        log.warning("engine.failed", host=self.context.host_name, detail=str(error),
                    next_try_seconds=SILENT_PASS_SECONDS)
        self._seen_due = self._describe_due = 0.0       # back again: its rules may have gone with it
        if isinstance(error, EngineUnreachable):
            with self.context.store.write() as session:
                observations.record_host_silent(session, self.context.host_id, trouble=str(error),
                                                epoch=self.context.epoch, now=self.context.now())
        return SILENT_PASS_SECONDS
