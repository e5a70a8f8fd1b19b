"""Hosts, and what the agent saw of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base


class Host(Base):
    """A machine with an engine. Services write name and engine_url; the agent writes the rest."""

    __tablename__ = "hosts"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    engine_url: Mapped[str]
    created_at: Mapped[datetime]

    seen_at: Mapped[datetime | None]                # last answer of the engine
    unreachable_since: Mapped[datetime | None]
    trouble: Mapped[str | None]                     # the engine's last error, one sentence, when unreachable
    capabilities: Mapped[dict[str, Any] | None]     # engines.Capabilities as JSON

    gpus_seen_at: Mapped[datetime | None]           # last answer of nvidia-smi, whatever it said
    driver_version: Mapped[str | None]              # NVIDIA's
    cuda_version: Mapped[str | None]                # the newest that the driver knows
    gpu_trouble: Mapped[dict[str, Any] | None]      # {"code", "facts"}: why the cards could not be read, or not all
    gpu_links: Mapped[dict[str, Any] | None]        # {"UUID UUID": domain.gpu.Link.closeness}; what is missing: unknown


class HostHome(Base):
    """A member's home on a host. The skeleton of a new home is written once; its row says that it was."""

    __tablename__ = "host_homes"

    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), primary_key=True)
    seeded_at: Mapped[datetime]
