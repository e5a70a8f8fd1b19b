"""Images people may choose, and volumes that may be mounted."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base


class Image(Base):
    """One entry of the catalogue.

    `base` is what people know (pytorch/pytorch:…); `reference` is the workspace image made on it, or a ready workspace
    image of a registry. None = not prepared yet: shown, with the command that prepares it, but not launchable.
    """

    __tablename__ = "images"

    id: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str]
    base: Mapped[str | None] = mapped_column(unique=True)
    reference: Mapped[str | None] = mapped_column(unique=True)
    cuda_version: Mapped[str | None]                # "12.8"; None = no CUDA inside
    has_jupyter: Mapped[bool]
    position: Mapped[int]                           # order in lists; the lowest launchable one is the default
    created_at: Mapped[datetime]
    withdrawn_at: Mapped[datetime | None]           # no new launches; running workspaces stay


class Volume(Base):
    """A team's data. Homes are no rows here: each member has one on each host (`host_homes`)."""

    __tablename__ = "volumes"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id"), index=True)
    host_folder: Mapped[str | None]                 # below a root of the settings; None = a named volume
    target: Mapped[str]                             # where it appears inside, /data/NAME by default
    read_only: Mapped[bool]                         # True = nobody may write through Berth
    created_at: Mapped[datetime]


class WorkspaceMount(Base):
    __tablename__ = "workspace_mounts"

    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspaces.id"), primary_key=True)
    volume_id: Mapped[str] = mapped_column(ForeignKey("volumes.id"), primary_key=True)
    read_only: Mapped[bool]
