"""`berth settings`"""

from __future__ import annotations

import os

import click

from webapp.cli.output import json_option, show
from webapp.settings import load_settings, shown_values, table


@click.command(name="settings")
@json_option
def command(as_json: bool) -> None:
    """Show every setting, the value in force, and what it means."""
    values = shown_values(load_settings())
    show([{
        "variable": row.variable,
        "value": values[row.variable],
        "set": bool(os.environ.get(row.variable)),
        "unit": row.unit,
        "meaning": row.description,
    } for row in table()], as_json=as_json)
