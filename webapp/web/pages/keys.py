"""My SSH keys: what opens my workspaces."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError, InvalidInput
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


@blueprint.get("/poll/keys")
def poll() -> str:
    """Whether all running workspaces know them."""
    with reading() as db:
        return render_template("parts/keys_pending.html", pending=people.pending_keys(db, member().id))


@blueprint.post("/keys/<key_id>/name")
def rename(key_id: str) -> tuple[str, int] | Response:
    form = _form()
    try:
        form.check()
        with writing() as db:
            service.rename_key(db, actor(), key_id, title=form["title"], now=now())
    except InvalidInput as error:
        return _page(form.refused(error), renaming=key_id), error.status
    flash(gettext("The key is called %(name)s now.", name=form["title"].strip()))
    return redirect(url_for("keys.keys"), code=303)


@blueprint.post("/keys/<key_id>/remove")
def remove(key_id: str) -> Response:
    with writing() as db:
        service.remove_key(db, actor(), key_id, now=now())
    flash(gettext("The key was removed. Running workspaces forget it within seconds. Open connections stay: each "
                  "workspace's page says who is connected, and ends that."))
    return redirect(url_for("keys.keys"), code=303)


def _form() -> Form:
    return Form("title", long=("text",))


def _page(form: Form, *, renaming: str = "") -> str:
    """`renaming`: the key whose new name was refused; `form` is then of that, and else of those to be added."""
    with reading() as db:
        rows, pending = people.keys_of(db, member().id), people.pending_keys(db, member().id)
    return render_template("keys.html", form=_form() if renaming else form, new_name=form, renaming=renaming, keys=rows,
                           pending=pending)
