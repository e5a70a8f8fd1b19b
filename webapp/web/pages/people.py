"""Members, their invite links, roles and passwords, for administrators."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from webapp.errors import N_, InvalidInput, NotFound
from webapp.services import people as service
from webapp.services.passwords import LEAST_CHARACTERS
from webapp.store.reads import people as reads
from webapp.store.tables import Role
from webapp.web.auth import admins_only
from webapp.web.context import actor, here, now, reading, writing
from webapp.web.forms import Form
from webapp.web.proof import fresh_only
from webapp.web.words import gettext

blueprint = Blueprint("people", __name__)


@blueprint.get("/house/members")
@admins_only
def people() -> str:
    return _list()


@blueprint.post("/house/members/invite")
@admins_only
@fresh_only
def invite() -> str:
    """The link is in this answer and nowhere else: only its hash is kept."""
    role = _role()
    with writing() as db:
        token = service.make_invite(db, actor(), role=role, now=now())
    return _list(invite_link=here().settings.url + url_for("gate.welcome_form", token=token), invite_role=role)


@blueprint.post("/house/invites/<invite_id>/withdraw")
@admins_only
def withdraw_invite(invite_id: str) -> Response:
    with writing() as db:
        service.withdraw_invite(db, actor(), invite_id, now=now())
    flash(gettext("The link no longer works."))
    return redirect(url_for("people.people"), code=303)


@blueprint.get("/house/members/<member_id>")
@admins_only
def member(member_id: str) -> str:
    return _one(member_id, Form("new"))


@blueprint.post("/house/members/<member_id>/role")
@admins_only
@fresh_only
def set_role(member_id: str) -> tuple[str, int] | Response:
    role = _role()
    return _change(member_id, Form("new"), lambda db: service.set_role(
        db, actor(), member_id, role=role, now=now()), N_("The role is changed. They have to sign in again."))


@blueprint.post("/house/members/<member_id>/password")
@admins_only
@fresh_only
def set_password(member_id: str) -> tuple[str, int] | Response:
    form = Form("new")
    return _change(member_id, form, lambda db: service.set_password(
        db, actor(), member_id, old=None, new=form["new"], now=now()),
        N_("The password is changed. Tell it to them; they are signed out everywhere."))


@blueprint.post("/house/members/<member_id>/deactivate")
@admins_only
@fresh_only
def deactivate(member_id: str) -> tuple[str, int] | Response:
    return _change(member_id, Form("new"), lambda db: service.deactivate_member(
        db, actor(), member_id, now=now()), N_("They can no longer sign in, and their workspaces are being stopped."))


@blueprint.post("/house/members/<member_id>/activate")
@admins_only
@fresh_only
def activate(member_id: str) -> tuple[str, int] | Response:
    return _change(member_id, Form("new"), lambda db: service.reactivate_member(
        db, actor(), member_id, now=now()), N_("They can sign in again."))


def _change(member_id: str, form: Form, act: Callable[[Session], object], done: str) -> tuple[str, int] | Response:
    try:
        form.check()
        with writing() as db:
            act(db)
    except InvalidInput as error:
        return _one(member_id, form.refused(error)), error.status
    flash(gettext(done))
    return redirect(url_for("people.member", member_id=member_id), code=303)


def _role() -> Role:
    try:
        return Role(request.form.get("role", ""))
    except ValueError:
        raise InvalidInput.of("role", N_("There is no such role. Choose one from the list.")) from None


def _list(*, invite_link: str = "", invite_role: str = "") -> str:
    with reading() as db:
        members, invites = reads.members(db), reads.open_invites(db, now=now())
    return render_template("house/people.html", members=members, invites=invites, invite_link=invite_link,
                           invite_role=invite_role)


def _one(member_id: str, form: Form) -> str:
    with reading() as db:
        found = next((row for row in reads.members(db) if row.id == member_id), None)
    if found is None:
        raise NotFound()
    return render_template("house/member.html", person=found, form=form, least_password=LEAST_CHARACTERS)
