"""Which revision of the tables this code is written for, and the refusal of any other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from webapp.errors import N_, AppError

PACKAGE = Path(__file__).resolve().parent.parent
_REVISION = re.compile(r"""^revision\b[^=]*=\s*["'](\w+)["']""", re.MULTILINE)
_PARENT = re.compile(r"""^down_revision\b[^=]*=\s*["'](\w+)["']""", re.MULTILINE)


class OtherVersion(AppError):
    """The tables are those of another Berth. Whoever meets this writes nothing any more."""

    code, status = "other_version", 503


class DatabaseBehind(OtherVersion):
    """The code expects tables that are not there yet."""

    code = "database_behind"
    title = N_("The database is older than this Berth (%(found)s, wanted %(wanted)s). Run: berth migrate")


class DatabaseAhead(OtherVersion):
    """A newer Berth changed the tables; this one could write what the newer cannot read."""

    code = "database_ahead"
    title = N_("The database was upgraded by a newer Berth (%(found)s, which this one does not know). "
               "Start that version again, or restore the backup made before the upgrade.")


@dataclass(frozen=True, slots=True)
class Revisions:
    """All that a folder of migrations knows, and the one that nothing follows."""

    known: frozenset[str]
    head: str | None

    def check(self, found: str | None) -> None:
        """`found`: what a database says it has; None = no tables at all. Raises DatabaseAhead, DatabaseBehind."""
        if found is not None and found not in self.known:
            raise DatabaseAhead(found=found)
        if found != self.head:
            raise DatabaseBehind(found=found or "empty", wanted=self.head)


def migrations_folder() -> Path:
    """Inside the package in a wheel, beside it in a checkout."""
    inside = PACKAGE / "migrations"
    return inside if inside.is_dir() else PACKAGE.parent / "migrations"


@cache
def own() -> Revisions:
    """As they were when this process asked first: newer files that are put there later are not of its code."""
    return read(migrations_folder())


def read(folder: Path) -> Revisions:
    """Without Alembic, which every process would have to keep in memory."""
    sources = [path.read_text("utf-8") for path in sorted((folder / "versions").glob("*.py"))]
    known = {match[1] for source in sources if (match := _REVISION.search(source))}
    parents = {match[1] for source in sources if (match := _PARENT.search(source))}
    heads = known - parents
    if len(heads) > 1:
        raise RuntimeError(f"migrations must form one line, but they end in {sorted(heads)}")
    return Revisions(frozenset(known), heads.pop() if heads else None)
