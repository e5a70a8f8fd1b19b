"""`berth web`"""

from __future__ import annotations

import os
import sys

import click

from webapp.cli.children import web_command
from webapp.key_files import load_secret_key
from webapp.settings import load_settings
from webapp.store.schema import check_current
from webapp.store.session import Store


@click.command(name="web")
def command() -> None:
    """Run the web process alone, in the foreground."""
    settings = load_settings()
    load_secret_key(settings)
    store = Store(settings.database_url)
    check_current(store)
    store.close()
    sys.stdout.flush()
    os.execv(sys.executable, web_command(settings))  # noqa: S606
