"""Values as people read them: sentences filled and translated, times, durations, sizes, states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from babel.dates import format_datetime, format_timedelta
from flask import Flask
from flask_babel import get_locale
from markupsafe import Markup, escape

from webapp.domain.sizes import format_cpus, show_size
from webapp.domain.wordings import WORDINGS
from webapp.domain.workspace import Desired, Health, Phase, StepName
from webapp.errors import N_
from webapp.web.context import now
from webapp.web.words import gettext, ngettext


@dataclass(frozen=True, slots=True)
class State:
    """A state is an icon, a word and a tone, never a colour alone."""

    icon: str
    word: str           # message id
    tone: str = ""      # ok | warn | bad | accent | mute
    turns: bool = False  # for work that runs now


@dataclass(frozen=True, slots=True)
class Said:
    title: Markup
    advice: str


STATES = {
    Phase.PULLING: State("loader-2", N_("Pulling"), turns=True),
    Phase.STARTING: State("loader-2", N_("Starting"), turns=True),
    Phase.RUNNING: State("circle-check", N_("Running"), "ok"),
    Phase.STOPPING: State("loader-2", N_("Stopping"), turns=True),
    Phase.STOPPED: State("player-stop", N_("Stopped"), "mute"),
    Phase.MOVING: State("loader-2", N_("Moving"), turns=True),
    Phase.REMOVING: State("loader-2", N_("Removing"), turns=True),
    Phase.REMOVED: State("trash", N_("Removed"), "mute"),
    Phase.FAILED: State("circle-x", N_("Failed"), "bad"),
    Phase.UNKNOWN: State("clock-question", N_("Unknown"), "mute"),
}
DEGRADED = State("alert-triangle", N_("Degraded"), "warn")
STEPS = {
    StepName.KEPT: N_("What is in it is kept"),
    StepName.IMAGE: N_("Image is on the host"),
    StepName.CREATED: N_("Container is made"),
    StepName.SSH: N_("SSH answers"),
    StepName.GPUS: N_("The GPUs inside are the right ones"),
    StepName.JUPYTER: N_("Jupyter answers"),
    StepName.READY: N_("Ready"),
}
PULLING_STEP = N_("Pulling the image")
SERVICES = {"ssh": "SSH", "jupyter": "Jupyter"}
TIME_FACTS = ("since", "at")    # ISO 8601 in the row, a clock on the page
WORD_FACTS = ("what", "why", "phase")   # message ids of their own


def install(app: Flask) -> None:
    app.jinja_env.filters.update(ago=ago, clock=clock, iso=iso, size=show_size, cpus=cpus, duration=duration)
    app.jinja_env.globals.update(reason=reason)


def sentence(message: str, facts: Mapping[str, Any]) -> str:
    """The message translated and filled, as plain text. A fact that is missing is shown as “?” rather than an error."""
    if not facts:
        return gettext(message)
    return gettext(message) % _Facts({
        name: _word(value) if name in WORD_FACTS else value for name, value in facts.items()})


def reason(row: Mapping[str, Any] | None) -> Said | None:
    """What a row's reason says and what to do. A code of a newer agent is shown as it is."""
    if not row:
        return None
    facts = {name: _shown_fact(name, value) for name, value in (row.get("facts") or {}).items()}
    wording = WORDINGS.get(row.get("code", ""))
    if wording is None:
        return Said(escape(row.get("code", "?")), "")
    return Said(Markup(escape(gettext(wording.title))) % _Facts(facts), gettext(wording.next))  # noqa: S704


def state_of(phase: str, desired: str, health: str, *, is_behind: bool) -> State:
    """`is_behind`: the agent has not yet acted on the newest wish, so what is wanted is what will be seen next."""
    goes_on = (Phase.UNKNOWN, Phase.PULLING, *((Phase.MOVING,) if desired == Desired.RUNNING else ()))
    if is_behind and phase not in goes_on:
        coming = {Desired.STOPPED: Phase.STOPPING, Desired.REMOVED: Phase.REMOVING, Desired.RUNNING: Phase.STARTING}
        return STATES[coming[Desired(desired)]]
    if phase == Phase.RUNNING and health == Health.DEGRADED:
        return DEGRADED
    return STATES[Phase(phase)]


def cpus(cpu_millis: int) -> str:
    number = format_cpus(cpu_millis)
    return ngettext("%(amount)s CPU", "%(amount)s CPUs", 1 if cpu_millis <= 1000 else 2, amount=number)


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(moment: datetime) -> Markup:
    """“3 min ago”; the browser puts the full local time into its title."""
    seconds = max(int((now() - moment).total_seconds()), 0)
    text = gettext("just now") if seconds < 5 else format_timedelta(
        -seconds, granularity="second", threshold=1, add_direction=True, format="short", locale=get_locale())
    return _time(moment, text, "ago")


def clock(moment: datetime) -> Markup:
    """Date and time in UTC; the browser turns it into local time."""
    return _time(moment, _utc(moment), "clock")


def duration(seconds: float) -> str:
    seconds = max(seconds, 0)
    whole = int(seconds)
    if seconds < 9.95:
        return gettext("%(s).1f s", s=seconds)
    if whole < 60:
        return gettext("%(s)d s", s=whole)
    if whole < 3600:
        return gettext("%(m)d min %(s)02d s", m=whole // 60, s=whole % 60)
    if whole < 86_400:
        return gettext("%(h)d h %(m)02d min", h=whole // 3600, m=whole // 60 % 60)
    return gettext("%(d)d d %(h)d h", d=whole // 86_400, h=whole // 3600 % 24)


def parse_moment(value: object) -> datetime | None:
    """A time out of JSON; None when it is none."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment and moment.tzinfo else None


def _time(moment: datetime, text: str, kind: str) -> Markup:
    return Markup('<time datetime="{}" title="{}" data-time="{}">{}</time>').format(
        iso(moment), _utc(moment), kind, text)


def _utc(moment: datetime) -> str:
    return str(format_datetime(moment.astimezone(UTC), "medium", locale=get_locale())) + " UTC"


def _word(value: object) -> str:
    """A fact that is a message id or a phase, not something that a person typed."""
    if value in tuple(Phase):
        return gettext(STATES[Phase(str(value))].word).lower()
    return gettext(str(value)) if value else ""


def _shown_fact(name: str, value: Any) -> Any:
    moment = parse_moment(value) if name in TIME_FACTS else None
    if moment:
        return clock(moment)
    return SERVICES.get(value, value) if name == "service" else value


class _Facts(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "?"
