"""Which secrets in the database are sealed with which key. Columns are found by their type, so none is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, String, delete, select, type_coerce, update
from sqlalchemy.orm import Session

from webapp.services.rows import change
from webapp.store.sealing import MARK, Sealed
from webapp.store.tables import Base, WorkspaceSecret

PLAIN = ""      # in place of a key's id: written by an older Berth


def keys_in_use(session: Session) -> Counter[str]:
    """Id of the key → texts that are sealed with it; PLAIN → those that are not sealed."""
    return Counter(_key_of(text) for column in sealed_columns() for _, text in _texts(session, column))


def reseal(session: Session, *, known: Sequence[str]) -> int:
    """Everything with the first of these keys, but for what none of them opens. How many texts were written anew.

    Who changes one at the same moment has sealed it anyway.
    """
    written = 0
    for column in sealed_columns():
        for row, text in _texts(session, column):
            if _key_of(text) in (PLAIN, *known[1:]):
                same = (_key(column) == row, _raw(column) == text)
                opened = session.scalar(select(column).where(*same))
                if opened is not None:
                    written += change(session, update(column.table).where(*same).values({column: opened}))
    return written


def forget(session: Session, *, known: Sequence[str]) -> int:
    """Secrets of workspaces that none of these keys opens; the agent reads them back from their volumes."""
    lost = {row for column in sealed_columns() if column.table is WorkspaceSecret.__table__
            for row, text in _texts(session, column) if _key_of(text) not in (PLAIN, *known)}
    session.execute(delete(WorkspaceSecret).where(WorkspaceSecret.workspace_id.in_(lost)))
    return len(lost)


def sealed_columns() -> Iterator[Column[Any]]:
    for table in Base.metadata.sorted_tables:
        yield from (column for column in table.columns if isinstance(column.type, Sealed))


def _texts(session: Session, column: Column[Any]) -> list[tuple[str, str]]:
    """(primary key, text as it is stored)."""
    rows = session.execute(select(_key(column), _raw(column)).where(_raw(column).is_not(None)).order_by(_key(column)))
    return [(row, text) for row, text in rows]


def _key(column: Column[Any]) -> Column[Any]:
    (key,) = column.table.primary_key.columns
    return key


def _raw(column: Column[Any]) -> ColumnElement[str]:
    return type_coerce(column, String())


def _key_of(text: str) -> str:
    return text.removeprefix(MARK).partition(":")[0] if text.startswith(MARK) else PLAIN
