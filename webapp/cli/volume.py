"""`berth volume`"""

from __future__ import annotations

import click

from webapp.cli.house import ACTOR, fields, now, open_house, pick
from webapp.cli.output import json_option, show
from webapp.services import volumes
from webapp.store.reads import house as reads
from webapp.store.reads import people


@click.group(name="volume")
def command() -> None:
    """Team volumes: add, list, remove."""


@command.command()
@click.argument("name")
@click.option("--team", "team_name", required=True, help="The team whose members may mount it.")
@click.option("--folder", help="A folder of this server below one of BERTH_VOLUME_ROOTS; else a Docker volume.")
@click.option("--target", help="Where it appears inside; default /data/NAME.")
@click.option("--read-only", is_flag=True, help="Nobody may write to it from a workspace.")
def add(name: str, team_name: str, folder: str | None, target: str | None, read_only: bool) -> None:
    """Offer a volume to a team."""
    with open_house() as house, house.store.write() as session:
        team = pick(people.teams(session), team_name, by="name", what="team")
        volume = volumes.create_volume(
            session, ACTOR, name=name, team_id=team.id, host_folder=folder, target=target, read_only=read_only,
            roots=house.settings.volume_roots, now=now())
        print(f"{volume.name} is offered to {team_name} at {volume.target}")


@command.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """Show all team volumes."""
    with open_house() as house, house.store.read() as session:
        rows = reads.volumes(session)
    show([fields(row, "name", "team_name", "host_folder", "target", "read_only", "workspaces") for row in rows],
         as_json=as_json, empty="No team volumes yet: berth volume add NAME --team TEAM")


@command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget a volume that no workspace mounts. Its data stays where it is."""
    with open_house() as house, house.store.write() as session:
        volume = pick(reads.volumes(session), name, by="name", what="volume")
        volumes.remove_volume(session, ACTOR, volume.id, now=now())
    print(f"{name} forgotten; its data stays in {volume.host_folder or 'its Docker volume'}")
