"""What differs on hold, as an administrator reads it: by the database, in truth, and what each decision comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from webapp.domain import hold as rules
from webapp.domain import hold_words
from webapp.domain.hold import Decision, FindingKind, Truth
from webapp.domain.sizes import show_size
from webapp.domain.workspace import Desired, Phase
from webapp.errors import N_
from webapp.services import hold_origin
from webapp.store.reads import hold as reads
from webapp.store.reads.hold import FindingRow, Names
from webapp.web.shown import SERVICES, STATES, cpus, parse_moment
from webapp.web.words import gettext

TONES: Mapping[str, str] = {FindingKind.CARDS: "bad", FindingKind.RUNS_BUT_STOPPED: "warn"}
NO_ROW = N_("not in it")
NONE = N_("none")


@dataclass(frozen=True, slots=True)
class Option:
    decision: str
    word: str
    consequence: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that is compared, in words; `by_database` "" = there is no row."""

    name: str
    by_database: str
    in_truth: str


@dataclass(frozen=True, slots=True)
class Item:
    id: str                     # of the workspace
    mark: str                   # of the finding as it is shown
    name: str
    owner: str | None
    host: str
    container: str | None       # its name on the engine
    since: datetime | None      # it is up or down
    is_up: bool
    lines: tuple[Line, ...]
    options: tuple[Option, ...]
    why_not: str                # what is there cannot be taken over; "" = it can, or that is no question
    decided_before: str         # that was decided, and something has changed since


@dataclass(frozen=True, slots=True)
class Group:
    kind: str
    title: str
    tone: str
    items: tuple[Item, ...]
    common: tuple[Option, ...]  # what can be decided about all of them at once


def groups(db: Session, chosen: Mapping[str, str]) -> tuple[Group, ...]:
    """Args:  chosen: workspace id → decision, as somebody has just ticked it."""
    names, found = reads.names(db), reads.findings(db)
    kinds = dict.fromkeys(row.kind for row in found)
    return tuple(_group(db, kind, [row for row in found if row.kind == kind], names, chosen) for kind in kinds)


def _group(
    db: Session, kind: FindingKind, rows: Sequence[FindingRow], names: Names, chosen: Mapping[str, str],
) -> Group:
    items = tuple(_item(db, row, names, chosen.get(row.workspace_id)) for row in rows)
    shared = set.intersection(*({option.decision for option in item.options} for item in items))
    common = tuple(option for option in items[0].options if option.decision in shared) if len(items) > 1 else ()
    return Group(str(kind), gettext(hold_words.title(kind)), TONES.get(kind, ""), items, common)


def _item(db: Session, row: FindingRow, names: Names, ticked: str | None) -> Item:
    truth = rules.truth_in(row.facts)
    choices = rules.choices(row.kind, row.facts)
    refusal = hold_origin.refusal(db, row.kind, row.facts) if Decision.ADOPT in choices else None
    decided = ticked or row.decision
    options = tuple(
        Option(str(each), gettext(hold_words.DECISIONS[each]),
               gettext(hold_words.consequence(row.kind, each, row.facts)), each == decided)
        for each in choices if each is not Decision.ADOPT or refusal is None)
    return Item(
        id=row.workspace_id, mark=row.mark, name=row.name, owner=row.owner, host=row.host_name,
        container=truth.container_name if truth else None, since=parse_moment(truth.since) if truth else None,
        is_up=truth is not None and truth.is_up, lines=tuple(_lines(row, truth, names)), options=options,
        why_not=gettext(refusal) if refusal else "",
        decided_before=gettext(hold_words.DECISIONS[row.decided_before]) if row.decided_before else "")


def _lines(row: FindingRow, truth: Truth | None, names: Names) -> list[Line]:
    """State always; of the rest what differs, or all where there is no row."""
    was: Mapping[str, Any] | None = row.facts.get("was")
    is_alone = was is None or row.kind is FindingKind.UNKNOWN_CONTAINER
    lines = [Line(gettext("State"), gettext(NO_ROW) if is_alone else _wanted(was or {}), _state(truth))]
    if truth is None:
        return lines
    before = was or {}
    compared = [
        (gettext("Ports"), _ports(before.get("ports")), _ports(truth.ports)),
        (gettext("GPUs"), _cards(before.get("gpus"), names), _cards(truth.gpus, names)),
        (gettext("CPU and memory"), _limits(before.get("limits")), _limits(truth.limits)),
        (gettext("Shared memory and volumes"), _shape(before.get("shape"), names), _shape(truth.shape, names)),
    ]
    for name, by_database, in_truth in compared:
        if is_alone and in_truth:
            lines.append(Line(name, "", in_truth))
        elif by_database != in_truth and in_truth and _counts(row, truth):
            lines.append(Line(name, by_database, in_truth))
    if not is_alone and before.get("revision") != truth.revision:
        lines.append(Line(gettext("Container"), _revision(int(before.get("revision") or 0)),
                          _revision(truth.revision)))
    return lines


def _counts(row: FindingRow, truth: Truth) -> bool:
    """What one has that is down says nothing yet."""
    return truth.is_up or bool(row.facts["differs"])


def _wanted(was: Mapping[str, Any]) -> str:
    if was.get("is_to_run"):
        return gettext(STATES[Phase.RUNNING].word)
    coming = {Desired.REMOVED: Phase.REMOVING, Desired.STOPPED: Phase.STOPPED}
    phase = coming.get(Desired(was["desired"]), Phase(was["phase"])) if was.get("desired") in tuple(Desired) else None
    return gettext(STATES[phase].word) if phase else ""


def _state(truth: Truth | None) -> str:
    if truth is None:
        return gettext("no container")
    return gettext(STATES[Phase.RUNNING].word) if truth.is_up else gettext("down (%(state)s)", state=truth.state)


def _ports(ports: Mapping[str, int] | None) -> str:
    return ", ".join(f"{SERVICES.get(service, service)} {port}" for service, port in sorted((ports or {}).items()))


def _cards(uuids: Sequence[str] | None, names: Names) -> str:
    return ", ".join(names.cards.get(uuid, uuid) for uuid in uuids or ()) or gettext(NONE)


def _limits(text: str | None) -> str:
    """Out of domain.moving.limits."""
    facts = dict(each.partition("=")[::2] for each in (text or "").split())
    if not {"cpu", "memory"} <= facts.keys() or "0" in facts.values():
        return ""
    return f"{cpus(int(facts['cpu']))}, {show_size(int(facts['memory']))}"


def _shape(text: str | None, names: Names) -> str:
    """Out of domain.moving.shape."""
    if not text:
        return ""
    shm, _, mounts = text.removeprefix("shm=").partition(" mounts=")
    volumes = [names.volumes.get(each.partition(":")[0], each) for each in mounts.split(",") if each]
    return ", ".join([show_size(int(shm)), *volumes])


def _revision(number: int) -> str:
    return gettext("number %(number)s", number=number) if number else gettext(NONE)
