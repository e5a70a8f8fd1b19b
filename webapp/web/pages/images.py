"""The images: what can be launched, how one is made, pulled and deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, flash, redirect, render_template, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from webapp.errors import N_, AppError, Forbidden, InvalidInput, NotFound
from webapp.services import images as service
from webapp.services import operations
from webapp.store.reads import catalogue as reads
from webapp.store.reads.catalogue import ImageEntry, ImagePage
from webapp.web.auth import admins_only
from webapp.web.catalogue import Shown, short_digest, steps
from webapp.web.context import actor, member, now, reading, writing
from webapp.web.forms import Form, ticked
from webapp.web.logs import plain
from webapp.web.words import gettext

blueprint = Blueprint("images", __name__)
# Ways to add one, values of the field `source`.
BASE, DOCKERFILE, READY = "base", "dockerfile", "ready"
FIELDS = ("title", "source", "base", "reference", "cuda_version", "has_jupyter")


@blueprint.get("/images")
def images() -> str:
    return render_template("images/images.html", **_list())


@blueprint.get("/poll/images")
def poll() -> str:
    return render_template("parts/images_live.html", **_list())


@blueprint.get("/images/add")
@admins_only
def add_form() -> str:
    return render_template("images/add.html", form=_add_form(source=BASE, has_jupyter="yes"))


@blueprint.post("/images/add")
@admins_only
def add() -> tuple[str, int] | Response:
    form = _add_form()
    try:
        form.check()
        with writing() as db:
            image_id = _add(db, form)
    except AppError as error:
        return render_template("images/add.html", form=form.refused(error)), error.status
    return redirect(url_for("images.image", image_id=image_id), code=303)


@blueprint.get("/images/<image_id>")
def image(image_id: str) -> str:
    return _page(image_id, Form("dockerfile"))


@blueprint.get("/poll/images/<image_id>")
def poll_image(image_id: str) -> str:
    return render_template("parts/image_live.html", **_facts(_read(image_id), Form("dockerfile")))


@blueprint.post("/images/<image_id>/prepare")
@admins_only
def prepare(image_id: str) -> tuple[str, int] | Response:
    """Again, or for the first time; with a Dockerfile that was mended, where one was sent."""
    form = Form(long=("dockerfile",))
    return _do(image_id, lambda db: service.prepare_again(
        db, actor(), image_id, dockerfile=form["dockerfile"] or None, now=now()), form)


@blueprint.post("/images/<image_id>/pull")
@admins_only
def pull(image_id: str) -> tuple[str, int] | Response:
    return _do(image_id, lambda db: service.pull(db, actor(), image_id, now=now()))


@blueprint.post("/images/<image_id>/cancel/<operation_id>")
def cancel(image_id: str, operation_id: str) -> Response:
    """What was to be saved from a workspace has no page any more when nothing came of it."""
    with writing() as db:
        if not operations.cancel(db, actor(), operation_id, now=now()):
            flash(gettext("It had ended already."), "info")
    with reading() as db:
        page = reads.image_page(db, image_id, member().id, everything=member().is_admin)
    return redirect(url_for("images.image", image_id=image_id) if page else url_for("images.images"), code=303)


@blueprint.post("/images/<image_id>/withdraw")
@admins_only
def withdraw(image_id: str) -> tuple[str, int] | Response:
    return _do(image_id, lambda db: service.withdraw(db, actor(), image_id, now=now()))


@blueprint.post("/images/<image_id>/offer")
@admins_only
def offer(image_id: str) -> tuple[str, int] | Response:
    return _do(image_id, lambda db: service.offer_again(db, actor(), image_id, now=now()))


@blueprint.get("/images/<image_id>/delete")
def delete_form(image_id: str) -> str:
    return _delete_page(_may_delete(image_id), Form("confirm"))


@blueprint.post("/images/<image_id>/delete")
def delete(image_id: str) -> tuple[str, int] | Response:
    page = _may_delete(image_id)
    try:
        with writing() as db:
            operation = service.delete(db, actor(), image_id, now=now())
    except AppError as error:
        return _delete_page(page, Form("confirm").refused(error)), error.status
    gone = gettext("%(title)s is gone.", title=page.entry.title)
    flash(gone if operation is None else gettext("%(title)s is being deleted.", title=page.entry.title))
    return redirect(url_for("images.images"), code=303)


def _add_form(**defaults: str) -> Form:
    return Form(*FIELDS, long=("dockerfile",), **defaults)


def _add(db: Session, form: Form) -> str:
    """Id of the entry that was added, or taken. What was typed for another way does not count."""
    source, cuda_version = form["source"], form["cuda_version"].strip() or None
    if source not in (BASE, DOCKERFILE, READY):
        raise InvalidInput.of("source", N_("Choose what it is made from."))
    if source == READY:
        reference = form["reference"].strip() or None
        return service.add(db, actor(), title=form["title"], reference=reference, base=None,
                           cuda_version=cuda_version, has_jupyter=ticked("has_jupyter"), now=now()).id
    if not form[source].strip():
        missing = N_("Enter the image that it is built on.") if source == BASE else N_("Enter a Dockerfile.")
        raise InvalidInput.of(source, missing)
    operation = service.prepare(
        db, actor(), title=form["title"], base=form["base"].strip() if source == BASE else None,
        dockerfile=form["dockerfile"] if source == DOCKERFILE else None, cuda_version=cuda_version,
        with_jupyter=ticked("has_jupyter"), now=now())
    if operation.image_id is None:
        raise AssertionError("an image is prepared that is none")
    return operation.image_id


def _do(image_id: str, ask: Callable[[Session], object], form: Form | None = None) -> tuple[str, int] | Response:
    """One wish about an image, then its page again, with what is in the way if it was refused."""
    form = form or Form("dockerfile")
    try:
        form.check()
        with writing() as db:
            ask(db)
    except (NotFound, Forbidden):
        raise
    except AppError as error:
        return _page(image_id, form.refused(error)), error.status
    return redirect(url_for("images.image", image_id=image_id), code=303)


def _read(image_id: str) -> ImagePage:
    with reading() as db:
        page = reads.image_page(db, image_id, member().id, everything=member().is_admin)
    if page is None:
        raise NotFound()
    return page


def _may_delete(image_id: str) -> ImagePage:
    page = _read(image_id)
    if not _is_theirs(page.entry):
        raise Forbidden()
    return page


def _is_theirs(entry: ImageEntry) -> bool:
    """As services.images.delete has it."""
    return member().is_admin or entry.owner_id == member().id


def _list() -> dict[str, Any]:
    with reading() as db:
        rows = reads.catalogue(db, member().id, everything=member().is_admin)
    shown = {row.id: Shown.of(row) for row in rows}
    busy = any(each.is_open for each in shown.values())
    return {"images": rows, "shown": shown, "every": 1 if busy else 5, "short_digest": short_digest}


def _facts(page: ImagePage, form: Form) -> dict[str, Any]:
    entry, shown = page.entry, Shown.of(page.entry)
    return {
        "image": entry, "page": page, "shown": shown, "steps": steps(entry), "log": plain(page.log), "form": form,
        "lines": (page.dockerfile or "").rstrip("\n").split("\n"), "may_delete": _is_theirs(entry),
        "every": 1 if shown.is_open else 5, "short_digest": short_digest,
    }


def _page(image_id: str, form: Form) -> str:
    return render_template("images/image.html", **_facts(_read(image_id), form))


def _delete_page(page: ImagePage, form: Form) -> str:
    return render_template("images/delete.html", **_facts(page, form))
