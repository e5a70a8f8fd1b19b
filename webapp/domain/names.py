"""Names that people choose and names that Berth makes: one strict grammar each.

A parser returns the name or raises InvalidInput with one problem for `field`; nothing else is raised on any text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from itertools import count

from webapp.errors import N_, InvalidInput

MOST_LABEL = 40  # characters of a workspace name: with a prefix it still fits a host name of 63
MOST_DISPLAY = 60  # characters of a person's name
MOST_ENGINE_NAME = 63  # an engine name may become a host name, and those end at 63 (RFC 1035)

_ACCOUNT = re.compile(r"[a-z][a-z0-9_-]{1,30}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_INSTANCE = re.compile(r"[a-z0-9]{4,12}")
_KIND = re.compile(r"[a-z]{1,12}")
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_POWERFUL = re.compile(r"root|toor|admin|administrator|sudo|sudoers|wheel|docker|lxd")
_SYSTEM = re.compile(
    "daemon|bin|sys|sync|games|man|lp|mail|news|uucp|proxy|www-data|backup|list|irc|gnats|nobody|nogroup|sshd|ssh|ntp|"
    "messagebus|dbus|polkitd|tcpdump|halt|shutdown|operator|ftp|adm|tty|disk|kmem|dialout|fax|voice|cdrom|floppy|tape|"
    "audio|video|dip|src|shadow|utmp|plugdev|staff|users|input|kvm|render|sgx|crontab|netdev|uuidd|syslog|landscape|"
    "tss|postfix|postgres|mysql|redis|nginx|ubuntu|debian|nvidia-persistenced|_apt|systemd-.*"
)
_OWN = re.compile(r"berth|berth-.*|jupyter|jovyan|system|agent|anonymous|everyone")

_LOOK_ALIKE = str.maketrans("01", "ol")
_DRAWN_AS = (("rn", "m"), ("vv", "w"))


def parse_username(text: str, field: str = "username") -> str:
    """Account name, also on Linux inside workspaces: 2-31 of a-z, 0-9, `-`, `_`; a letter first; not reserved."""
    if _ACCOUNT.fullmatch(text):
        return _unreserved(text, field)
    suggestion = _account_like(text)
    if suggestion:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” cannot be a user name: use 2 to 31 of a-z, 0-9, - and _. Try %(suggestion)s."),
            given=excerpt(text),
            suggestion=suggestion,
        )
    raise InvalidInput.of(
        field,
        N_("“%(given)s” cannot be a user name: use 2 to 31 of a-z, 0-9, - and _, starting with a letter."),
        given=excerpt(text),
    )


def skeleton(name: str) -> str:
    """What two account names have in common that a reader takes for one (as UTS 39 does it for all of Unicode)."""
    bare = name.lower().replace("-", "").replace("_", "").translate(_LOOK_ALIKE)
    for drawn, read in _DRAWN_AS:
        bare = bare.replace(drawn, read)
    return bare


def parse_team_name(text: str, field: str = "team") -> str:
    """Name of a team, also a Linux group inside workspaces: the grammar and the reserved names of user names."""
    if _ACCOUNT.fullmatch(text):
        return _unreserved(text, field)
    suggestion = _account_like(text)
    if suggestion:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” cannot be a team name: use 2 to 31 of a-z, 0-9, - and _. Try %(suggestion)s."),
            given=excerpt(text),
            suggestion=suggestion,
        )
    raise InvalidInput.of(
        field,
        N_("“%(given)s” cannot be a team name: use 2 to 31 of a-z, 0-9, - and _, starting with a letter."),
        given=excerpt(text),
    )


def parse_workspace_name(text: str, field: str = "name") -> str:
    """Label of a workspace, also its `Host` in an ssh config: 1-40 of a-z, 0-9, `-`; no `-` at either end."""
    if text == "localhost":
        raise InvalidInput.of(
            field, N_("“localhost” would hide your own computer from your ssh. Choose another name, such as run-1.")
        )
    if _LABEL.fullmatch(text):
        return text
    suggestion = _label_like(text)
    if suggestion:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” cannot be a workspace name: use 1 to 40 of a-z, 0-9 and -. Try %(suggestion)s."),
            given=excerpt(text),
            suggestion=suggestion,
        )
    raise InvalidInput.of(
        field,
        N_("“%(given)s” cannot be a workspace name: use 1 to 40 of a-z, 0-9 and -, for example my-run-2."),
        given=excerpt(text),
    )


def suggest_name(taken: Collection[str], stem: str = "workspace") -> str:
    """A workspace name that is not in `taken`: the stem itself, else the stem with the next free number from 2.

    A number at the end of the stem is counted on: `run-2` gives `run-3`. The answer always parses.
    """
    label = _label_like(stem) or "workspace"
    if label not in taken:
        return label
    base, number = _numbered(label)
    for n in count(number + 1):
        candidate = base[: MOST_LABEL - len(f"-{n}")].rstrip("-") + f"-{n}"
        if candidate not in taken:
            return candidate
    raise AssertionError("numbers do not end")


def parse_display_name(text: str, field: str = "display_name") -> str:
    """Name of a person as people write it: 1-60 characters, returned in NFC with single spaces.

    Refused: control, direction and other invisible characters (they let one person look like another),
    and a name without any letter or digit.
    """
    if len(text) > 4 * MOST_DISPLAY:  # before NFC, which takes quadratic time on long runs of accents
        raise _too_long(field)
    if any(not _may_stand_in_name(character) for character in text):
        raise InvalidInput.of(
            field,
            N_("“%(given)s” holds a character that nobody can see. Type the name instead of pasting it."),
            given=excerpt(text),
        )
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if len(name) > MOST_DISPLAY:
        raise _too_long(field)
    if not any(character.isalnum() or _is_han(character) for character in name):
        raise InvalidInput.of(field, N_("Enter a name with at least one letter."))
    return name


def parse_instance_id(text: str, field: str = "instance") -> str:
    """Id that tells two Berths on one engine apart: 4-12 of a-z and 0-9."""
    if _INSTANCE.fullmatch(text):
        return text
    raise InvalidInput.of(
        field,
        N_("“%(given)s” cannot be an instance id: use 4 to 12 of a-z and 0-9, for example lab1."),
        given=excerpt(text),
    )


def engine_name(instance: str, kind: str, id_: str) -> str:
    """Name of a container, volume or network on an engine: `berth-<instance>-<kind>-<id>`, at most 63 characters.

    It is built from ids, never from what people type, so no two people can meet in one name.

    Args:    instance: as from parse_instance_id.   kind: 1-12 of a-z.   id_: a-z and 0-9, parts joined by single `-`.
    Raises:  ValueError: a part outside its grammar, or the whole too long.
    """
    if not (_INSTANCE.fullmatch(instance) and _KIND.fullmatch(kind) and _ID.fullmatch(id_)):
        raise ValueError(f"not the parts of an engine name: {instance!r}, {kind!r}, {id_!r}")
    name = f"berth-{instance}-{kind}-{id_}"
    if len(name) > MOST_ENGINE_NAME:
        raise ValueError(f"engine name longer than {MOST_ENGINE_NAME}: {name!r}")
    return name


def excerpt(text: str) -> str:
    """`text` as it may stand in a message: its first 60 characters, invisible ones as escapes such as \\u000a."""
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[:60])
    return f"{shown}…" if len(text) > 60 else shown


def _unreserved(name: str, field: str) -> str:
    if _POWERFUL.fullmatch(name):
        raise InvalidInput.of(
            field, N_("“%(given)s” stands for full rights in many images. Choose another name."), given=name
        )
    if _SYSTEM.fullmatch(name):
        raise InvalidInput.of(
            field, N_("“%(given)s” is a system account or group in many images. Choose another name."), given=name
        )
    if _OWN.fullmatch(name):
        raise InvalidInput.of(field, N_("“%(given)s” is used by Berth itself. Choose another name."), given=name)
    return name


def _account_like(text: str) -> str:
    """The nearest account name that would be accepted; "" when there is none."""
    name = re.sub(r"[^a-z0-9_-]+", "-", _plain(text)).lstrip("0123456789_-")[:31].rstrip("-_")
    if not _ACCOUNT.fullmatch(name):
        return ""
    try:
        return _unreserved(name, "")
    except InvalidInput:
        return ""


def _label_like(text: str) -> str:
    """The nearest workspace name that would be accepted; "" when there is none."""
    label = re.sub(r"[^a-z0-9]+", "-", _plain(text)).strip("-")[:MOST_LABEL].rstrip("-")
    return "" if label == "localhost" else label


def _plain(text: str) -> str:
    """Lower case, accents and full-width forms folded to ASCII; what has no ASCII form stays and is replaced later."""
    folded = unicodedata.normalize("NFKD", text[: 4 * MOST_LABEL]).lower()
    return "".join(character for character in folded if not unicodedata.combining(character))


def _numbered(label: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)-([1-9][0-9]{0,5})", label)
    return (match[1].rstrip("-"), int(match[2])) if match else (label, 1)


def _may_stand_in_name(character: str) -> bool:
    if character in _BLANK:
        return False
    return character.isprintable() or unicodedata.category(character) == "Zs" or _is_han(character)


# Printable by category, yet nothing is drawn: fillers, the joiner, Braille blank, variation selectors.
_BLANK = frozenset(map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10))))


def _is_han(character: str) -> bool:
    """Planes 2 and 3 are Han only; this Python's tables end before the newest, which stand in real names."""
    return 0x20000 <= ord(character) <= 0x3FFFD


def _too_long(field: str) -> InvalidInput:
    return InvalidInput.of(field, N_("A name may have at most %(most)d characters. Shorten it."), most=MOST_DISPLAY)
