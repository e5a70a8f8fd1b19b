"""Volumes: a team's data, mounted into the workspaces of its members. Berth never deletes what is in one."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.mounts import parse_container_path, parse_host_folder, refuse_nesting, team_volume_path
from webapp.domain.names import excerpt
from webapp.domain.workspace import Phase
from webapp.errors import N_, InvalidInput, NotFound
from webapp.services import access, before, events, locks
from webapp.services.ids import new_id
from webapp.services.problems import Problems
from webapp.store.tables import Team, TeamMember, Volume, Workspace, WorkspaceMount

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,38}[a-z0-9])?")


def create_volume(
    session: Session, actor: Actor, *, name: str, team_id: str, host_folder: str | None, target: str | None,
    read_only: bool, roots: Collection[Path | str], now: datetime,
) -> Volume:
    """`host_folder` None or "" = a named volume of the engine; `target` None or "" = /data/NAME."""
    access.require_admin(actor)
    locks.turn(session, locks.Lock.VOLUMES)
    problems = Problems()
    with problems.gather():
        _check_name(session, name)
    if session.get(Team, team_id) is None:
        problems.add("team_id", N_("There is no such team. Choose one from the list."))
    with problems.gather():
        host_folder = _check_folder(session, host_folder, [str(root) for root in roots]) if host_folder else None
    if target or not problems.has("name"):
        with problems.gather():
            target = _check_target(session, team_id, target or team_volume_path(name))
    problems.raise_if_any()
    volume = Volume(id=new_id(), name=name, team_id=team_id, host_folder=host_folder, target=target,
                    read_only=read_only, created_at=now)
    session.add(volume)
    session.flush()
    events.write(session, actor, "volume.create", "volume", volume.id, now=now, name=name, team_id=team_id,
                 host_folder=host_folder, target=target, read_only=read_only)
    return volume


def remove_volume(session: Session, actor: Actor, volume_id: str, *, now: datetime) -> None:
    """Forgets the volume; its data stays where it is. Refused while any workspace that is not gone mounts it."""
    access.require_admin(actor)
    volume = session.get(Volume, volume_id, with_for_update=True)   # a launch that mounts it waits, or is waited for
    if volume is None:
        raise NotFound()
    holders = session.scalars(
        select(Workspace.name).join(WorkspaceMount, WorkspaceMount.workspace_id == Workspace.id)
        .where(WorkspaceMount.volume_id == volume_id, Workspace.phase != Phase.REMOVED)
    ).all()
    holders = sorted({*holders, *(workspace.name for workspace in before.mounting(session, [volume_id]))})
    if holders:
        raise InvalidInput.of(
            "volume", N_("%(volume)s is mounted in %(workspaces)s. Remove these workspaces first."),
            volume=volume.name, workspaces=", ".join(holders))
    session.execute(delete(WorkspaceMount).where(WorkspaceMount.volume_id == volume_id))
    session.delete(volume)
    session.flush()
    events.write(session, actor, "volume.remove", "volume", volume_id, now=now, name=volume.name,
                 host_folder=volume.host_folder)


def available_to(session: Session, member_id: str) -> list[Volume]:
    """Volumes of the teams that the member is in, by name."""
    of_teams = (
        select(Volume).join(TeamMember, TeamMember.team_id == Volume.team_id)
        .where(TeamMember.member_id == member_id).order_by(Volume.name)
    )
    return list(session.scalars(of_teams))


def _check_name(session: Session, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput.of(
            "name", N_("“%(given)s” cannot be a volume name: use 1 to 40 of a-z, 0-9, - and _, for example imagenet."),
            given=excerpt(name))
    if session.scalar(select(Volume.id).where(Volume.name == name)):
        raise InvalidInput.of("name", N_("“%(given)s” is taken. Choose another name."), given=name)


def _check_folder(session: Session, text: str, roots: list[str]) -> str:
    """Below a root, and neither inside nor around another volume's: two teams would own the same files."""
    folder = parse_host_folder(text, roots, "host_folder")
    existing = session.execute(select(Volume.name, Volume.host_folder).where(Volume.host_folder.is_not(None)))
    refuse_nesting({name: other for name, other in existing if other}, folder, "host_folder")
    return folder


def _check_target(session: Session, team_id: str, text: str) -> str:
    """Nested places within one team could never be mounted together; across teams the launch looks."""
    target = parse_container_path(text, "target")
    existing = session.execute(select(Volume.name, Volume.target).where(Volume.team_id == team_id))
    refuse_nesting(dict(existing.all()), target, "target")
    return target
