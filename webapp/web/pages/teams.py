"""Teams and who is in them, for administrators."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError
from webapp.services import teams as service
from webapp.store.reads import people
from webapp.web.auth import admins_only
from webapp.web.context import actor, now, reading, writing
from webapp.web.forms import Form
from webapp.web.words import gettext, ngettext

blueprint = Blueprint("teams", __name__)


@blueprint.get("/house/teams")
@admins_only
def teams() -> str:
    return _page(Form("name"))


@blueprint.post("/house/teams")
@admins_only
def add() -> tuple[str, int] | Response:
    form = Form("name")
    try:
        form.check()
        with writing() as db:
            service.create_team(db, actor(), name=form["name"].strip(), now=now())
    except AppError as error:
        return _page(form.refused(error)), error.status
    flash(gettext("Team %(name)s is made. Add its members.", name=form["name"].strip()))
    return redirect(url_for("teams.teams"), code=303)


@blueprint.post("/house/teams/<team_id>/members")
@admins_only
def add_member(team_id: str) -> Response:
    with writing() as db:
        service.add_member(db, actor(), team_id=team_id, member_id=request.form.get("member_id", ""), now=now())
    return redirect(url_for("teams.teams"), code=303)


@blueprint.post("/house/teams/<team_id>/members/<member_id>/remove")
@admins_only
def remove_member(team_id: str, member_id: str) -> Response:
    with writing() as db:
        stopped = service.remove_member(db, actor(), team_id=team_id, member_id=member_id, now=now())
    if stopped:
        flash(ngettext("%(num)d workspace that mounts the team's volumes is being stopped.",
                       "%(num)d workspaces that mount the team's volumes are being stopped.", len(stopped)))
    else:
        flash(gettext("They are no longer in the team."))
    return redirect(url_for("teams.teams"), code=303)


def _page(form: Form) -> str:
    with reading() as db:
        rows, members = people.teams(db), people.members(db)
    active = [member for member in members if member.deactivated_at is None]
    return render_template("house/teams.html", form=form, teams=rows, members=active)
