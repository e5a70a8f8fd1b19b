"""Teams: who shares data. A team's gid owns its files on every host and is never given to another team."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.domain.actor import Actor
from webapp.domain.names import parse_team_name
from webapp.domain.workspace import Desired
from webapp.errors import NotFound
from webapp.services import access, account_names, before, events, locks, numbers, workspaces
from webapp.services.ids import new_id
from webapp.store.tables import Member, Team, TeamMember, Volume, Workspace, WorkspaceMount


def create_team(session: Session, actor: Actor, *, name: str, now: datetime) -> Team:
    access.require_admin(actor)
    name = parse_team_name(name, "name")
    locks.turn(session, locks.Lock.PEOPLE)
    account_names.refuse_taken(session, name, "name")
    team = Team(id=new_id(), name=name, gid=numbers.next_gid(session), created_at=now)
    session.add(team)
    session.flush()
    events.write(session, actor, "team.create", "team", team.id, now=now, name=name, gid=team.gid)
    return team


def add_member(session: Session, actor: Actor, *, team_id: str, member_id: str, now: datetime) -> None:
    """Adding twice changes nothing. Workspaces that run already get the group at their next start."""
    access.require_admin(actor)
    _get(session, team_id)
    access.member(session, member_id)
    if session.get(TeamMember, (team_id, member_id)) is None:
        session.add(TeamMember(team_id=team_id, member_id=member_id))
        session.flush()
        events.write(session, actor, "team.add_member", "team", team_id, now=now, member_id=member_id)


def remove_member(session: Session, actor: Actor, *, team_id: str, member_id: str, now: datetime) -> list[Workspace]:
    """Takes the person out, and stops those of their workspaces that have a volume of the team; these are returned.

    Without the stop the data would stay open to them for as long as a container runs.
    """
    access.require_admin(actor)
    session.get(Member, member_id, with_for_update=locks.ROW)   # no launch of theirs is half done
    row = session.get(TeamMember, (team_id, member_id))
    if row is None:
        return []
    session.delete(row)
    session.flush()
    stopped = [workspaces.stop(session, actor, workspace_id, now=now)
               for workspace_id in _running_with_volumes_of(session, team_id, member_id)]
    events.write(session, actor, "team.remove_member", "team", team_id, now=now, member_id=member_id,
                 stopped=[workspace.id for workspace in stopped])
    return stopped


def _get(session: Session, team_id: str) -> Team:
    team = session.get(Team, team_id)
    if team is None:
        raise NotFound()
    return team


def _running_with_volumes_of(session: Session, team_id: str, member_id: str) -> list[str]:
    """Also those that a change takes them from: its container may have them still."""
    of_team = session.scalars(select(Volume.id).where(Volume.team_id == team_id)).all()
    mounted = select(WorkspaceMount.workspace_id).where(WorkspaceMount.volume_id.in_(of_team))
    before_change = [workspace.id for workspace in before.mounting(session, of_team)]
    running = select(Workspace.id).where(
        Workspace.owner_id == member_id, Workspace.desired == Desired.RUNNING,
        Workspace.id.in_(mounted) | Workspace.id.in_(before_change))
    return list(session.scalars(running.order_by(Workspace.id)))
