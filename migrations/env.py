"""Alembic's entry: one connection, handed over by webapp.store.migrate or made from BERTH_DATABASE_URL."""

from alembic import context

from webapp.settings import load_settings
from webapp.store.session import Store
from webapp.store.tables import Base


def run() -> None:
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        return
    store = Store(load_settings().database_url)
    with store.engine.execution_options(berth_write=True).connect() as own:
        _migrate(own)


def _migrate(connection) -> None:  # type: ignore[no-untyped-def]
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


run()
