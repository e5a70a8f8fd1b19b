"""Running workspaces, looked after: are their cards well, does each service still answer, was a program in one ended
for its memory?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from webapp.agent import gpu_check
from webapp.agent.context import HostContext
from webapp.agent.desk import Desk
from webapp.domain.plan import Wanted
from webapp.domain.reasons import Reason
from webapp.domain.sizes import show_size
from webapp.domain.workspace import Health, Phase, Service
from webapp.store.reads.agent import WorkspaceInFull

EVERY_SECONDS = 10.0
OF_A_CARD = "gpu_"              # what codes of faults begin with that are one card's, not its driver's (domain.gpu)
MISSES = 2                      # silent looks in a row before it is called degraded: slow is not dead


class HealthCheck:
    """The looks at one host's workspaces. No two at once at the same workspace."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._misses: Counter[tuple[str, Service]] = Counter()

    def look_at(self, wanted: Wanted) -> None:
        """Probe each service of a running workspace once and record a change of health."""
        misses = {service: self._look(wanted, service) for service in sorted(wanted.ports)}
        silent = [service for service, count in misses.items() if count >= MISSES]
        desk = Desk.open(self._context, wanted.workspace_id)
        if desk is None or desk.wanted.phase is not Phase.RUNNING or desk.wanted.generation != wanted.generation:
            return
        reason = _fault_of_a_card(desk.workspace) or _silence(silent, desk.now())
        if reason is None and any(misses.values()):
            return                          # slow, or down: the next look decides
        health = Health.OK if reason is None else Health.DEGRADED
        if desk.workspace.health == health and _is_said(reason, desk.workspace.reason):
            return
        desk.record_if_current(health=health, reason=reason.as_json() if reason else None)

    def note_out_of_memory(self, workspace_id: str, at: datetime) -> None:
        """A program inside was ended for its memory, and the workspace goes on: say so, once per occasion."""
        desk = Desk.open(self._context, workspace_id)
        if desk is None or desk.wanted.phase is not Phase.RUNNING:
            return
        if desk.workspace.started_at is not None and at < desk.workspace.started_at:
            return                          # of the run before, which it ended
        memory = show_size(desk.workspace.limits.memory_bytes)
        desk.record_if_current(note=Reason("child_out_of_memory", {"memory": memory, "at": at.isoformat()}).as_json())

    def _look(self, wanted: Wanted, service: Service) -> int:
        """How many looks in a row it did not answer, this one included."""
        key = (wanted.workspace_id, service)
        if self._context.probe(service, self._context.probe_address, wanted.ports[service]):
            self._misses.pop(key, None)
            return 0
        self._misses[key] += 1
        return self._misses[key]


def _fault_of_a_card(workspace: WorkspaceInFull) -> Reason | None:
    """What is wrong with a card that it holds. Nothing is taken from it: only its owner can say what is to be done.

    A driver that does not answer says nothing of the card.
    """
    faults = (gpu_check.fault(card) for card in workspace.cards if not card.is_well)
    return next((fault for fault in faults if fault.code.startswith(OF_A_CARD)), None)


def _silence(silent: Sequence[Service], now: datetime) -> Reason | None:
    return Reason("service_down", {"service": str(silent[0]), "since": now.isoformat()}) if silent else None


def _is_said(reason: Reason | None, written: Mapping[str, Any] | None) -> bool:
    """The same, but for when it began."""
    if reason is None or written is None:
        return reason is None           # what else is said of a workspace that is well is not health's
    return reason.code == written["code"] and all(
        written["facts"].get(name) == fact for name, fact in reason.facts.items() if name != "since")
