"""The launch form: what people leave alone is right already."""

from __future__ import annotations

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from webapp.domain import cuda
from webapp.domain.sizes import format_cpus, format_size
from webapp.errors import N_, AppError, NoCapacity
from webapp.services import keys, workspaces
from webapp.services.orders import LaunchRequest
from webapp.services.problems import Problems
from webapp.store.reads import launch as reads
from webapp.store.reads import quotas
from webapp.store.reads.launch import LaunchOptions
from webapp.web import choices, gpus
from webapp.web.choices import ANY, CHOSEN_NOT_FREE, NONE, THESE, Cards
from webapp.web.context import actor, here, member, now, reading, writing
from webapp.web.forms import Form
from webapp.web.shown import sentence

blueprint = Blueprint("launch", __name__)
# A service's name of a field → this form's.
FIELDS = {"image": "image_id", "text": "ssh_key", "ssh_keys": "ssh_key", "title": "ssh_key"}


@blueprint.get("/launch")
def launch_form() -> str:
    offered = _offered()
    rules = here().rules
    wanted = request.args.get("image")      # a link from the page of images
    ready = [image.id for image in offered.images if image.is_ready]
    form = _form(
        name=offered.suggested_name,
        image_id=wanted if wanted in ready else ready[0] if ready else "",
        cpus=format_cpus(rules.default_cpu_millis),
        memory=format_size(rules.default_memory_bytes),
        gpu_way=ANY if _one_is_free(offered) else NONE,
        gpu_count="1",
    )
    return _page(form, offered)


@blueprint.get("/poll/launch/gpus")
def poll_gpus() -> str:
    with reading() as db:
        hosts = reads.hosts(db)
    groups = [gpus.group(host, member().id) for host in hosts]
    return render_template("parts/form_gpus.html", groups=groups, ticked=(), gpus_url=url_for("launch.poll_gpus"))


@blueprint.post("/launch")
def launch() -> tuple[str, int] | Response:
    form = _form()
    ticked = choices.ticked(form)
    try:
        form.check()
        with writing() as db:
            problems = Problems()
            if form["ssh_key"].strip():
                with problems.gather():
                    keys.add_keys(db, actor(), member_id=member().id, text=form["ssh_key"], title="", now=now())
            cards = None
            with problems.gather():
                cards = choices.read_cards(form, ticked)
            with problems.gather():
                workspace = workspaces.launch(
                    db, actor(), _request(form, cards or Cards()), house=here().rules, now=now())
            problems.raise_if_any()
    except NoCapacity as error:
        return _page(form, _offered(), ticked, error), error.status
    except AppError as error:
        return _page(form.refused(error, FIELDS), _offered(), ticked), error.status
    return redirect(url_for("workspace.workspace", workspace_id=workspace.id), code=303)


def _form(**defaults: str) -> Form:
    return Form("name", "image_id", "cpus", "memory", "shm", "mounts", "gpus", "gpu_way", "gpu_count", "gpu_model",
                long=("ssh_key",), **defaults)


def _request(form: Form, cards: Cards) -> LaunchRequest:
    return LaunchRequest(
        name=form["name"].strip(), image_id=form["image_id"], cpus=form["cpus"].strip(), memory=form["memory"].strip(),
        shm=form["shm"].strip(), mounts=choices.read_mounts(), gpus=cards.count, gpu_model=cards.model,
        gpu_uuids=cards.uuids)


def _offered() -> LaunchOptions:
    with reading() as db:
        return reads.options(db, member().id)


def _one_is_free(offered: LaunchOptions) -> bool:
    """One that the image chosen beforehand can use: then it is what a newcomer expects to get."""
    image = offered.default_image
    return any(
        gpus.group(host, member().id).free for host in offered.hosts
        if image is None or cuda.refusal(image.cuda_version, host.driver_version) is None)


def _page(
    form: Form, offered: LaunchOptions, ticked: list[str] | None = None, no_capacity: NoCapacity | None = None,
) -> str:
    rules, hosts = here().rules, offered.hosts
    with reading() as db:
        use = quotas.use_of(db, member().id)
    if not hosts:
        form.refuse("", N_("No host is registered yet. An administrator starts the agent once, then it appears."))
    if offered.images and offered.default_image is None and not form.problems.get("image_id"):
        form.refuse("image_id", N_("None of these is prepared yet, so nothing can be launched."))
    title = CHOSEN_NOT_FREE if form["gpu_way"] == THESE else NoCapacity.title
    refused = {
        "title": sentence(title, no_capacity.facts), "whys": gpus.whys(no_capacity.facts),
        "offers": gpus.offers(no_capacity.facts, hosts),
    } if no_capacity else None
    return render_template(
        "launch.html", form=form, offered=offered, mounts=dict(choices.ways_of_volumes()), ticked=ticked or (),
        refused=refused, groups=[gpus.group(host, member().id) for host in hosts], models=gpus.models_of(hosts),
        gpus_url=url_for("launch.poll_gpus"), use=use,
        unfit={image.id: gpus.unfit_hosts(image, hosts) for image in offered.images},
        most_cpus=rules.max_cpu_millis, most_memory=rules.max_memory_bytes)
