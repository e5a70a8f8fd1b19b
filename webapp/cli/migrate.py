"""`berth migrate`"""

from __future__ import annotations

import click

from webapp.settings import load_settings
from webapp.store.migrate import upgrade
from webapp.store.schema import current
from webapp.store.session import Store


@click.command(name="migrate")
def command() -> None:
    """Bring the database to what this version expects. Safe to run twice, and while workspaces run."""
    store = Store(load_settings().database_url)
    changed = upgrade(store)
    print(f"database {'upgraded to' if changed else 'is current at'} {current(store)}")
    store.close()
