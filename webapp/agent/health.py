"""Running workspaces, looked after: does each service still answer, and was a program in one ended for its memory?"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from webapp.agent.context import HostContext
from webapp.agent.desk import Desk
from webapp.domain.plan import Wanted
from webapp.domain.reasons import Reason
from webapp.domain.sizes import show_size
from webapp.domain.workspace import Health, Phase, Service

EVERY_SECONDS = 10.0
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
        if not silent and any(misses.values()):
            return                          # slow, or down: the next look decides
        desk = Desk.open(self._context, wanted.workspace_id)
        if desk is None or desk.wanted.phase is not Phase.RUNNING or desk.wanted.generation != wanted.generation:
            return
        health = Health.DEGRADED if silent else Health.OK
        if desk.workspace.health == health:
            return
        reason = None
        if silent:
            reason = Reason("service_down", {"service": str(silent[0]), "since": desk.now().isoformat()}).as_json()
        desk.record_if_current(health=health, reason=reason)

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
