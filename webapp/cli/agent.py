"""`berth agent`"""

from __future__ import annotations

import click

from webapp.cli.agent_process import run_agent


@click.command(name="agent")
def command() -> None:
    """Run the agent alone, in the foreground. Only one runs at a time."""
    run_agent()
