"""`berth doctor`"""

from __future__ import annotations

import click
from rich.markup import escape

from webapp.cli import checks
from webapp.cli.failure import FAILED, NOT_REACHED
from webapp.cli.house import fields
from webapp.cli.output import console, json_option, show
from webapp.settings import load_settings


@click.command(name="doctor")
@json_option
def command(as_json: bool) -> int:
    """Check settings, database, agent, engine, GPUs and images; for what is wrong, say what to do.

    Ends with 0 when all is well, 5 when engine or agent do not answer, else 1.
    """
    found = []
    for check in checks.run(load_settings()):
        found.append(check)
        if not as_json:
            _tell(check)
    if as_json:
        show([fields(check, "name", "ok", "minor", "seen", "fix") for check in found], as_json=True)
    wrong = [check for check in found if not check.ok and not check.minor]
    if any(check.reaches for check in wrong):
        return NOT_REACHED
    return FAILED if wrong else 0


def _tell(check: checks.Check) -> None:
    mark = "[green]✓[/green]" if check.ok else "[yellow]![/yellow]" if check.minor else "[red]✗[/red]"
    console().print(f"{mark} {check.name:<11}{escape(check.seen)}", soft_wrap=True)
    if check.fix:
        console().print(f"             → {escape(check.fix)}", soft_wrap=True)
