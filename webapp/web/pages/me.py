"""My account: language and password."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError
from webapp.services import people, sessions
from webapp.services.passwords import LEAST_CHARACTERS
from webapp.store.reads import people as reads
from webapp.web.auth import begin_session
from webapp.web.browsers import browser_of
from webapp.web.context import actor, member, now, reading, writing
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
            people.set_password(db, actor(), member().id, old=form["old"], new=form["new"], now=now())
    except AppError as error:
        return _page(form.refused(error)), error.status
    begin_session(member().id)
    flash(gettext("Your password is changed. You are signed out everywhere else."))
    return redirect(url_for("me.me"), code=303)


@blueprint.post("/me/sessions/<session_id>/end")
def end_session(session_id: str) -> Response:
    with writing() as db:
        sessions.end(db, actor(), session_id, now=now())
    flash(gettext("That browser is signed out."))
    return redirect(url_for("me.me"), code=303)


@blueprint.post("/me/sessions/end-others")
def end_others() -> Response:
    with writing() as db:
        sessions.end_others(db, actor(), member().session_id, now=now())
    flash(gettext("You are signed out everywhere else."))
    return redirect(url_for("me.me"), code=303)


def _page(form: Form) -> str:
    with reading() as db:
        rows = reads.sessions_of(db, member().id, seen_since=now() - sessions.LIFETIME)
    return render_template("me.html", form=form, least_password=LEAST_CHARACTERS, sessions=rows, browser=browser_of)
