"""`berth image`"""

from __future__ import annotations

import click
from sqlalchemy.orm import Session

from webapp.cli import workspace_image
from webapp.cli.failure import NoSuch
from webapp.cli.house import ACTOR, now, open_house
from webapp.cli.output import json_option, show
from webapp.cli.steps import Steps
from webapp.cli.waiting import wait_for
from webapp.domain.sizes import show_size
from webapp.services import images
from webapp.store.reads import house as reads


@click.group(name="image")
def command() -> None:
    """Images to launch from: add, list, prepare, pull, withdraw, delete."""


@command.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """Show the catalogue. An image without a reference is prepared first: berth image prepare BASE."""
    with open_house() as house, house.store.read() as session:
        rows = reads.images(session)
    show([{
        "id": row.id,
        "title": row.title,
        "base": row.base,
        "reference": row.reference,
        "cuda": row.cuda_version,
        "jupyter": row.has_jupyter,
        "for": row.team_name or row.owner_name or "everybody",
        "state": _state(row),
        "workspaces": row.workspaces,
        "hosts": tuple(host.host_name for host in row.hosts),
        "size": show_size(row.size_bytes) if row.size_bytes else None,
        "digest": row.digest,
    } for row in rows], as_json=as_json)


@command.command()
@click.argument("reference")
@click.option("--title", required=True, help="What people read in the launch form.")
@click.option("--base", "as_base", is_flag=True,
              help="REFERENCE is a plain image, such as pytorch/pytorch:…, to be prepared; else a workspace image.")
@click.option("--cuda", "cuda_version", help="CUDA version inside, such as 12.8.")
@click.option("--ssh-only", is_flag=True, help="There is no JupyterLab in it.")
def add(reference: str, title: str, as_base: bool, cuda_version: str | None, ssh_only: bool) -> None:
    """Put an image into the catalogue. It needs a fixed tag or a digest; “latest” is refused."""
    with open_house() as house, house.store.write() as session:
        image = images.add(
            session, ACTOR, title=title, reference=None if as_base else reference, base=reference if as_base else None,
            cuda_version=cuda_version, has_jupyter=not ssh_only, now=now())
        print(f"{image.title} added" + (f"; now run: berth image prepare {image.base}" if as_base else ""))


@command.command()
@click.argument("base", required=False)
@click.option("--ssh-only", is_flag=True, help="A slim one without JupyterLab, as an entry of its own.")
def prepare(base: str | None, ssh_only: bool) -> None:
    """Make the workspace image on BASE, and offer it.

    Without BASE: on the default base, or on one made on this server where no registry answers.
    """
    with open_house() as house:
        with Steps().step(f"workspace image on {base or 'the default base'}") as say:
            made = workspace_image.ensure(house.settings.engine_url, base, jupyter=not ssh_only, progress=say,
                                          registries=workspace_image.registries_of(house.settings))
        workspace_image.register(house.store, made, ACTOR, now=now())
    print(made.reference)


@command.command()
@click.argument("image")
def pull(image: str) -> None:
    """Have the agent pull IMAGE (its id, base or reference) from its registry, by the digest on record. Ctrl-C ends it.
    """
    with open_house() as house:
        with house.store.write() as session:
            row = _find(session, image)
            operation = images.pull(session, ACTOR, row.id, now=now())
        result = wait_for(house, operation.id, f"pulling {row.title}")
    print(result.get("digest") or row.title)
    if result.get("moved_to"):
        print(f"The registry has another image under that tag now, {result['moved_to']}. The one on record is used; "
              "to take the new one, delete this entry and add it again.")


@command.command()
@click.argument("image")
def delete(image: str) -> None:
    """Take IMAGE (its id, base or reference) off the hosts and out of the catalogue, if no workspace is of it."""
    with open_house() as house:
        with house.store.write() as session:
            row = _find(session, image)
            operation = images.delete(session, ACTOR, row.id, now=now())
        if operation is not None:
            wait_for(house, operation.id, f"deleting {row.title}")
    print(f"{row.title} is deleted")


@command.command()
@click.argument("image")
def withdraw(image: str) -> None:
    """Stop offering IMAGE (its id, base or reference). Workspaces made from it stay."""
    with open_house() as house, house.store.write() as session:
        row = _find(session, image)
        images.withdraw(session, ACTOR, row.id, now=now())
    print(f"{row.title} is offered no more")


@command.command()
@click.argument("image")
def offer(image: str) -> None:
    """Offer IMAGE (its id, base or reference) again after a withdraw."""
    with open_house() as house, house.store.write() as session:
        row = _find(session, image)
        images.offer_again(session, ACTOR, row.id, now=now())
    print(f"{row.title} is offered")


def _state(row: reads.ImageRow) -> str:
    if row.withdrawn_at is not None:
        return "withdrawn"
    return "ready" if row.reference else "not prepared"


def _find(session: Session, name: str) -> reads.ImageRow:
    for row in reads.images(session):
        if name in (row.id, row.base, row.reference):
            return row
    raise NoSuch(what="image", name=name)
