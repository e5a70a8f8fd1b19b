"""`berth restore`"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from webapp.agent.exclusion import alone, alone_on
from webapp.cli import archive, lock, restoring
from webapp.cli.archive import DATABASE, INSTANCE, Manifest
from webapp.cli.house import now
from webapp.cli.signs import web_listens
from webapp.errors import AppError, Conflict, SettingsError
from webapp.key_files import KEY_FILES
from webapp.services.restored import Restore
from webapp.settings import Settings, load_settings
from webapp.store.files import as_owner_of, fsync_folder, unused
from webapp.store.schema import reaching
from webapp.store.session import Store

KINDS = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


class OtherDatabase(AppError):
    code, status = "other_database", 422
    title = ("The backup is of a database on %(backup)s, and BERTH_DATABASE_URL names one on %(here)s. Rows are not "
             "carried over from one to the other: set BERTH_DATABASE_URL.")


class BackupAhead(AppError):
    code, status = "backup_ahead", 422
    title = ("The backup was made by a newer Berth (%(berth)s, tables %(schema)s), which this one cannot read. "
             "Install that version first.")


class WebRuns(Conflict):
    code = "web_runs"
    title = "Something answers at %(listen)s, where web listens. Stop web first."


class DataThere(Conflict):
    code, retry = "data_there", False
    title = ("There is a house already: %(members)s members and %(workspaces)s workspaces in %(database)s. With "
             "--replace the backup takes its place, and the present database is kept beside.")


class OtherInstance(Conflict):
    code, retry = "other_instance", False
    title = ("The backup is of the instance “%(backup)s”, and here is “%(here)s”, whose workspaces would be seen no "
             "more. With --replace the backup's takes its place.")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, checked; nothing was changed yet."""

    settings: Settings
    store: Store
    manifest: Manifest
    folder: Path                # of what was unpacked
    kept: str                   # end of the names of what is kept beside
    restore: Restore


@click.command(name="restore")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Also where a house is already; its database is kept beside.")
def command(file: Path, replace: bool) -> None:
    """Bring back what “berth backup” has kept in FILE. Web and agent must not run.

    Afterwards Berth is on hold: the agent looks at what runs and touches nothing until an administrator has decided
    about each difference and ended the hold, on its page or with “berth hold”. Everybody has to sign in again.
    """
    moment = now()
    manifest = archive.read(file)
    settings = load_settings()
    store = Store(settings.database_url)
    with ExitStack() as stack:
        stack.callback(store.close)
        _refuse_other(settings, store, manifest)
        stack.enter_context(_alone(settings, store))
        there = restoring.house(store)
        _refuse_house(settings, store, manifest, there, replace=replace)
        folder = stack.enter_context(_unpacked(file, manifest, restoring.scratch(settings, store)))
        before = there or restoring.House(0, 0)
        restore = Restore(manifest.made_at, moment, manifest.instance, before.epoch, before.highest_uid,
                          before.highest_gid)
        plan = Plan(settings, store, manifest, folder, f".replaced-{moment:%Y-%m-%dT%H-%M-%S}", restore)
        kept = _carry_out(plan)
    _tell(file, manifest, kept)


# -- may it be done?


def _refuse_other(settings: Settings, store: Store, manifest: Manifest) -> None:
    here = "sqlite" if store.is_sqlite else "postgresql"
    if manifest.database != here:
        raise OtherDatabase(backup=KINDS.get(manifest.database, manifest.database), here=KINDS[here])
    if manifest.schema not in store.revisions.known:
        raise BackupAhead(berth=manifest.berth, schema=manifest.schema)
    given = os.environ.get("BERTH_INSTANCE", "").strip()
    if given not in ("", manifest.instance):
        raise SettingsError(name="BERTH_INSTANCE", why=f"the backup is of “{manifest.instance}”. Unset it")


@contextmanager
def _alone(settings: Settings, store: Store) -> Iterator[None]:
    """No web, no agent and no other restore works on this house until the end of the block."""
    with ExitStack() as stack:
        stack.callback(os.close, lock.take(settings.state_dir))
        stack.enter_context(alone(settings.state_dir))
        if web_listens(settings):
            raise WebRuns(listen=settings.listen)
        with reaching(store):
            stack.enter_context(alone_on(store))
        yield


def _refuse_house(
    settings: Settings, store: Store, manifest: Manifest, there: restoring.House | None, *, replace: bool,
) -> None:
    """An instance id that was made a moment ago for an empty house is no loss."""
    if there is None or replace:
        return
    if settings.instance != manifest.instance:
        raise OtherInstance(backup=manifest.instance, here=settings.instance)
    raise DataThere(members=there.members, workspaces=there.workspaces, database=store.place)


# -- carrying it out


@contextmanager
def _unpacked(file: Path, manifest: Manifest, folder: Path) -> Iterator[Path]:
    """On the disk where it will stay, so that it takes its place by a rename. What a killed run left is cleared."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
        archive.unpack(file, manifest, folder)
        yield folder
    except OSError as error:
        raise archive.BackupUnwritable(file=folder, why=(error.strerror or str(error)).lower()) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _carry_out(plan: Plan) -> list[Path]:
    """The database first: with it Berth is on hold, whatever is cut short after that. What is kept beside."""
    kept = [restoring.database(plan.store, plan.settings, plan.folder / DATABASE, plan.restore, plan.kept)]
    for name in (INSTANCE, *KEY_FILES):
        kept.append(_put(plan.folder / name, plan.settings.state_dir / name, plan.kept))
    return [path for path in kept if path is not None]


def _put(new: Path, place: Path, kept: str) -> Path | None:
    """A file of the state folder; one that is different is kept beside."""
    if not new.exists() or (place.exists() and place.read_bytes() == new.read_bytes()):
        return None
    beside = unused(place.with_name(place.name + kept))
    is_there = place.exists()
    new.chmod(0o640)
    if is_there:
        as_owner_of(place, new)
        os.link(place, beside)
    new.replace(place)
    fsync_folder(place.parent)
    return beside if is_there else None


def _tell(file: Path, manifest: Manifest, kept: list[Path]) -> None:
    print(f"restored {file}, made {_clock(manifest.made_at)} by Berth {manifest.berth}")
    for path in kept:
        print(f"what was there before is kept in {path}")
    if not manifest.with_keys:
        print("it was made without keys: running workspaces still have theirs, and the agent reads them back")
    print("Berth is on hold: start it, then decide about what differs, on the page “Hold” or with: berth hold")


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
