"""A house of the first version on a real engine: the database as its code left it, the containers as it made them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import older
from sqlalchemy import text

from faults.house import House, Person
from faults.sshkeys import new_key
from faults.workspace import Workspace
from webapp.domain.actor import Actor
from webapp.domain.container import File
from webapp.engines import open_engine
from webapp.engines.docker.archive import packed

REVISION = "0001"
RECORDED_PORT = re.compile(r"\b3000([0-3])\b")      # as they stand in the recording


@dataclass
class FirstVersion:
    """What its people are called in the recording; `begin` is for a House."""

    folder: Path
    image: str          # a workspace image with sshd, of this engine
    people: dict[str, Person]
    workspaces: dict[str, Workspace]

    @classmethod
    def of(cls, folder: Path, image: str) -> FirstVersion:
        return cls(folder, image, {}, {})

    def begin(self, house: House) -> None:
        keys = {name: new_key(self.folder / f"key-{name}") for name in ("alice", "bob", "carol")}
        words = {
            "INSTANCE": house.instance, "ENGINE": house.settings.engine_url, "IMAGE": self.image,
            **older.new_keys(REVISION), **{f"KEY_{name.upper()}": key.public for name, key in keys.items()},
        }
        older.make(house.store, REVISION, self.folder, words)
        first_port = house.rules.ports.first
        made = {one["workspace_id"]: _make(house, one, first_port) for one in older.containers(REVISION, words)}
        with house.store.engine.begin() as connection:
            for port, in connection.execute(text("SELECT port FROM port_claims ORDER BY port")).all():
                connection.execute(text("UPDATE port_claims SET port = :new WHERE port = :old"),
                                   {"old": port, "new": port - 30000 + first_port})
            for workspace_id, container_id in made.items():
                connection.execute(text("UPDATE workspaces SET container_id = :it WHERE id = :id"),
                                   {"it": container_id, "id": workspace_id})
            members = connection.execute(text("SELECT id, username, uid FROM members")).all()
            rows = connection.execute(text("SELECT id, owner_id, name FROM workspaces")).all()
        people = {id_: Person(id_, name, uid, Actor(id_, is_admin=name == "carol"), keys[name])
                  for id_, name, uid in members}
        self.people = {person.username: person for person in people.values()}
        self.workspaces = {f"{people[owner].username}/{name}": Workspace(house, people[owner], id_)
                           for id_, owner, name in rows}


def _make(house: House, recorded: dict[str, Any], first_port: int) -> str:
    """Its id. Those that do not run have run."""
    engine = open_engine(house.settings.engine_url, instance=house.instance, host="local")
    engine.prepare()        # the network
    engine.close()
    api = house.docker.api
    body = RECORDED_PORT.sub(lambda match: str(first_port + int(match[1])), json.dumps(recorded["body"]))
    id_: str = api.create_container_from_config(json.loads(body), recorded["name"])["Id"]
    files = [File(one["path"], one["mode"], one["uid"], one["gid"],
                  None if one["content"] is None else one["content"].encode()) for one in recorded["files"]]
    api.put_archive(id_, "/", packed(files, mtime=0))
    api.start(id_)
    if not recorded["runs"]:
        api.stop(id_, timeout=5)
    return id_
