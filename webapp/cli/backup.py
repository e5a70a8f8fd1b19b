"""`berth backup`"""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import click

from webapp.cli import archive
from webapp.cli.archive import DATABASE, INSTANCE
from webapp.cli.house import now
from webapp.domain.sizes import show_size
from webapp.errors import AppError
from webapp.key_files import KEY_FILES
from webapp.settings import Settings, load_settings
from webapp.store import copy_postgresql, copy_sqlite
from webapp.store.revisions import DatabaseAhead, DatabaseBehind
from webapp.store.schema import current
from webapp.store.session import Store

FIRST_SCHEMA = "0003"           # the first whose database can be put on hold
# Tables that are nothing but ways in. Passwords stay, as hashes: without them nobody could sign in.
KEY_TABLES = ("workspace_secrets", "invites")


class NoDatabase(AppError):
    code, status = "no_database", 404
    title = "There is no database %(database)s yet, so there is nothing to keep."


@click.command(name="backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--without-keys", is_flag=True, help="Leave out what opens doors: the key that signs browser sessions, "
              "host keys and Jupyter tokens of workspaces, open invites.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def command(file: Path, without_keys: bool, force: bool) -> None:
    """Keep the whole house but for people's data in FILE, while it runs.

    In it are the database, the instance id, and keys unless they are left out; not homes, volumes and what is in
    containers. FILE can be read by its owner alone. “berth restore” brings it back.
    """
    settings = load_settings()
    store = Store(settings.database_url)
    target = file.absolute()
    try:
        with archive.being_written(target, force=force) as folder:
            schema = _copy(store, folder / DATABASE, keys=not without_keys)
            _files(settings, folder, keys=not without_keys)
            manifest = archive.described(
                folder, berth=version("gpu-berth"), schema=schema, made_at=now(), instance=settings.instance,
                database="sqlite" if store.is_sqlite else "postgresql", product=store.product(),
                with_keys=not without_keys)
            archive.write(target, folder, manifest)
    finally:
        store.close()
    keys = "without keys" if without_keys else "with keys: keep it where nobody else reads"
    print(f"{file}: {show_size(target.stat().st_size)}, {keys}")


def _copy(store: Store, target: Path, *, keys: bool) -> str:
    """The revision of the tables in the copy. An upgrade that comes between is no harm: it is all in it, or not."""
    found = current(store)
    if found is None:
        raise NoDatabase(database=store.place)
    if found not in store.revisions.known:
        raise DatabaseAhead(found=found)
    if found < FIRST_SCHEMA:
        raise DatabaseBehind(found=found, wanted=f"at least {FIRST_SCHEMA}")
    emptied = () if keys else KEY_TABLES
    path = store.sqlite_path
    if path is None:
        return copy_postgresql.dump(store, target, emptied=emptied) or found
    copy_sqlite.copy(path, target, emptied=emptied)
    copied = Store(f"sqlite:///{target}")
    try:
        return current(copied) or found
    finally:
        copied.close()
        copy_sqlite.settled(target)


def _files(settings: Settings, folder: Path, *, keys: bool) -> None:
    (folder / INSTANCE).write_text(f"{settings.instance}\n")
    for name in KEY_FILES if keys else ():
        path = settings.state_dir / name
        if path.exists():       # made at the first start of web
            shutil.copyfile(path, folder / name)
