"""On hold: what differs on a host between what runs and what the rows say, written down. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from webapp.agent.context import HostContext
from webapp.domain.container import Container
from webapp.domain.hold import compare, present
from webapp.domain.plan import Wanted
from webapp.services import hold as records
from webapp.store.reads import hold as reads
from webapp.store.reads.hold import Hold

log = structlog.get_logger(__name__)


def look(context: HostContext, on: Hold, rows: Sequence[Wanted], listed: Sequence[Container]) -> None:
    """One inspect a container: the list shows neither ports and cards nor what it was made with."""
    if on.instance not in (None, context.instance):     # a restore was cut short: nothing here would be known
        log.error("hold.other_instance", host=context.host_name, instance=context.instance, restored=on.instance)
        return
    details = [detail for one in listed if (detail := context.engine.inspect(one.id)) is not None]
    with context.store.read() as session:
        asked = reads.asked_since(session, on.since)
    findings = compare(rows, details, instance=context.instance, asked=asked)
    there = present(context.instance, [detail.container for detail in details])
    with context.store.write() as session:
        records.record(session, context.host_id, findings, there, epoch=context.epoch, now=context.now())
