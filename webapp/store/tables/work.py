"""Work and history: operations, events, the intent counter, and the agent's sign of life."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base


class Operation(Base):
    """Work for the agent that is no phase. Services insert it; from then on only the agent writes it, but for the wish
    to end it.
    """

    __tablename__ = "operations"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(index=True)   # domain.operation.OperationKind
    workspace_id: Mapped[str | None] = mapped_column(ForeignKey("workspaces.id"), index=True)
    host_id: Mapped[str | None] = mapped_column(ForeignKey("hosts.id"))
    image_id: Mapped[str | None] = mapped_column(ForeignKey("images.id"), index=True)
    actor_id: Mapped[str | None] = mapped_column(ForeignKey("members.id"))
    arguments: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]                    # waiting longer than this: failed; ended longer ago: swept
    cancel_asked_at: Mapped[datetime | None]        # somebody wants it ended; the agent sees it within seconds

    state: Mapped[str] = mapped_column(index=True)  # domain.operation.OperationState
    progress: Mapped[dict[str, Any] | None]
    result: Mapped[dict[str, Any] | None]           # bounded: at most 64 KiB of text
    reason: Mapped[dict[str, Any] | None]           # as Workspace.reason, when it failed
    log: Mapped[str | None]                         # what a build prints, its last 64 KiB, while it runs and after
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class Event(Base):
    """What happened, appended only. Never a secret in it."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(index=True)
    actor_id: Mapped[str | None] = mapped_column(ForeignKey("members.id"))   # None = the agent, or the command line
    address: Mapped[str | None]                     # client address, when there was one
    action: Mapped[str]                             # "workspace.launch", "port.replace", …
    object_type: Mapped[str]
    object_id: Mapped[str] = mapped_column(index=True)
    details: Mapped[dict[str, Any]]


class Intent(Base):
    """One row. `seq` grows with everything the agent should look at; only services write it."""

    __tablename__ = "intent"

    id: Mapped[int] = mapped_column(primary_key=True)
    seq: Mapped[int]


class AgentState(Base):
    """One row: which agent runs, and when it last said so. `epoch` grows with each start."""

    __tablename__ = "agent_state"

    id: Mapped[int] = mapped_column(primary_key=True)
    epoch: Mapped[int]
    started_at: Mapped[datetime | None]
    alive_at: Mapped[datetime | None]
    hold: Mapped[dict[str, Any] | None]             # {"since", "why", …}: it looks, and starts and stops nothing


class HoldFinding(Base):
    """Where what runs differs from what the database says, found while the agent is on hold, and what is to be done."""

    __tablename__ = "hold_findings"

    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), primary_key=True)
    workspace_id: Mapped[str] = mapped_column(primary_key=True)     # as the container's label says; may be no row's
    kind: Mapped[str]                               # domain.hold.FindingKind
    facts: Mapped[dict[str, Any]]                   # what was seen, for people and for taking it over
    found_at: Mapped[datetime]
    decision: Mapped[str | None]                    # domain.hold.Decision, by an administrator
