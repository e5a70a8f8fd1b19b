"""The demo's mark: a file of its state folder that says "this is a demo's" and holds its sample members' passwords.

Without it no command of the demo touches a folder, and nothing is ever cleaned away: a person may have BERTH_ variables
of a real instance set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from webapp.errors import Conflict
from webapp.services import people
from webapp.settings import Settings, write_once
from webapp.store.session import Store
from webapp.store.tables import Role

NAME = "demo.json"
MODE = 0o600                # there are passwords in it
# One of each role, so that a newcomer sees both sides of everything.
MEMBERS = {"alice": Role.ADMIN, "bob": Role.MEMBER}
ROLES = {Role.ADMIN: "an administrator", Role.MEMBER: "a member"}


class NotADemo(Conflict):
    """The state folder is somebody else's: of a real instance, as a rule."""

    # Read on the command line alone, which speaks English: not marked for translation.
    code, retry = "not_a_demo", False
    title = "%(folder)s is not a demo's own: %(why)s. Unset BERTH_STATE_DIR, or name a new folder for the demo."


@dataclass(frozen=True, slots=True)
class Mark:
    instance: str
    passwords: Mapping[str, str]    # user name → the password that was made for it


def read(folder: Path) -> Mark | None:
    """None = there is none.

    The web's account may write in the folder: a link is not followed, and a file of another account is no mark.

    Raises:  NotADemo.
    """
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8") as file:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise NotADemo(folder=folder, why=f"{NAME} in it belongs to another account")
            document = json.load(file)
        return Mark(str(document["instance"]), {str(name): str(text) for name, text in document["passwords"].items()})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotADemo(folder=folder, why=f"{NAME} in it cannot be read") from error


def write(folder: Path, mark: Mark) -> None:
    write_once(folder / NAME, json.dumps(asdict(mark), indent=1), MODE)


def welcome(settings: Settings, store: Store) -> list[str]:
    """Lines to print beside the address of a Berth that is up; none where all is real."""
    lines = []
    if settings.simulated_gpus != "no":
        lines += ["Its GPUs are simulated: they can be had as real ones can, and nothing computes on them."]
    mark = read(settings.state_dir)
    if mark is not None:
        lines += ["Sign in as one of two, or as both in two browsers:"]
        lines += [f"  {name:<7}{_password(store, name, made):<18}{ROLES[MEMBERS[name]]}"
                  for name, made in mark.passwords.items()]
        lines += ["All of this demo is removed by: ./run demo clean"]
    return lines


def _password(store: Store, username: str, made: str) -> str:
    with store.read() as session:
        return made if people.authenticate(session, username=username, password=made) else "(changed since)"
