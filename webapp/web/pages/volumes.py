"""Team volumes, for administrators."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError
from webapp.services import volumes as service
from webapp.store.reads import house, people
from webapp.web.auth import admins_only
from webapp.web.context import actor, here, now, reading, writing
from webapp.web.forms import Form, ticked
from webapp.web.words import gettext

blueprint = Blueprint("volumes", __name__)


@blueprint.get("/house/volumes")
@admins_only
def volumes() -> str:
    return _page(_form())


@blueprint.post("/house/volumes")
@admins_only
def add() -> tuple[str, int] | Response:
    form = _form()
    try:
        form.check()
        with writing() as db:
            service.create_volume(
                db, actor(), name=form["name"].strip(), team_id=form["team_id"],
                host_folder=form["host_folder"].strip(), target=form["target"].strip(), read_only=ticked("read_only"),
                roots=here().settings.volume_roots, now=now())
    except AppError as error:
        return _page(form.refused(error)), error.status
    flash(gettext("Members of the team find %(name)s in their launch form.", name=form["name"].strip()))
    return redirect(url_for("volumes.volumes"), code=303)


@blueprint.post("/house/volumes/<volume_id>/remove")
@admins_only
def remove(volume_id: str) -> tuple[str, int] | Response:
    try:
        with writing() as db:
            service.remove_volume(db, actor(), volume_id, now=now())
    except AppError as error:
        return _page(_form().refused(error)), error.status
    flash(gettext("The volume is forgotten. Its data stays where it is."))
    return redirect(url_for("volumes.volumes"), code=303)


def _form() -> Form:
    return Form("name", "team_id", "host_folder", "target", "read_only")


def _page(form: Form) -> str:
    with reading() as db:
        rows, teams = house.volumes(db), people.teams(db)
    return render_template(
        "house/volumes.html", form=form, volumes=rows, teams=teams, roots=here().settings.volume_roots)
