"""The account that the web process runs as when `berth up` was started by root.

Web has no business with Docker or with other people's files, so it gets an account that owns nothing. The state folder
is shared with that account's group, because SQLite needs to write beside its file; nobody else may look in. A
PostgreSQL has to let that account in as it does this one: by the password in the address.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from webapp.key_files import KEY_FILES
from webapp.settings import Settings
from webapp.store.session import Store

NAME = "berth-web"
# Set-gid: what web and agent make in it belongs to the group. Sticky: what root made in it cannot be swapped by web's
# account for something of its own, such as programs that the agent runs. SQLite does without removing -wal and -shm.
FOLDER_MODE = 0o3770
DATABASE_MODE = 0o660   # SQLite gives -wal and -shm the same
READ_MODE = 0o640
PROBE_SECONDS = 60
# In that account: can it load the application, and write the database?
_PROBE = """
from webapp.cli.wsgi import make_app
from webapp.settings import load_settings
from webapp.store.session import Store
make_app()
with Store(load_settings().database_url).write() as session:
    session.connection()
"""


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int


def prepare(settings: Settings) -> tuple[Account | None, str | None]:
    """The account for the web process, None = the one that runs now; and why, where that is not as it should be."""
    if os.geteuid() != 0:
        return None, None
    why = _closed_way(settings)     # before an account is made for nothing
    if why:
        return None, why
    account, why = _account()
    if account is None:
        return None, why
    _share(settings, account.gid)
    why = _probe(account)
    return (None, why) if why else (account, None)


def _closed_way(settings: Settings) -> str | None:
    """A folder that only root may pass, on the way to Python, the code or the state folder."""
    for path in (Path(sys.executable), Path(sys.executable).resolve(), Path(__file__), settings.state_dir):
        for folder in reversed(path.absolute().parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return f"no other account may look into {folder}, where {path} lies"
    return None


def _account() -> tuple[Account | None, str | None]:
    try:
        found = pwd.getpwnam(NAME)
    except KeyError:
        if shutil.which("useradd") is None:
            return None, f"there is no account {NAME} and no useradd to make it"
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
                   "--shell", "/usr/sbin/nologin", NAME]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            return None, f"the account {NAME} could not be made: {made.stderr.strip()}"
        found = pwd.getpwnam(NAME)
    if found.pw_uid == 0:
        return None, f"the account {NAME} is root under another name"
    return Account(found.pw_uid, found.pw_gid), None


def _share(settings: Settings, gid: int) -> None:
    _give(settings.state_dir, gid, FOLDER_MODE)
    database = Store(settings.database_url).sqlite_path
    if database is not None:
        for path in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))):
            _give(path, gid, DATABASE_MODE)
    for name in (*KEY_FILES, "instance"):
        _give(settings.state_dir / name, gid, READ_MODE)


def _give(path: Path, gid: int, mode: int) -> None:
    """To root and that group. Never through a link: the group may write in the folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return      # -wal and -shm come and go
    try:
        os.fchown(descriptor, 0, gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _probe(account: Account) -> str | None:
    """Why it does not work as that account; None = it does."""
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], user=account.uid, group=account.gid, extra_groups=[], cwd="/",
            env={**os.environ, "HOME": "/"}, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"the account {NAME} cannot run {sys.executable}: {error}"
    if probe.returncode == 0:
        return None
    return f"the account {NAME} cannot run the code: {(probe.stderr.strip().splitlines() or ['no reason given'])[-1]}"
