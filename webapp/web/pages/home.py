"""The first page: my workspaces, as they are now."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, render_template

from webapp.store.reads import workspaces
from webapp.web import gpus
from webapp.web.context import member, reading
from webapp.web.status import Status

blueprint = Blueprint("home", __name__)


@blueprint.get("/")
def home() -> str:
    return render_template("home.html", **_facts())


@blueprint.get("/poll/workspaces")
def poll() -> str:
    return render_template("parts/home_live.html", **_facts())


def _facts() -> dict[str, Any]:
    with reading() as db:
        cards = workspaces.list_cards(db, member().id)
    statuses = {card.id: Status.of(card) for card in cards}
    busy = any(status.is_busy for status in statuses.values())
    return {"cards": cards, "statuses": statuses, "every": 1 if busy else 5, "in_line": gpus.in_line}
