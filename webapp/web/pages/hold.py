"""The hold: what differs after a restore, decided on by an administrator, and its end."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from webapp.errors import AppError
from webapp.services import hold as service
from webapp.services import hold_release
from webapp.web import differences
from webapp.web.auth import admins_only
from webapp.web.context import actor, now, reading, writing
from webapp.web.forms import Form
from webapp.web.frame import on_hold
from webapp.web.words import gettext, ngettext

blueprint = Blueprint("hold", __name__)
DECISION, MARK = "decision-", "mark-"       # and the workspace's id: fields of the form
ALL = "all:"                                # and kind:decision: a button


@blueprint.get("/hold")
@admins_only
def hold() -> str:
    return _page(Form())


@blueprint.post("/hold")
@admins_only
def decide() -> tuple[str, int] | Response:
    """`do`: save | release | all:KIND:DECISION. What is ticked is written down first; a refusal undoes all of it."""
    do, form = request.form.get("do", ""), Form()
    try:
        with writing() as db:
            _write(db)
            if do == "release":
                hold_release.release(db, actor(), keep_rest="keep_rest" in request.form, now=now())
            elif do.startswith(ALL):
                kind, _, decision = do.removeprefix(ALL).partition(":")
                service.decide_all(db, actor(), kind, decision, now=now())
    except AppError as error:
        return _page(form.refused(error)), error.status
    if do != "release":
        return redirect(url_for("hold.hold"), code=303)
    flash(gettext("The hold is over. The agent goes on as you decided."))
    return redirect(url_for("admin.workspaces"), code=303)


def _write(db: Session) -> None:
    """Each decision that was ticked, about what its reader has seen."""
    for workspace_id, decision in _ticked().items():
        service.decide(db, actor(), workspace_id, decision, seen=request.form.get(f"{MARK}{workspace_id}", ""),
                       now=now())


def _ticked() -> dict[str, str]:
    return {name.removeprefix(DECISION): value for name, value in request.form.items() if name.startswith(DECISION)}


def _page(form: Form) -> str:
    with reading() as db:
        groups = differences.groups(db, _ticked()) if on_hold() else ()
    items = [item for group in groups for item in group.items]
    open_ = sum(not any(option.is_chosen for option in item.options) for item in items)
    said = ngettext("%(num)d difference is open.", "%(num)d differences are open.", open_)
    return render_template("house/hold.html", form=form, groups=groups, count=len(items), open=open_, said=said,
                           keep_rest="keep_rest" in request.form)
