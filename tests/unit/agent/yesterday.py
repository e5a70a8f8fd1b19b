"""Yesterday's database: what all tables held once, put back later, as a restore does it; on either kind."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, select

from agent.stage import Stage
from webapp.domain.actor import Actor
from webapp.services import hold
from webapp.services.hold_release import release
from webapp.store.reads import hold as reads
from webapp.store.reads.hold import FindingRow
from webapp.store.session import Store
from webapp.store.tables import AgentState, Base, Workspace

Rows = dict[Table, list[dict[str, Any]]]
HOUSE = Actor.house()
OF_LOOKING = ("agent_state", "hosts", "hold_findings", "host_images", "events", "intent", "gpus")      # tables


def rows_of(store: Store) -> Rows:
    with store.read() as session:
        return {table: [dict(row) for row in session.execute(select(table)).mappings()]
                for table in Base.metadata.sorted_tables}


class Yesterday:
    """The stage's database as it is now, to be restored later."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.rows = stage, rows_of(stage.store)

    def restore(self) -> None:
        """On hold, and a new agent begins."""
        stage = self.stage
        with stage.store.write() as session:
            for table in reversed(Base.metadata.sorted_tables):
                session.execute(table.delete())
            for table, rows in self.rows.items():
                if rows:
                    session.execute(table.insert(), rows)
            session.get_one(AgentState, 1).epoch = stage.context.epoch
        put_on(stage, "restore")
        stage.take_over()
        stage.forget_calls()


def put_on(stage: Stage, why: str = "to look first") -> None:
    stage.do(hold.put_on, HOUSE, why=why)


def findings(stage: Stage) -> dict[str, FindingRow]:
    """By name of the workspace, after a pass of the agent."""
    stage.loop.one_pass()
    with stage.store.read() as session:
        return {row.name: row for row in reads.findings(session)}


def kinds(stage: Stage) -> dict[str, str]:
    return {name: str(row.kind) for name, row in findings(stage).items()}


def decide(stage: Stage, **decisions: str) -> None:
    """By name, with - in place of _."""
    found = findings(stage)
    for name, decision in decisions.items():
        stage.do(hold.decide, HOUSE, found[name.replace("_", "-")].workspace_id, decision)


def end_hold(stage: Stage, *, keep_rest: bool = False) -> None:
    stage.loop.one_pass()
    stage.do(release, HOUSE, keep_rest=keep_rest)


def box(stage: Stage, workspace: Workspace) -> Any:
    """Its newest container."""
    mine = [one for one in stage.machine.containers.values() if one.spec.labels["berth.workspace"] == workspace.id]
    return max(mine, key=lambda one: int(one.spec.labels["berth.revision"]))
