"""Images as people see them: a state, how far the work on one is, and what may be asked for now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webapp.domain.images import pulled
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.sizes import show_size
from webapp.errors import N_
from webapp.store.reads.catalogue import ImageEntry, Work
from webapp.web.shown import Said, State, reason
from webapp.web.words import gettext

READY = State("circle-check", N_("Ready"), "ok")
NOT_PREPARED = State("hourglass", N_("Not prepared"), "warn")
WITHDRAWN = State("minus", N_("Withdrawn"), "mute")
FAILED = State("circle-x", N_("Failed"), "bad")
WAITING = State("hourglass", N_("Waiting for its turn"), "mute")
ENDING = State("loader-2", N_("Being cancelled"), turns=True)
AT_WORK = {
    OperationKind.IMAGE_PULL: State("loader-2", N_("Pulling"), turns=True),
    OperationKind.IMAGE_PREPARE: State("loader-2", N_("Preparing"), turns=True),
    OperationKind.IMAGE_DELETE: State("loader-2", N_("Being deleted"), turns=True),
    OperationKind.WORKSPACE_SAVE: State("loader-2", N_("Being saved"), turns=True),
}
OUTCOMES = {
    OperationKind.IMAGE_PULL: (N_("The pull failed."), N_("The pull was cancelled.")),
    OperationKind.IMAGE_PREPARE: (N_("It could not be prepared."), N_("Preparing it was cancelled.")),
    OperationKind.IMAGE_DELETE: (N_("It could not be deleted."), ""),
}
CANCELLABLE = (OperationKind.IMAGE_PULL, OperationKind.IMAGE_PREPARE, OperationKind.WORKSPACE_SAVE)
# Steps of a preparation in their order; "base" is there only where a Dockerfile is built.
STEPS = {
    "pull": N_("Get what it is built on"),
    "base": N_("Build the Dockerfile"),
    "check": N_("Look whether it fits the hosts"),
    "build": N_("Put Berth’s parts on it"),
}
LOOKS = {"done": N_("done"), "now": N_("now"), "bad": N_("failed"), "": N_("waiting")}
SHORT_DIGEST = 12


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    look: str               # "", now, done, bad: a hook of the stylesheet
    title: str
    said: str               # the look in a word
    amount: str             # "1.2 GiB of 4.1 GiB · 5 of 9 layers", "3 of 7", or ""
    percent: int | None


@dataclass(frozen=True, slots=True)
class Shown:
    """One image in a list or on its page."""

    state: State
    amount: str             # of the work that runs
    percent: int | None
    outcome: str            # how the last work ended, where it did not end well
    said: Said | None       # why
    line: int | None        # of the Dockerfile, that could not be built
    is_open: bool           # work is being done, or waits
    can_cancel: bool
    can_prepare: bool
    can_pull: bool

    @classmethod
    def of(cls, image: ImageEntry) -> Shown:
        work = image.work
        is_open = work is not None and work.is_open
        is_lost = work is not None and work.state in (OperationState.FAILED, OperationState.CANCELLED)
        failed = work is not None and work.state == OperationState.FAILED
        amount, percent = _amount(work.progress) if work and work.state == OperationState.RUNNING else ("", None)
        return cls(
            state=_state(image), amount=amount, percent=percent,
            outcome=_outcome(work) if work and is_lost else "", said=reason(work.reason) if work and failed else None,
            line=_line(work) if work and failed else None, is_open=is_open,
            can_cancel=is_open and work is not None and work.kind in CANCELLABLE and not work.ends_soon,
            can_prepare=not is_open and not image.is_saved and bool(image.base or image.is_from_dockerfile),
            can_pull=not is_open and not image.is_saved
            and pulled(base=image.base, reference=image.reference) is not None,
        )


def steps(image: ImageEntry) -> list[Step]:
    """Of its preparation; none where that is not the newest work."""
    work = image.work
    if work is None or work.kind != OperationKind.IMAGE_PREPARE or work.state == OperationState.WAITING:
        return []
    names = [name for name in STEPS if name != "base" or image.is_from_dockerfile]
    at = str(work.progress.get("step", names[0]))
    reached = names.index(at) if at in names else len(names) if at == "done" else 0
    if work.state == OperationState.DONE:
        reached = len(names)
    looks = {OperationState.FAILED: "bad", OperationState.CANCELLED: ""}
    return [_step(name, "done" if n < reached else looks.get(work.state, "now") if n == reached else "", work)
            for n, name in enumerate(names)]


def short_digest(digest: str | None) -> str:
    return (digest or "").removeprefix("sha256:")[:SHORT_DIGEST]


def _step(name: str, look: str, work: Work) -> Step:
    amount, percent = _amount(work.progress) if look == "now" else ("", None)
    return Step(name, look, gettext(STEPS[name]), gettext(LOOKS[look]), amount, percent)


def _state(image: ImageEntry) -> State:
    work = image.work
    if work and work.is_open:
        if work.ends_soon:
            return ENDING
        if work.state == OperationState.WAITING and work.kind != OperationKind.IMAGE_DELETE:
            return WAITING
        return AT_WORK.get(work.kind, AT_WORK[OperationKind.IMAGE_PREPARE])
    if image.withdrawn_at:
        return WITHDRAWN
    if image.reference:
        return READY
    return FAILED if work and work.state == OperationState.FAILED else NOT_PREPARED


def _outcome(work: Work) -> str:
    failed, cancelled = OUTCOMES.get(work.kind, ("", ""))
    text = failed if work.state == OperationState.FAILED else cancelled
    return gettext(text) if text else ""


def _line(work: Work) -> int | None:
    line = (work.reason or {}).get("facts", {}).get("line")
    return line if isinstance(line, int) else None


def _amount(progress: Mapping[str, Any]) -> tuple[str, int | None]:
    """What is said beside a step, and percent where they are known."""
    done, total = progress.get("done_bytes"), progress.get("total_bytes")
    if done is not None:
        parts = [gettext("%(done)s of %(total)s", done=show_size(done), total=show_size(total)) if total
                 else show_size(done)]
        if progress.get("layers_total"):
            parts.append(gettext("%(done)s of %(total)s layers", done=progress.get("layers_done", 0),
                                 total=progress["layers_total"]))
        return " · ".join(parts), min(100, round(100 * done / total)) if total else None
    number, of = progress.get("number"), progress.get("of")
    if number and of:
        return gettext("%(done)s of %(total)s", done=number, total=of), round(100 * (number - 1) / of)
    return "", None
