"""Change a workspace that is there: what will happen is said before anything is pressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from webapp.domain.operation import OperationKind
from webapp.domain.placement import OfferKind
from webapp.domain.sizes import format_cpus, format_size
from webapp.errors import N_, AppError, InvalidInput, NoCapacity, NotFound
from webapp.services import changes, operations
from webapp.services.changes import ChangeRequest, Consequence
from webapp.services.problems import Problems
from webapp.store.reads import changes as reads
from webapp.store.reads.changes import ChangePage
from webapp.web import choices, gpus
from webapp.web.choices import CHOSEN_NOT_FREE, NONE, SAME, THESE, Cards
from webapp.web.context import actor, here, member, now, reading, writing
from webapp.web.forms import Form
from webapp.web.shown import sentence
from webapp.web.words import gettext

blueprint = Blueprint("change", __name__)
FIELDS = ("cpus", "memory", "shm", "mounts", "gpus", "gpu_way", "gpu_count", "gpu_model")
WAYS = {True: "ro", False: "rw"}   # of a volume, as in choices.MOUNT_WAYS
OFFERS: Mapping[str, str] = {
    OfferKind.OTHER_CARDS: N_("Take these"),
    OfferKind.OTHER_MODEL: N_("Take these"),
    OfferKind.FEWER: N_("Take fewer"),
}
DONE = {
    Consequence.NOTHING: N_("Nothing was changed: it is like that already."),
    Consequence.LIVE: N_("Changed. Programs in it go on."),
    Consequence.MOVE: N_("It is made anew with what you chose. What is in it stays."),
}
DONE_AT_REST = N_("Changed. It counts from its next start.")


@dataclass(frozen=True, slots=True)
class Preview:
    """What the form would do as it is filled in."""

    consequence: Consequence | None     # None: that cannot be told, because of the problems
    problems: tuple[str, ...]
    every: int                          # seconds until the page asks again


@blueprint.get("/workspaces/<workspace_id>/change")
def change_form(workspace_id: str) -> str:
    page = _read(workspace_id)
    return _page(page, _form(page))


@blueprint.post("/workspaces/<workspace_id>/change")
def change(workspace_id: str) -> tuple[str, int] | Response:
    """`do`: save | start | show, which changes nothing and needs no script."""
    page, do = _read(workspace_id), request.values.get("do")
    form = _form(page)
    if do == "show":
        _measure(page)
        return _page(_read(workspace_id), form), 200
    ticked = choices.ticked(form)
    try:
        form.check()
        with writing() as db:
            asked, will_be = _judge(db, workspace_id, form, ticked)
            changes.change(db, actor(), workspace_id, asked, house=here().rules,
                           start=do == "start", now=now())
    except NoCapacity as error:
        return _page(page, form, error), error.status
    except InvalidInput as error:
        return _page(page, form.refused(error)), error.status
    if do != "start" or page.is_to_run:
        at_rest = not page.is_to_run and will_be is not Consequence.NOTHING
        flash(gettext(DONE_AT_REST if at_rest else DONE[will_be]))
    return redirect(url_for("workspace.workspace", workspace_id=workspace_id), code=303)


@blueprint.get("/poll/workspaces/<workspace_id>/change")
def poll(workspace_id: str) -> str:
    """Without a query nothing was filled in yet: it is as it is now."""
    page = _read(workspace_id)
    form = Form.half_filled(*FIELDS) if request.args else _form(page)
    return render_template("parts/change_preview.html", **_facts(page, form))


@blueprint.get("/poll/workspaces/<workspace_id>/gpus")
def poll_gpus(workspace_id: str) -> str:
    page = _read(workspace_id)
    return render_template("parts/form_gpus.html", ticked=(), **_cards(page))


@blueprint.post("/workspaces/<workspace_id>/size")
def measure(workspace_id: str) -> tuple[str, int]:
    """The page asks by itself as soon as it is open; a GET changes nothing."""
    _measure(_read(workspace_id))
    return "", 204


def _read(workspace_id: str) -> ChangePage:
    """What belongs to somebody else does not exist, but for administrators; nor does what is removed."""
    with reading() as db:
        page = reads.change_page(db, workspace_id)
    if page is None or not (member().is_admin or page.owner_id == member().id):
        raise NotFound()
    return page


def _form(page: ChangePage) -> Form:
    """As it is now, but for what was sent: a button of a refused start sends cards and nothing else."""
    now_has = {
        "cpus": format_cpus(page.cpu_millis), "memory": format_size(page.memory_bytes),
        "shm": format_size(page.shm_bytes), "gpu_way": SAME if page.gpus.count else NONE, "gpu_count": "1",
        "gpu_model": page.gpu_model or "",
    }
    form = Form(*FIELDS)
    form.values |= {name: value for name, value in now_has.items() if name not in request.form}
    return form


def _mounts(page: ChangePage) -> dict[str, str]:
    return dict(choices.ways_of_volumes()) or {
        mount.id: WAYS[mount.mounted_read_only] for mount in page.mounts if mount.mounted_read_only is not None}


def _measure(page: ChangePage) -> None:
    if page.needs_measuring(now()):
        with writing() as db:
            operations.request(db, actor(), OperationKind.WORKSPACE_SIZE, workspace_id=page.id, arguments={},
                               now=now())


def _judge(db: Session, workspace_id: str, form: Form, ticked: list[str]) -> tuple[ChangeRequest, Consequence]:
    """What the form asks for, and what that would come to. Raises everything that is wrong with it at once."""
    problems, cards = Problems(), None
    with problems.gather():
        cards = choices.read_cards(form, ticked, may_stay=True)
    with problems.gather():
        asked = _request(form, cards)
        will_be = changes.consequence(db, actor(), workspace_id, asked, house=here().rules)
    problems.raise_if_any()
    return asked, will_be


def _request(form: Form, cards: Cards | None) -> ChangeRequest:
    asked = ChangeRequest(
        cpus=form["cpus"].strip(), memory=form["memory"].strip(), shm=form["shm"].strip(),
        mounts=choices.read_mounts() if choices.ways_of_volumes() else None)
    if cards is None:
        return asked
    return replace(asked, gpus=cards.count or None, gpu_model=cards.model, gpu_uuids=cards.uuids)


def _preview(page: ChangePage, form: Form) -> Preview:
    every = 1 if page.size and page.size.is_coming else 5
    trial = Form(*FIELDS)
    trial.values = dict(form.values)
    try:
        trial.check()
        with reading() as db:
            return Preview(_judge(db, page.id, trial, choices.ticked(trial))[1], (), every)
    except AppError as error:
        said = trial.refused(error).problems.values()
        return Preview(None, tuple(text for texts in said for text in texts), every)


def _facts(page: ChangePage, form: Form) -> dict[str, Any]:
    query = request.query_string.decode("ascii", "replace")
    return {
        "page": page, "form": form, "preview": _preview(page, form), "measures": page.needs_measuring(now()),
        "preview_url": url_for("change.poll", workspace_id=page.id), "query": query,
    }


def _cards(page: ChangePage) -> dict[str, Any]:
    return {"groups": [gpus.group(page.host, page.owner_id, own=page.id)],
            "gpus_url": url_for("change.poll_gpus", workspace_id=page.id)}


def _page(page: ChangePage, form: Form, no_capacity: NoCapacity | None = None) -> str:
    rules = here().rules
    title = CHOSEN_NOT_FREE if form["gpu_way"] == THESE else NoCapacity.title
    refused = {
        "title": sentence(title, no_capacity.facts), "whys": gpus.whys(no_capacity.facts),
        "offers": gpus.offers(no_capacity.facts, [page.host], OFFERS),
    } if no_capacity else None
    return render_template(
        "change.html", refused=refused, mounts=_mounts(page), ticked=choices.ticked(form),
        models=gpus.models_of([page.host]), in_line=gpus.in_line, most_cpus=rules.max_cpu_millis,
        most_memory=rules.max_memory_bytes, **_cards(page), **_facts(page, form))
