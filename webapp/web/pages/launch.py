"""The launch form: what people leave alone is right already."""

from __future__ import annotations

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from webapp.domain.sizes import format_cpus, format_size
from webapp.errors import N_, AppError
from webapp.services import keys, workspaces
from webapp.services.orders import LaunchRequest
from webapp.services.problems import Problems
from webapp.store.reads.launch import LaunchOptions, options
from webapp.web.context import actor, here, member, now, reading, writing
from webapp.web.forms import Form

blueprint = Blueprint("launch", __name__)
# A service's name of a field → this form's.
FIELDS = {"image": "image_id", "text": "ssh_key", "ssh_keys": "ssh_key", "title": "ssh_key"}
MOUNT_WAYS = {"": None, "ro": True, "rw": False}    # value of a volume's choice → read only; None = not mounted


@blueprint.get("/launch")
def launch_form() -> str:
    offered = _offered()
    rules = here().rules
    form = _form(
        name=offered.suggested_name,
        image_id=offered.default_image.id if offered.default_image else "",
        cpus=format_cpus(rules.default_cpu_millis),
        memory=format_size(rules.default_memory_bytes),
    )
    return _page(form, offered)


@blueprint.post("/launch")
def launch() -> tuple[str, int] | Response:
    form = _form()
    try:
        form.check()
        with writing() as db:
            problems = Problems()
            if form["ssh_key"].strip():
                with problems.gather():
                    keys.add_keys(db, actor(), member_id=member().id, text=form["ssh_key"], title="", now=now())
            with problems.gather():
                workspace = workspaces.launch(db, actor(), _request(form), house=here().rules, now=now())
            problems.raise_if_any()
    except AppError as error:
        return _page(form.refused(error, FIELDS), _offered()), error.status
    return redirect(url_for("workspace.workspace", workspace_id=workspace.id), code=303)


def _form(**defaults: str) -> Form:
    return Form("name", "image_id", "cpus", "memory", "shm", "mounts", long=("ssh_key",), **defaults)


def _request(form: Form) -> LaunchRequest:
    return LaunchRequest(name=form["name"].strip(), image_id=form["image_id"], cpus=form["cpus"].strip(),
                         memory=form["memory"].strip(), shm=form["shm"].strip(), mounts=_mounts())


def _mounts() -> tuple[tuple[str, bool], ...]:
    """Fields `mount-ID`; an unknown way counts as not chosen, an unknown volume is refused by the service."""
    chosen = ((name.removeprefix("mount-"), MOUNT_WAYS.get(way)) for name, way in request.form.items()
              if name.startswith("mount-"))
    return tuple((volume_id, read_only) for volume_id, read_only in chosen if read_only is not None)


def _offered() -> LaunchOptions:
    with reading() as db:
        return options(db, member().id)


def _page(form: Form, offered: LaunchOptions) -> str:
    rules = here().rules
    if not offered.hosts:
        form.refuse("", N_("No host is registered yet. An administrator starts the agent once, then it appears."))
    if offered.images and offered.default_image is None and not form.problems.get("image_id"):
        form.refuse("image_id", N_("None of these is prepared yet, so nothing can be launched."))
    return render_template(
        "launch.html", form=form, offered=offered, mounts=dict(_chosen_ways()),
        most_cpus=rules.max_cpu_millis, most_memory=rules.max_memory_bytes)


def _chosen_ways() -> list[tuple[str, str]]:
    return [(name.removeprefix("mount-"), way) for name, way in request.form.items() if name.startswith("mount-")]
