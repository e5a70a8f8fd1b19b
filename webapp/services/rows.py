"""Guarded changes: a condition in the statement, and the number of rows says whether it held."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import CursorResult, Delete, Update
from sqlalchemy.orm import Session


def change(session: Session, statement: Update | Delete) -> int:
    """How many rows it changed."""
    return cast(CursorResult[Any], session.execute(statement)).rowcount
