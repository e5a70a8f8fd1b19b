"""My SSH keys: what opens my workspaces."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError
from webapp.services import keys as service
from webapp.store.reads import people
from webapp.web.context import actor, member, now, reading, writing
from webapp.web.forms import Form
from webapp.web.words import gettext, ngettext

blueprint = Blueprint("keys", __name__)
FIELDS = {"ssh_keys": "text"}


@blueprint.get("/keys")
def keys() -> str:
    return _page(_form())


@blueprint.post("/keys")
def add() -> tuple[str, int] | Response:
    form = _form()
    try:
        form.check()
        with writing() as db:
            added = service.add_keys(
                db, actor(), member_id=member().id, text=form["text"], title=form["title"], now=now())
    except AppError as error:
        return _page(form.refused(error, FIELDS)), error.status
    flash(ngettext("%(num)d key added. Running workspaces know it within seconds.",
                   "%(num)d keys added. Running workspaces know them within seconds.", len(added)))
    return redirect(url_for("keys.keys"), code=303)


@blueprint.post("/keys/<key_id>/remove")
def remove(key_id: str) -> Response:
    with writing() as db:
        service.remove_key(db, actor(), key_id, now=now())
    flash(gettext("The key was removed. Running workspaces forget it within seconds; open connections stay open."))
    return redirect(url_for("keys.keys"), code=303)


def _form() -> Form:
    return Form("title", long=("text",))


def _page(form: Form) -> str:
    with reading() as db:
        rows = people.keys_of(db, member().id)
    return render_template("keys.html", form=form, keys=rows)
