"""The house: how far it is set up, and its hosts."""

from __future__ import annotations

from flask import Blueprint, render_template

from webapp.store.reads import house as reads
from webapp.store.reads.workspaces import list_cards
from webapp.web import gpus
from webapp.web.auth import admins_only
from webapp.web.context import here, member, now, reading
from webapp.web.findings import findings_of
from webapp.web.frame import SILENT_AFTER
from webapp.web.status import Status

blueprint = Blueprint("admin", __name__)


@blueprint.get("/house")
@admins_only
def house() -> str:
    with reading() as db:
        done = reads.checklist(db)
    agent_is_there = done.agent_alive_at is not None and now() - done.agent_alive_at <= SILENT_AFTER
    steps_done = (True, agent_is_there and done.hosts_answering > 0, done.images_ready > 0, done.members > 1,
                  done.launches > 0)
    return render_template("house/house.html", done=done, steps_done=steps_done, agent_is_there=agent_is_there)


@blueprint.get("/house/workspaces")
@admins_only
def workspaces() -> str:
    with reading() as db:
        cards = list_cards(db, None)
    return render_template("house/workspaces.html", cards=cards, in_line=gpus.in_line,
                           statuses={card.id: Status.of(card) for card in cards})


@blueprint.get("/house/hosts")
@admins_only
def hosts() -> str:
    with reading() as db:
        rows = reads.hosts(db)
    settings = here().settings
    tiles = {row.id: gpus.tiles(row.cards, member().id, silent=row.unreachable_since is not None,
                                trouble=row.gpu_trouble) for row in rows}
    return render_template(
        "house/hosts.html", hosts=rows, findings={row.id: findings_of(row) for row in rows}, tiles=tiles,
        is_calm=gpus.is_calm, counted=gpus.counted, ports=settings.ports,
        bind=settings.workspace_bind, workspace_host=settings.workspace_host)
