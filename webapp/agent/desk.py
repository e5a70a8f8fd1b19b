"""One worker's desk: the workspace as last read, and the guarded record that keeps it true."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog

from webapp.agent.context import HostContext
from webapp.domain import progress
from webapp.domain.container import Container
from webapp.domain.plan import Wanted, own_containers
from webapp.domain.reasons import Reason
from webapp.domain.workspace import Phase
from webapp.engines import Engine
from webapp.errors import EngineError
from webapp.services import observations
from webapp.store.reads import agent as reads
from webapp.store.reads.agent import WorkspaceInFull

log = structlog.get_logger(__name__)

LOG_LINES = 200
TRIES = 4                       # of one intent, when the engine fails and trying again may help
_OF_WANTED = ("phase", "revision", "container_id", "private_image", "attempted_generation", "observed_generation",
              "next_try_at")
_OF_WORKSPACE = ("failures", "progress", "started_at", "health", "reason", "note", "before_change")


class Stale(Exception):
    """Somebody asked for something else while we worked, another agent took over, or this one stops."""


class Failed(Exception):
    """This intent cannot be fulfilled. `retry`: unless a moment changes it; `tries`: how often that is hoped for."""

    def __init__(self, reason: Reason, *, retry: bool = False, tries: int = TRIES) -> None:
        super().__init__(reason.code)
        self.reason = reason
        self.retry = retry
        self.tries = tries


class Desk:
    """Not thread-safe: one worker sits at it."""

    def __init__(self, context: HostContext, workspace: WorkspaceInFull) -> None:
        self.context = context
        self.workspace = workspace
        self.ports_replaced = 0     # since it was opened

    @classmethod
    def open(cls, context: HostContext, workspace_id: str, *, looking: bool = False) -> Desk | None:
        """None = no such workspace, or nothing to do for an agent that stops, was replaced or is on hold.

        Args:  looking: nothing is to be changed, which may be done on hold too.
        """
        if context.stopping():
            return None
        with context.store.read() as session:
            workspace = reads.workspace(
                session, workspace_id, context.instance, epoch=context.epoch, looking=looking)
        return None if workspace is None else cls(context, workspace)

    @property
    def wanted(self) -> Wanted:
        return self.workspace.wanted

    @property
    def engine(self) -> Engine:
        return self.context.engine

    def now(self) -> datetime:
        return self.context.now()

    def record(self, **changes: Any) -> None:
        """Write agent-owned columns. Raises Stale when the intent is no longer this one."""
        if not self.record_if_current(**changes):
            raise Stale

    def record_if_current(self, **changes: Any) -> bool:
        with self.context.store.write() as session:
            done = observations.record(session, self.wanted.workspace_id, generation=self.wanted.generation,
                                       epoch=self.context.epoch, now=self.now(), changes=changes)
        if done:
            self._remember(changes)
        return done

    def check_current(self) -> None:
        """Raises Stale when there is a new intent or a new agent, or this one stops. Cheap: asked before every step."""
        with self.context.store.read() as session:
            holds = reads.is_last_word(session, self.wanted.workspace_id, generation=self.wanted.generation,
                                       epoch=self.context.epoch)
        if not holds or self.context.stopping():
            raise Stale

    def reload(self) -> None:
        """Read the row again: what is no intent has changed (ports), or may have (image, membership, house rules)."""
        fresh = Desk.open(self.context, self.wanted.workspace_id)
        if fresh is None or fresh.wanted.generation != self.wanted.generation:
            raise Stale
        self.workspace = fresh.workspace

    def containers(self) -> tuple[Container, ...]:
        """The workspace's own containers as the engine shows them now, newest revision first."""
        return own_containers(self.wanted, tuple(self.engine.list()))

    def fresh_progress(self, *, moves: bool = False) -> progress.Progress:
        """All steps waiting, for a start from the beginning."""
        return progress.fresh(with_jupyter=self.workspace.jupyter, with_gpus=self.workspace.gpu_count > 0, moves=moves)

    def log_tail(self) -> str | None:
        """Last lines of the newest container, for people; None when there is none or it cannot be read."""
        try:
            newest = next(iter(self.containers()), None)
            return self.engine.logs(newest.name, tail_lines=LOG_LINES) if newest else None
        except EngineError as error:
            log.warning("workspace.no_log_tail", workspace=self.wanted.workspace_id, detail=str(error))
            return None

    def workspace_is_gone(self) -> None:
        """Its removal is on record; the next plan must see that."""
        gone = replace(self.wanted, phase=Phase.REMOVED, observed_generation=self.wanted.generation)
        self.workspace = replace(self.workspace, wanted=gone)

    def cards_are_free(self, keep: tuple[str, ...]) -> None:
        """Its claims on cards are gone but for some; the next plan must see that."""
        cards = tuple(card for card in self.workspace.cards if card.uuid in keep)
        self.workspace = replace(self.workspace, wanted=replace(self.wanted, gpus=keep, claimed=keep), cards=cards)

    def _remember(self, changes: dict[str, Any]) -> None:
        wanted = {key: changes[key] for key in _OF_WANTED if key in changes}
        if "phase" in wanted:
            wanted["phase"] = Phase(wanted["phase"])
        if applied := changes.get("applied_limits"):
            wanted["applied_limits"] = applied["container"], applied["limits"]
        others = {key: changes[key] for key in _OF_WORKSPACE if key in changes}
        self.workspace = replace(self.workspace, wanted=replace(self.wanted, **wanted), **others)
