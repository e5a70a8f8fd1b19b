"""A house with a team in it: alice and bob of `vision`, their volumes, and the workspace image in both variants."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.house import House, Person
from faults.workspace import Workspace, now

from webapp.domain.actor import Actor
from webapp.services import teams, volumes
from webapp.store.tables import Image, Team, Volume


@dataclass
class TeamHouse:
    house: House
    roots: Path             # BERTH_VOLUME_ROOTS
    alice: Person
    bob: Person
    team: Team
    full: Image
    slim: Image
    named: Volume           # /data/named, a volume of the engine
    folder: Volume          # /data/folder, a folder of the host
    launched: int = 0

    def launch(self, owner: Person, image: Image, *, mounts: tuple[tuple[Volume, bool], ...] = (),
               **wishes: Any) -> Workspace:
        """`mounts`: volume, read only."""
        self.launched += 1
        wanted = tuple((volume.id, read_only) for volume, read_only in mounts)
        wishes = {"name": f"w{self.launched}", "memory": "1GiB", **wishes}
        return self.house.launch(owner, image, mounts=wanted, **wishes)


def settle(house: House, roots: Path, full: str, slim: str) -> TeamHouse:
    alice, bob = house.add_person("alice"), house.add_person("bob")
    with house.store.write() as session:
        team = teams.create_team(session, Actor.house(), name="vision", now=now())
        for person in (alice, bob):
            teams.add_member(session, Actor.house(), team_id=team.id, member_id=person.id, now=now())
    made = {name: _add_volume(house, team, name, folder) for name, folder in (
        ("named", None), ("folder", roots / "teams" / "vision"))}
    return TeamHouse(house, roots, alice, bob, team, house.add_image(full, jupyter=True), house.add_image(slim),
                     named=made["named"], folder=made["folder"])


def _add_volume(house: House, team: Team, name: str, folder: Path | None) -> Volume:
    if folder is not None:
        folder.mkdir(parents=True, mode=0o755)
        os.chown(folder, 0, team.gid)
        folder.chmod(0o2775)
    with house.store.write() as session:
        return volumes.create_volume(
            session, Actor.house(), name=name, team_id=team.id, host_folder=str(folder) if folder else None,
            target=None, read_only=False, roots=house.settings.volume_roots, now=now())
