"""My account: language and password."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError
from webapp.services import people
from webapp.services.passwords import LEAST_CHARACTERS
from webapp.web.auth import begin_session
from webapp.web.context import SignedIn, actor, member, now, writing
from webapp.web.forms import Form
from webapp.web.limits import PER_ACCOUNT, failed, limiter
from webapp.web.words import gettext

blueprint = Blueprint("me", __name__)


@blueprint.get("/me")
def me() -> str:
    return _page(Form("old", "new"))


@blueprint.post("/me/password")
@limiter.limit(PER_ACCOUNT, key_func=lambda: f"password {member().id}", deduct_when=failed)
def password() -> tuple[str, int] | Response:
    """Ends all sessions of this person; this browser gets a new one."""
    form = Form("old", "new")
    try:
        form.check()
        with writing() as db:
            changed = people.set_password(
                db, actor(), member().id, old=form["old"], new=form["new"], now=now())
    except AppError as error:
        return _page(form.refused(error)), error.status
    old = member()
    begin_session(SignedIn(id=old.id, username=old.username, display_name=old.display_name, is_admin=old.is_admin,
                           language=old.language, epoch=changed.session_epoch))
    flash(gettext("Your password is changed. You are signed out everywhere else."))
    return redirect(url_for("me.me"), code=303)


def _page(form: Form) -> str:
    return render_template("me.html", form=form, least_password=LEAST_CHARACTERS)
