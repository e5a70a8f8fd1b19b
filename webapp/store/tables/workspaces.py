"""Workspaces: intent and observation side by side, each column with one writer; and their port claims."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.sealing import Sealed
from webapp.store.tables.base import Base


class Workspace(Base):
    """One workspace. A removed one stays as a row, for history; its name is free again."""

    __tablename__ = "workspaces"
    __table_args__ = (
        Index(
            "uq_workspaces_live_name", "owner_id", "name", unique=True,
            sqlite_where=text("desired != 'removed'"), postgresql_where=text("desired != 'removed'"),
        ),
    )

    # written by services
    id: Mapped[str] = mapped_column(primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), index=True)
    kind: Mapped[str] = mapped_column(default="dev")
    name: Mapped[str]
    image_id: Mapped[str] = mapped_column(ForeignKey("images.id"))
    image_reference: Mapped[str]                    # as it was at launch
    cpu_millis: Mapped[int]
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    shm_bytes: Mapped[int] = mapped_column(BigInteger)
    pids: Mapped[int]
    jupyter: Mapped[bool]                           # False: SSH only
    gpu_count: Mapped[int] = mapped_column(default=0)               # cards that it is to have
    gpu_model: Mapped[str | None]                                   # which alone will do; None = any
    gpu_uuids: Mapped[list[str]] = mapped_column(default=list)      # those it has, or had last; held by GpuClaim alone
    before_change: Mapped[dict[str, Any] | None]    # of a change that is not carried out yet: services.before
    shape_unlabelled: Mapped[str | None]            # shm and mounts of containers made before these stood in a label
    desired: Mapped[str]                            # domain.workspace.Desired
    generation: Mapped[int]                         # counts intents
    created_at: Mapped[datetime]

    # written by the agent, guarded by generation
    phase: Mapped[str]                              # domain.workspace.Phase
    phase_at: Mapped[datetime]
    health: Mapped[str]                             # domain.workspace.Health
    reason: Mapped[dict[str, Any] | None]           # {"code": domain.reasons, "facts": {…}}
    note: Mapped[dict[str, Any] | None]             # same shape: worth knowing, but nothing is wrong now
    attempted_generation: Mapped[int] = mapped_column(default=0)   # the intent that the agent last took up
    observed_generation: Mapped[int]                # the intent whose outcome (or whose started container) was seen
    container_id: Mapped[str | None]
    revision: Mapped[int]                           # counts containers made for it; 0 = none yet
    private_image: Mapped[str | None]               # what the current container was made from after a move
    applied_limits: Mapped[dict[str, Any] | None]   # CPU and memory that were changed while its container lived
    progress: Mapped[dict[str, Any]]                # {"steps": [{"name", "state", "started_at", "ended_at", …}]}
    failures: Mapped[int]                           # tries of attempted_generation that went wrong in a row
    next_try_at: Mapped[datetime | None]
    log_tail: Mapped[str | None]                    # last lines of a container that failed
    started_at: Mapped[datetime | None]             # when it was last seen ready
    gpu_check: Mapped[dict[str, Any] | None]        # domain.gpu_check: what PyTorch found inside, of this very start


class WorkspaceSecret(Base):
    """What only the owner and the workspace itself may know. In a table apart, so that no list reads it by accident."""

    __tablename__ = "workspace_secrets"

    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), primary_key=True)
    jupyter_token: Mapped[str] = mapped_column(Sealed("jupyter_token"))
    host_private_key: Mapped[str] = mapped_column(Sealed("host_private_key"))   # OpenSSH PEM, ed25519
    host_public_key: Mapped[str]                    # "ssh-ed25519 AAAA…"


class PortClaim(Base):
    """A claim is a row that exists: the primary key refuses a second holder. Kept until the workspace is removed."""

    __tablename__ = "port_claims"
    __table_args__ = (UniqueConstraint("workspace_id", "service"),)

    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), primary_key=True)
    port: Mapped[int] = mapped_column(primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    service: Mapped[str]                            # domain.workspace.Service
    claimed_at: Mapped[datetime]


class PortHistory(Base):
    """When a port was last given back or found taken; the longest unused goes first (OpenSSH remembers host keys)."""

    __tablename__ = "port_history"

    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), primary_key=True)
    port: Mapped[int] = mapped_column(primary_key=True)
    last_used_at: Mapped[datetime]
