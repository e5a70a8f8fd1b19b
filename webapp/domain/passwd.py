"""/etc/passwd and /etc/group of a workspace: the image's own, plus the person and their teams."""

from __future__ import annotations

from webapp.domain.workspace import Person

SHELL = "/bin/bash"


def passwd_for(image_passwd: str, person: Person) -> str:
    """The image's lines without any that has the person's name or uid, then the person's."""
    entry = f"{person.username}:x:{person.uid}:{person.uid}::/home/{person.username}:{SHELL}"
    return _replace(image_passwd, {person.username}, {person.uid}, [entry])


def group_for(image_group: str, person: Person) -> str:
    """The image's lines, then the person's own group (gid = uid) and one group per team."""
    names = {person.username, *(team.name for team in person.teams)}
    gids = {person.uid, *(team.gid for team in person.teams)}
    entries = [f"{person.username}:x:{person.uid}:"]
    entries += [f"{team.name}:x:{team.gid}:{person.username}" for team in person.teams]
    return _replace(image_group, names, gids, entries)


def _replace(text: str, names: set[str], numbers: set[int], entries: list[str]) -> str:
    lines = text.replace("\r\n", "\n").split("\n")       # not splitlines: a form feed in a line does not end it
    kept = [line for line in lines if line and not _clashes(line, names, numbers)]
    return "\n".join([*kept, *entries]) + "\n"


def _clashes(line: str, names: set[str], numbers: set[int]) -> bool:
    name, _, rest = line.partition(":")
    number = rest.split(":")[1:2]
    return name in names or (number != [] and number[0].isdecimal() and int(number[0]) in numbers)
