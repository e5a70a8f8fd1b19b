"""`berth team`"""

from __future__ import annotations

import click
from sqlalchemy.orm import Session

from webapp.cli.house import ACTOR, now, open_house, pick
from webapp.cli.output import json_option, show
from webapp.services import teams
from webapp.store.reads import people as reads


@click.group(name="team")
def command() -> None:
    """Teams share volumes: add, list, join, leave."""


@command.command()
@click.argument("name")
def add(name: str) -> None:
    """Make a team."""
    with open_house() as house, house.store.write() as session:
        team = teams.create_team(session, ACTOR, name=name, now=now())
        print(f"{team.name} made with gid {team.gid}")


@command.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """Show all teams and who is in them."""
    with open_house() as house, house.store.read() as session:
        rows = reads.teams(session)
    show([{"name": row.name, "gid": row.gid, "members": [username for _, username in row.members]} for row in rows],
         as_json=as_json, empty="No teams yet: berth team add NAME")


@command.command()
@click.argument("team")
@click.argument("username")
def join(team: str, username: str) -> None:
    """Put a member into a team. Running workspaces get its volumes at their next launch."""
    with open_house() as house, house.store.write() as session:
        team_id, member_id = _ids(session, team, username)
        teams.add_member(session, ACTOR, team_id=team_id, member_id=member_id, now=now())
    print(f"{username} is in {team}")


@command.command()
@click.argument("team")
@click.argument("username")
def leave(team: str, username: str) -> None:
    """Take a member out of a team. Their workspaces that mount its volumes are stopped."""
    with open_house() as house, house.store.write() as session:
        team_id, member_id = _ids(session, team, username)
        stopped = teams.remove_member(session, ACTOR, team_id=team_id, member_id=member_id, now=now())
        names = ", ".join(workspace.name for workspace in stopped)
    print(f"{username} is not in {team}" + (f"; stopping {names}" if names else ""))


def _ids(session: Session, team: str, username: str) -> tuple[str, str]:
    """Raises NoSuch, which names the one that is missing."""
    return (pick(reads.teams(session), team, by="name", what="team").id,
            pick(reads.members(session), username, by="username", what="user").id)
