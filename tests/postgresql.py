"""A PostgreSQL server of the tests' own, from Debian's package: a scratch folder, a Unix socket, no network.

`python tests/postgresql.py start RUN` prints its address, `stop RUN` ends it; RUN is the process id of the test run.
Servers of runs that were killed are ended by the next start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path("/var/tmp")     # a path to a socket has at most 107 characters
NAME = "berth-test-postgresql-"
ACCOUNT = "postgres"        # the server refuses to run as root
ROLE = "berth"
# Nothing of a test outlives it, so nothing waits for the disk. A time zone and an alphabet that would show in an answer
# where somebody forgot that servers have them.
OPTIONS = {
    "listen_addresses": "", "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
    "autovacuum": "off", "max_connections": "200", "timezone": "Asia/Kolkata", "log_min_messages": "warning",
    "log_lock_waits": "off", "deadlock_timeout": "200ms",
}


class Server:
    """One cluster in one folder. The role may make databases and is no superuser."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"

    @classmethod
    def create(cls, name: str, **options: str) -> Server:
        """`options`: what its configuration has besides, or instead."""
        server = cls(ROOT / f"{NAME}{name}")
        shutil.rmtree(server.folder, ignore_errors=True)
        server.folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(server.folder, ACCOUNT, ACCOUNT)
        server._run("initdb", "-D", "data", "-U", "admin", "--auth=trust", "--no-sync", "-E", "UTF8",
                    "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en")
        settings = "".join(f"{key} = '{value}'\n" for key, value in {**OPTIONS, **options}.items())
        with (server.folder / "data/postgresql.conf").open("a") as out:
            out.write(f"{settings}unix_socket_directories = '{server.folder}'\n")
        server.start()
        server._run("psql", "-h", str(server.folder), "-U", "admin", "-qc", f"CREATE ROLE {ROLE} LOGIN CREATEDB",
                    "postgres")
        return server

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://{ROLE}@/{database}?host={self.folder}"

    def start(self) -> None:
        self._run("pg_ctl", "start", "-w", "-s", "-D", "data", "-l", "log")

    def stop(self, mode: str = "fast") -> None:
        """`immediate`: as if it were killed; the next start recovers."""
        self._run("pg_ctl", "stop", "-w", "-s", "-D", "data", "-m", mode)

    def remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        who: dict[str, Any] = {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run([str(programs() / program), *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, **who)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            done.check_returncode()


def programs() -> Path:
    """The newest server that is installed; Debian keeps its programs out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    elsewhere = shutil.which("initdb")
    if elsewhere is None:
        raise SystemExit("PostgreSQL is not installed here: apt-get install postgresql")
    return Path(elsewhere).resolve().parent


def sweep() -> None:
    for folder in ROOT.glob(f"{NAME}*"):
        run = folder.name.removeprefix(NAME).partition("-")[0]
        if not (run.isdigit() and Path("/proc", run).exists()):
            Server(folder).remove()


def main(verb: str, run: str) -> None:
    if verb == "start":
        sweep()
        print(Server.create(run).url())
    else:
        Server(ROOT / f"{NAME}{run}").remove()


if __name__ == "__main__":
    main(*sys.argv[1:])
