"""Members, their SSH keys, teams, and the links that let somebody in for the first time."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base

FIRST_UID = 10_000
FIRST_GID = 20_000


class Role(StrEnum):
    ADMIN = "admin"
    MEMBER = "member"


class Member(Base):
    """A person. `uid` is used for their files on every host and is never given to anybody else."""

    __tablename__ = "members"

    id: Mapped[str] = mapped_column(primary_key=True)
    username: Mapped[str] = mapped_column(unique=True)
    display_name: Mapped[str]
    role: Mapped[str]
    password_hash: Mapped[str]
    uid: Mapped[int] = mapped_column(unique=True)
    language: Mapped[str | None]
    session_epoch: Mapped[int] = mapped_column(default=0)   # raised to end every browser session of this person
    created_at: Mapped[datetime]
    deactivated_at: Mapped[datetime | None]


class SshKey(Base):
    __tablename__ = "ssh_keys"
    __table_args__ = (UniqueConstraint("member_id", "fingerprint"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    title: Mapped[str]
    type: Mapped[str]
    line: Mapped[str]               # "ssh-ed25519 AAAA… comment", one canonical line
    fingerprint: Mapped[str]        # "SHA256:…"
    created_at: Mapped[datetime]


class Team(Base):
    __tablename__ = "teams"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    gid: Mapped[int] = mapped_column(unique=True)
    created_at: Mapped[datetime]


class TeamMember(Base):
    __tablename__ = "team_members"

    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id"), primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), primary_key=True, index=True)


class Invite(Base):
    """A link that can be used once. Only the hash of its token is kept."""

    __tablename__ = "invites"

    id: Mapped[str] = mapped_column(primary_key=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str]
    created_by: Mapped[str | None] = mapped_column(ForeignKey("members.id"))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    member_id: Mapped[str | None] = mapped_column(ForeignKey("members.id"))
