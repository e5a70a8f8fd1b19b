"""Quotas of the house, of teams and of members, for administrators."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from webapp.domain.quota import Quota
from webapp.domain.sizes import MOST_BYTES, format_cpus, parse_cpus, parse_size
from webapp.errors import AppError, InvalidInput
from webapp.services import quotas as service
from webapp.services.problems import Problems
from webapp.store.reads import people
from webapp.store.reads import quotas as reads
from webapp.store.reads.quotas import SetQuota
from webapp.store.tables import HOUSE
from webapp.web.auth import admins_only
from webapp.web.context import actor, now, reading, writing
from webapp.web.forms import Form
from webapp.web.words import gettext

blueprint = Blueprint("quotas", __name__)
FIELDS = ("workspaces", "cards", "cpus", "memory", "version")
GIB = 2**30
MOST_CPU_MILLIS = 10**9     # of all workspaces together


@blueprint.get("/house/quotas")
@admins_only
def quotas() -> str:
    return _page()


@blueprint.post("/house/quotas")
@admins_only
def add() -> tuple[str, int] | Response:
    """For a team or member that has none of its own yet."""
    return _save(request.form.get("subject", ""), "")


@blueprint.post("/house/quotas/<subject>")
@admins_only
def change(subject: str) -> tuple[str, int] | Response:
    return _save(subject, subject)


@blueprint.post("/house/quotas/<subject>/clear")
@admins_only
def clear(subject: str) -> Response:
    with writing() as db:
        service.clear_quota(db, actor(), subject, version=_version(), now=now())
    flash(gettext("They have no quota of their own any more."))
    return redirect(url_for("quotas.quotas"), code=303)


def _save(subject: str, shown_at: str) -> tuple[str, int] | Response:
    form = Form(*FIELDS, "subject")
    try:
        form.check()
        quota = _read(form)
        with writing() as db:
            service.set_quota(db, actor(), subject, quota, version=_version(), now=now())
    except InvalidInput as error:
        return _page(form.refused(error), shown_at), error.status
    except AppError as error:
        return _page(form.refused(error), shown_at), error.status
    flash(gettext("The quota is set. What runs goes on."))
    return redirect(url_for("quotas.quotas"), code=303)


def _read(form: Form) -> Quota:
    """"" = no limit. Raises InvalidInput: everything that cannot be used."""
    problems = Problems()
    workspaces = cards = cpus = memory = None
    with problems.gather():
        workspaces = service.read_count(form["workspaces"], "workspaces")
    with problems.gather():
        cards = service.read_count(form["cards"], "cards")
    with problems.gather():
        if form["cpus"].strip():
            cpus = parse_cpus(form["cpus"], field="cpus", maximum=MOST_CPU_MILLIS)
    with problems.gather():
        if form["memory"].strip():
            memory = parse_size(form["memory"], field="memory", minimum=1, maximum=MOST_BYTES)
    problems.raise_if_any()
    return Quota(workspaces, cards, cpus, memory)


def _version() -> int:
    text = request.form.get("version", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _page(form: Form | None = None, shown_at: str | None = None) -> str:
    """`form`: one that was refused, of the quota `shown_at`, "" = of a new one."""
    with reading() as db:
        found, teams, members = reads.all_set(db), people.teams(db), people.members(db)
    taken = {one.id for one in found}
    house = next((one for one in found if one.id == HOUSE), SetQuota(HOUSE, "", False, Quota(), 0))
    forms = {one.id: _form_of(one) for one in (house, *found)}
    if form is not None and shown_at:
        forms[shown_at] = form
    return render_template(
        "house/quotas.html", house=house, others=[one for one in found if one.id != HOUSE], forms=forms,
        new=form if form is not None and not shown_at else Form(*FIELDS, "subject", version="0"),
        teams=[team for team in teams if team.id not in taken],
        members=[one for one in members if one.id not in taken and one.deactivated_at is None])


def _form_of(one: SetQuota) -> Form:
    quota = one.quota
    values = {
        "workspaces": "" if quota.workspaces is None else str(quota.workspaces),
        "cards": "" if quota.cards is None else str(quota.cards),
        "cpus": "" if quota.cpu_millis is None else format_cpus(quota.cpu_millis),
        "memory": "" if quota.memory_bytes is None else f"{quota.memory_bytes // 2**20}MiB"
                  if quota.memory_bytes % GIB else f"{quota.memory_bytes // GIB}GiB",
        "version": str(one.version),
    }
    form = Form(*FIELDS)
    form.values |= values
    return form
