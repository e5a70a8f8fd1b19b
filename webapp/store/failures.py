"""What a database can do to a transaction, told apart by what is to be done about it."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from webapp.errors import N_, AppError

_LOST_A_RACE = frozenset({"40001", "40P01"})    # serialization_failure, deadlock_detected
_OF_A_STATEMENT = sqlite3.SQLITE_ERROR          # "no such column": a bug, and no trouble of the database


class CommitUnknown(AppError):
    """PostgreSQL went away in the middle of a commit and did not come back in time to be asked."""

    code, status = "commit_unknown", 503
    title = N_("The database went away while this was being written, so nobody knows whether it was. "
               "Look before you ask for it again.")


def may_be_tried_again(error: Exception) -> bool:
    """Nothing of the transaction is there, and the same once more may well succeed: it lost a dead-lock, or its
    connection broke before its commit. What broke in the commit was looked up (postgresql.py).
    """
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _LOST_A_RACE


def is_unavailable(error: Exception) -> bool:
    """The database is away, full, locked or overcrowded. False: a bug, or none of its business."""
    if isinstance(error, (PoolTimeout, CommitUnknown)):
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    return error.connection_invalidated or (isinstance(error, OperationalError) and code != _OF_A_STATEMENT)
