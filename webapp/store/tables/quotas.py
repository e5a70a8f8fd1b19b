"""Quotas: how much members may have at once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base

HOUSE = "house"     # the id of the quota that everybody has who has no other


class QuotaRow(Base):
    """One row for the house, and one for each team and member that has its own. NULL = no limit."""

    __tablename__ = "quotas"

    id: Mapped[str] = mapped_column(primary_key=True)       # HOUSE, or that of the team or member
    team_id: Mapped[str | None] = mapped_column(ForeignKey("teams.id"))
    member_id: Mapped[str | None] = mapped_column(ForeignKey("members.id"))
    workspaces: Mapped[int | None]
    cards: Mapped[int | None]
    cpu_millis: Mapped[int | None]
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(default=1)         # raised by each change: no two overwrite each other
    changed_at: Mapped[datetime]
