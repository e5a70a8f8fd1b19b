"""One workspace: what it is doing, how to get in, and what its owner may ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.placement import OfferKind
from webapp.domain.workspace import Phase
from webapp.errors import N_, InvalidInput, NoCapacity, NotFound
from webapp.services import operations, workspaces
from webapp.store.reads.launch import HostFacts, hosts
from webapp.store.reads.workspaces import SaveRow, WorkspacePage
from webapp.store.reads.workspaces import page as read_page
from webapp.web import gpus
from webapp.web.connect import Way, jupyter_origin
from webapp.web.context import actor, here, member, now, reading, writing
from webapp.web.forms import Form
from webapp.web.guards import allow_form_to
from webapp.web.logs import plain
from webapp.web.shown import reason, sentence
from webapp.web.status import Status, seconds_to_ready, steps
from webapp.web.words import gettext

blueprint = Blueprint("workspace", __name__, url_prefix="")
LOG_LINES = 200
CAN_BE_SAVED = (Phase.RUNNING, Phase.STOPPED, Phase.FAILED)     # as services.images.save has it
SAVED_JUST_NOW = timedelta(hours=1)     # so long the page says that it was saved as an image
OFFERS: Mapping[str, str] = {
    OfferKind.OTHER_CARDS: N_("Start on these"),
    OfferKind.OTHER_MODEL: N_("Start on these"),
    OfferKind.FEWER: N_("Start with fewer"),
}


@dataclass(frozen=True, slots=True)
class Log:
    text: str
    about: str          # when it was taken, or why there is none
    is_coming: bool


@blueprint.get("/workspaces/<workspace_id>")
def workspace(workspace_id: str) -> str:
    return render_template("workspace.html", **_facts(_read(workspace_id)))


@blueprint.get("/poll/workspaces/<workspace_id>")
def poll(workspace_id: str) -> str:
    return render_template("parts/workspace_live.html", **_facts(_read(workspace_id)))


@blueprint.post("/workspaces/<workspace_id>/start")
def start(workspace_id: str) -> tuple[str, int] | Response:
    """Without free cards it stays as it is, and its page says what is in the way."""
    try:
        with writing() as db:
            workspaces.start(db, actor(), workspace_id, now=now())
    except NoCapacity as error:
        page = _read(workspace_id)
        refused = {"title": sentence(error.title, error.facts), "whys": gpus.whys(error.facts),
                   "offers": gpus.offers(error.facts, _hosts(), OFFERS)}
        return render_template("workspace.html", refused=refused, groups=(), **_facts(page)), error.status
    return _back(workspace_id)


@blueprint.post("/workspaces/<workspace_id>/stop")
def stop(workspace_id: str) -> Response:
    with writing() as db:
        workspaces.stop(db, actor(), workspace_id, now=now())
    return _back(workspace_id)


@blueprint.post("/workspaces/<workspace_id>/logs")
def logs(workspace_id: str) -> Response:
    with writing() as db:
        operations.request(db, actor(), OperationKind.WORKSPACE_LOGS, workspace_id=workspace_id,
                           arguments={"tail_lines": LOG_LINES}, now=now())
    return redirect(url_for("workspace.workspace", workspace_id=workspace_id) + "#logs", code=303)


@blueprint.get("/workspaces/<workspace_id>/remove")
def remove_form(workspace_id: str) -> str | Response:
    page = _read(workspace_id)
    if not Status.of(page.card).can_remove:
        return _back(workspace_id)
    return _remove_page(page, Form("confirm"))


@blueprint.post("/workspaces/<workspace_id>/remove")
def remove(workspace_id: str) -> tuple[str, int] | Response:
    page, form = _read(workspace_id), Form("confirm")
    if form["confirm"].strip() != page.card.name:
        form.refuse("confirm", N_("That is not its name. Nothing was removed."))
        return _remove_page(page, form), InvalidInput.status
    with writing() as db:
        workspaces.remove(db, actor(), workspace_id, now=now())
    flash(gettext("%(name)s is being removed. Your home folder stays.", name=page.card.name))
    return redirect(url_for("home.home"), code=303)


@blueprint.post("/workspaces/<workspace_id>/open")
def open_jupyter(workspace_id: str) -> str:
    """The only answer that holds a token: a form that posts it to the workspace, and may post nowhere else."""
    with writing() as db:
        connection = workspaces.reveal(db, actor(), workspace_id, now=now())
    if connection.jupyter_token is None or connection.jupyter_port is None:
        raise NotFound()
    origin = jupyter_origin(here().settings.workspace_host, connection.jupyter_port)
    allow_form_to(origin)
    return render_template("open.html", action=f"{origin}/login?next=/lab", token=connection.jupyter_token)


def _read(workspace_id: str) -> WorkspacePage:
    """What belongs to somebody else does not exist, but for administrators."""
    with reading() as db:
        page = read_page(db, workspace_id)
    if page is None or not (member().is_admin or page.card.owner_id == member().id):
        raise NotFound()
    return page


def _hosts() -> tuple[HostFacts, ...]:
    with reading() as db:
        return hosts(db)


def _back(workspace_id: str) -> Response:
    return redirect(url_for("workspace.workspace", workspace_id=workspace_id), code=303)


def _facts(page: WorkspacePage) -> dict[str, Any]:
    card, status, log = page.card, Status.of(page.card), _log(page)
    is_due = card.observed_generation < card.generation and card.host_unreachable_since is None
    return {
        "page": page, "card": card, "status": status, "log": log, "way": _way(page), "now": now(),
        "tiles": gpus.tiles(page.cards, card.owner_id, silent=card.host_unreachable_since is not None),
        "check_state": gpus.check_state(page.gpu_check) if page.gpu_check else None, "in_line": gpus.in_line,
        "is_mine": card.owner_id == member().id, "home": f"/home/{card.owner_username}",
        "steps": steps(card.progress, now()) if status.shows_steps or status.is_up else [],
        "seconds_to_ready": seconds_to_ready(card.progress) if status.is_up else None,
        "every": 1 if status.is_busy or is_due or log.is_coming or (page.save and page.save.is_open) else 5,
        "can_save": card.owner_id == member().id and card.phase in CAN_BE_SAVED and status.can_remove,
        "save": page.save if page.save and _is_worth_saying(page.save) else None,
    }


def _is_worth_saying(save: SaveRow) -> bool:
    return save.ended_at is None or now() - save.ended_at < SAVED_JUST_NOW


def _remove_page(page: WorkspacePage, form: Form) -> str:
    return render_template("workspace_remove.html", form=form, **_facts(page))


def _way(page: WorkspacePage) -> Way | None:
    """None once it is removed: its ports and keys are gone."""
    card, settings = page.card, here().settings
    if card.ssh_port is None or page.host_public_key is None:
        return None
    return Way(
        workspace_id=card.id, name=card.name, username=card.owner_username, host=settings.workspace_host,
        port=card.ssh_port, instance=settings.instance, host_public_key=page.host_public_key)


def _log(page: WorkspacePage) -> Log:
    """The lines that were asked for; else what a failed container left behind."""
    asked = page.logs
    if asked and asked.state in (OperationState.WAITING, OperationState.RUNNING):
        return Log(plain(asked.text or page.log_tail), gettext("Being fetched."), is_coming=True)
    if asked and asked.state == OperationState.FAILED:
        said = reason(asked.reason)
        return Log(plain(page.log_tail), f"{said.title.striptags()} {said.advice}" if said else "", is_coming=False)
    if asked and not (page.log_tail and asked.created_at < page.card.phase_at):
        return Log(plain(asked.text), gettext("Last lines, as they were when you asked."), is_coming=False)
    if page.log_tail:
        return Log(plain(page.log_tail), gettext("Last lines before it ended."), is_coming=False)
    return Log("", "", is_coming=False)
