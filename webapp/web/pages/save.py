"""Save what is in a workspace as an image that can be launched."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError, Forbidden, InvalidInput, NotFound
from webapp.services import images, operations
from webapp.store.reads import changes as reads
from webapp.store.reads import people
from webapp.store.reads.changes import ChangePage
from webapp.web.context import actor, member, now, reading, writing
from webapp.web.forms import Form
from webapp.web.words import gettext

blueprint = Blueprint("save", __name__)
FIELDS = {"team": "team_id"}    # a service's name of a field → this form's


@blueprint.get("/workspaces/<workspace_id>/save")
def save_form(workspace_id: str) -> str:
    page = _read(workspace_id)
    return _page(page, Form("title", "team_id", title=f"{page.name} · {page.image_title}"))


@blueprint.post("/workspaces/<workspace_id>/save")
def save(workspace_id: str) -> tuple[str, int] | Response:
    page, form = _read(workspace_id), Form("title", "team_id")
    try:
        form.check()
        with writing() as db:
            images.save(db, actor(), workspace_id, title=form["title"], team_id=form["team_id"] or None, now=now())
    except InvalidInput as error:
        return _page(page, form.refused(error, FIELDS)), error.status
    except AppError as error:
        return _page(page, form.refused(error)), error.status
    return redirect(url_for("workspace.workspace", workspace_id=workspace_id) + "#saving", code=303)


@blueprint.post("/workspaces/<workspace_id>/save/<operation_id>/cancel")
def cancel(workspace_id: str, operation_id: str) -> Response:
    _read(workspace_id)
    with writing() as db:
        if not operations.cancel(db, actor(), operation_id, now=now()):
            flash(gettext("It had ended already."), "info")
    return redirect(url_for("workspace.workspace", workspace_id=workspace_id), code=303)


@blueprint.get("/poll/workspaces/<workspace_id>/save")
def poll(workspace_id: str) -> str:
    return render_template("parts/save_size.html", **_facts(_read(workspace_id)))


def _read(workspace_id: str) -> ChangePage:
    """Of its owner alone: an administrator does not get at what is in it."""
    with reading() as db:
        page = reads.change_page(db, workspace_id)
    if page is None or not (member().is_admin or page.owner_id == member().id):
        raise NotFound()
    if page.owner_id != member().id:
        raise Forbidden()
    return page


def _facts(page: ChangePage) -> dict[str, Any]:
    return {"page": page, "measures": page.needs_measuring(now())}


def _page(page: ChangePage, form: Form) -> str:
    with reading() as db:
        teams = people.teams_of(db, member().id)
    return render_template("workspace_save.html", form=form, teams=teams, **_facts(page))
