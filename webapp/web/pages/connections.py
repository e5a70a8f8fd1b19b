"""Who is connected to a workspace by SSH, and ending that."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from webapp.errors import NotFound
from webapp.services import connections as service
from webapp.store.reads import connections as reads
from webapp.store.reads.connections import ConnectionsPage
from webapp.web.context import actor, member, now, reading, writing

blueprint = Blueprint("connections", __name__)


@blueprint.get("/workspaces/<workspace_id>/connections")
def connections(workspace_id: str) -> str:
    return render_template("connections.html", **_facts(_read(workspace_id)))


@blueprint.get("/poll/workspaces/<workspace_id>/connections")
def poll(workspace_id: str) -> str:
    return render_template("parts/connections_live.html", **_facts(_read(workspace_id)))


@blueprint.post("/workspaces/<workspace_id>/connections")
def look(workspace_id: str) -> Response:
    """The page asks by itself as soon as it is open; a GET changes nothing."""
    if _read(workspace_id).is_running:
        with writing() as db:
            service.look(db, actor(), workspace_id, now=now())
    return _back(workspace_id)


@blueprint.post("/workspaces/<workspace_id>/connections/cut")
def cut(workspace_id: str) -> Response:
    """`connection`: the id of one; without it all."""
    _read(workspace_id)
    named = request.form.getlist("connection")
    with writing() as db:
        service.cut(db, actor(), workspace_id, connections=named or None, now=now())
    return _back(workspace_id)


def _read(workspace_id: str) -> ConnectionsPage:
    """What belongs to somebody else does not exist, but for administrators."""
    with reading() as db:
        page = reads.page(db, workspace_id)
    if page is None or not (member().is_admin or page.owner_id == member().id):
        raise NotFound()
    return page


def _facts(page: ConnectionsPage) -> dict[str, Any]:
    return {"page": page, "asks": page.needs_look(now()), "every": 1 if page.is_coming else 5}


def _back(workspace_id: str) -> Response:
    return redirect(url_for("connections.connections", workspace_id=workspace_id), code=303)
