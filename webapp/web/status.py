"""What a workspace's row means for its reader: which state to show, and what may be asked of it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from webapp.domain.sizes import show_size
from webapp.domain.workspace import BUSY, RESTING, Desired, Phase, StepName
from webapp.errors import N_
from webapp.store.reads.workspaces import WorkspaceCard
from webapp.web.shown import PULLING_STEP, STEPS, State, duration, parse_moment, state_of
from webapp.web.words import gettext

WITH_STEPS = (Phase.PULLING, Phase.STARTING, Phase.MOVING, Phase.FAILED)
LOOKS = {"waiting": "", "running": "now", "done": "done", "failed": "bad", "skipped": "skipped"}
SAID = {"waiting": N_("waiting"), "running": N_("now"), "done": N_("done"), "failed": N_("failed"),
        "skipped": N_("skipped")}


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    is_busy: bool           # something happens now: look again in a second
    is_up: bool
    can_start: bool
    can_stop: bool
    can_remove: bool
    shows_steps: bool

    @classmethod
    def of(cls, card: WorkspaceCard) -> Status:
        is_behind = card.observed_generation < card.generation
        settled = card.phase in RESTING and not is_behind
        wanted = card.desired == Desired.RUNNING
        is_up = card.phase == Phase.RUNNING and wanted
        return cls(
            state=state_of(card.phase, card.desired, card.health, is_behind=is_behind and not is_up),
            is_busy=not settled and not is_up and card.phase != Phase.UNKNOWN and (is_behind or card.phase in BUSY),
            is_up=is_up,
            can_start=card.desired == Desired.STOPPED or (wanted and settled),
            can_stop=wanted and not settled,
            can_remove=card.desired != Desired.REMOVED,
            shows_steps=wanted and not is_up and card.phase in WITH_STEPS,
        )


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    look: str               # "", now, done, bad, skipped: a hook of the stylesheet
    title: str
    said: str               # the look in a word
    time: str
    percent: int | None
    amount: str             # "3.4 GiB of 5.9 GiB", or ""


def steps(progress: Mapping[str, Any], now: datetime) -> list[Step]:
    return [_step(step, now) for step in progress.get("steps", ()) if step.get("name") in list(StepName)]


def seconds_to_ready(progress: Mapping[str, Any]) -> float | None:
    """From the first step's begin to ready; None while it is not, and for a launch nobody timed."""
    by_name = {step.get("name"): step for step in progress.get("steps", ())}
    ready = parse_moment(by_name.get(StepName.READY, {}).get("ended_at"))
    begun = [moment for step in by_name.values() if (moment := parse_moment(step.get("started_at")))]
    return (ready - min(begun)).total_seconds() if ready and begun else None


def _step(step: Mapping[str, Any], now: datetime) -> Step:
    state = str(step.get("state", "waiting"))
    name = StepName(step["name"])
    pulls = name == StepName.IMAGE and state == "running" and step.get("done_bytes") is not None
    return Step(
        name=name, look=LOOKS.get(state, ""), title=gettext(PULLING_STEP if pulls else STEPS[name]),
        said=gettext(SAID.get(state, state)), time=_time(step, state, now), percent=step.get("percent"),
        amount=_amount(step),
    )


def _time(step: Mapping[str, Any], state: str, now: datetime) -> str:
    if state == "skipped":
        return gettext("not in this image")
    begun = parse_moment(step.get("started_at"))
    if begun is None:
        return ""
    ended = parse_moment(step.get("ended_at")) or now
    return duration((ended - begun).total_seconds())


def _amount(step: Mapping[str, Any]) -> str:
    done, total = step.get("done_bytes"), step.get("total_bytes")
    if done is None:
        return ""
    if not total:
        return show_size(done)
    return gettext("%(done)s of %(total)s", done=show_size(done), total=show_size(total))
