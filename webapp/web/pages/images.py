"""The catalogue of images, for administrators."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from webapp.errors import AppError
from webapp.services import images as service
from webapp.store.reads import house
from webapp.web.auth import admins_only
from webapp.web.context import actor, now, reading, writing
from webapp.web.forms import Form, ticked
from webapp.web.words import gettext

blueprint = Blueprint("images", __name__)


@blueprint.get("/house/images")
@admins_only
def images() -> str:
    return _page(_form())


@blueprint.post("/house/images")
@admins_only
def add() -> tuple[str, int] | Response:
    form = _form()
    try:
        form.check()
        with writing() as db:
            service.add(
                db, actor(), title=form["title"], reference=form["reference"].strip() or None,
                base=form["base"].strip() or None, cuda_version=form["cuda_version"].strip() or None,
                has_jupyter=ticked("has_jupyter"), now=now())
    except AppError as error:
        return _page(form.refused(error)), error.status
    flash(gettext("%(title)s is in the catalogue.", title=form["title"]))
    return redirect(url_for("images.images"), code=303)


@blueprint.post("/house/images/<image_id>/withdraw")
@admins_only
def withdraw(image_id: str) -> Response:
    with writing() as db:
        service.withdraw(db, actor(), image_id, now=now())
    return redirect(url_for("images.images"), code=303)


@blueprint.post("/house/images/<image_id>/offer")
@admins_only
def offer(image_id: str) -> Response:
    with writing() as db:
        service.offer_again(db, actor(), image_id, now=now())
    return redirect(url_for("images.images"), code=303)


def _form() -> Form:
    return Form("title", "reference", "base", "cuda_version", "has_jupyter")


def _page(form: Form) -> str:
    with reading() as db:
        rows = house.images(db)
    return render_template("house/images.html", form=form, images=rows)
