"""Browsers that are signed in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base


class BrowserSession(Base):
    """One sign-in of one browser, whose cookie holds a token. It ends with `ended_at`, when its member's epoch moves
    on, and when nobody has come for a while.
    """

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(primary_key=True)           # for addresses; opens nothing
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    epoch: Mapped[int]                                          # members.session_epoch when it began
    created_at: Mapped[datetime]
    seen_at: Mapped[datetime]                                   # written once a minute at most
    proven_at: Mapped[datetime]                                 # when its person last gave the password
    address: Mapped[str | None]
    browser: Mapped[str]                                        # as it calls itself, cut
    ended_at: Mapped[datetime | None]
