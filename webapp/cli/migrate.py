"""`berth migrate`"""

from __future__ import annotations

import click

from webapp.key_files import seal_of
from webapp.services import sealing
from webapp.settings import load_settings
from webapp.store.migrate import upgrade
from webapp.store.schema import current
from webapp.store.session import Store


@click.command(name="migrate")
def command() -> None:
    """Bring the database to what this version expects. Safe to run twice, and while workspaces run."""
    settings = load_settings()
    seal = seal_of(settings)
    store = Store(settings.database_url, seal=seal)
    changed = upgrade(store)
    with store.write() as session:
        sealing.reseal(session, known=seal.known)
    print(f"database {'upgraded to' if changed else 'is current at'} {current(store)}")
    store.close()
