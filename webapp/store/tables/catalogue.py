"""Images people may choose, and volumes that may be mounted."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.tables.base import Base


class Image(Base):
    """One entry of the catalogue.

    `base` is what people know (pytorch/pytorch:…), or `dockerfile` says how it is made; `reference` is the workspace
    image made on it, a ready workspace image of a registry, or what was saved from a workspace. None = not prepared
    yet: shown, but not launchable. Who may launch: the owner alone, or the team, or everyone where both are None.
    """

    __tablename__ = "images"

    id: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str]
    base: Mapped[str | None] = mapped_column(unique=True)
    dockerfile: Mapped[str | None]                  # text of the base's Dockerfile, where an administrator wrote one
    reference: Mapped[str | None] = mapped_column(unique=True)
    cuda_version: Mapped[str | None]                # "12.8"; None = no CUDA inside
    has_jupyter: Mapped[bool]
    position: Mapped[int]                           # order in lists; the lowest launchable one is the default
    created_at: Mapped[datetime]
    withdrawn_at: Mapped[datetime | None]           # no new launches; running workspaces stay
    digest: Mapped[str | None]                      # "sha256:…" in its registry, of the base or of the reference
    architecture: Mapped[str | None]                # as engines say it: "amd64"
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    owner_id: Mapped[str | None] = mapped_column(ForeignKey("members.id"), index=True)  # who saved it
    team_id: Mapped[str | None] = mapped_column(ForeignKey("teams.id"), index=True)
    host_id: Mapped[str | None] = mapped_column(ForeignKey("hosts.id"))     # the only host that has it; None = any can
    saved_from: Mapped[str | None]                  # id of the workspace
    deleted_at: Mapped[datetime | None]             # in no list any more; the row stays for the history


class HostImage(Base):
    """An image of the catalogue that a host has; written by the agent, which looks at each description of a host."""

    __tablename__ = "host_images"

    host_id: Mapped[str] = mapped_column(ForeignKey("hosts.id"), primary_key=True)
    image_id: Mapped[str] = mapped_column(ForeignKey("images.id"), primary_key=True, index=True)
    engine_id: Mapped[str]                          # sha256:…
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[datetime]


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
