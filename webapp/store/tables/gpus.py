"""GPUs as the agent saw them, and who holds them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base


class Gpu(Base):
    """A card of a host, or a MIG slice of one; written by the agent. What vanished stays as a row, lost."""

    __tablename__ = "gpus"

    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)  # its UUID; of a card without one, where it sits
    uuid: Mapped[str | None] = mapped_column(index=True)
    parent_uuid: Mapped[str | None]                 # of a MIG slice: its card
    index: Mapped[int | None]                       # text on screen; of a slice that of its card
    model: Mapped[str]                              # as the driver names it; of a slice with its profile
    pci_bus_id: Mapped[str | None]
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    shares_host_memory: Mapped[bool]
    mig_mode: Mapped[str | None]                    # domain.gpu.MigMode
    condition: Mapped[str]                          # domain.gpu.Condition
    condition_at: Mapped[datetime]                  # since when
    refusal: Mapped[dict[str, Any] | None]          # {"code", "facts"}: why nobody may have it; None = offered
    simulated: Mapped[bool]
    seen_at: Mapped[datetime]                       # last time that the driver listed it


class GpuClaim(Base):
    """A claim is a row that exists: the primary key refuses a second holder.

    It ends with proof that its container is down, never because a stop was asked for, never because a host is silent.
    """

    __tablename__ = "gpu_claims"

    gpu_uuid: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True)     # always 0: a card has one holder
    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), index=True)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), index=True)
    claimed_at: Mapped[datetime]
