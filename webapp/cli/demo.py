"""`berth demo`: everything as with `berth up`, with simulated GPUs and sample members, and all of it can be removed."""

from __future__ import annotations

import os
import shutil
from functools import partial

import click

from webapp.cli import demo_house, lock, root, up
from webapp.cli.demo_house import Demo
from webapp.engines.docker.belongings import remove_all
from webapp.errors import AppError

START = "start"


class NotRemoved(AppError):
    title = "%(folder)s could not be removed: %(why)s. What it had on the engine is gone."


class _Demo(click.Group):
    """Its own commands, and every other of `berth` on the demo's settings."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *(name for name in root.COMMANDS if name not in ("up", "demo"))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in ("up", "demo"):      # the real one on the demo's settings would be a demo with no members
            return None
        return super().get_command(ctx, cmd_name) or root.berth.get_command(ctx, cmd_name)


@click.group(name="demo", cls=_Demo, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Try Berth: two sample members, simulated GPUs on which nothing computes, real workspaces.

    It has a state folder, an instance id, a port range and an address of its own, so that it runs beside any other
    Berth. BERTH_ variables that are set win. Other commands see the demo as well: berth demo gpu list.
    """
    ctx.obj = demo_house.enter(os.environ, may_begin=ctx.invoked_subcommand in (None, START))
    if ctx.invoked_subcommand is None:
        ctx.invoke(start)


@command.command(name=START)
@click.pass_obj
def start(demo: Demo) -> None:
    """Start it; the same as no command. Ctrl-C stops it, never a workspace."""
    up.start(furnish=partial(demo_house.furnish, demo=demo))


@command.command()
@click.pass_obj
def clean(demo: Demo) -> None:
    """Remove all of it: workspaces, homes and volumes, network, state folder. Nothing of any other Berth."""
    folder = demo.settings.state_dir
    lock.take(folder)       # not while it runs
    gone = remove_all(demo.settings.engine_url, demo.mark.instance, host="the engine")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise NotRemoved(folder=folder, why=(error.strerror or str(error)).lower()) from error
    for name in (*gone.containers, *gone.volumes, *gone.images, *gone.networks, folder):
        print(f"removed {name}")
