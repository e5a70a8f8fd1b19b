"""Tables for people, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table

WIDTH_OF_NO_TERMINAL = 200  # columns; a pipe has no width, and cut cells are of no use there

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON document, for scripts.")(command)


def console() -> Console:
    probe = Console(highlight=False)
    return probe if probe.is_terminal else Console(highlight=False, width=WIDTH_OF_NO_TERMINAL)


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str = "Nothing yet.") -> None:
    """All rows have the same keys; they are the JSON's fields and the table's headings.

    Args:    empty: said instead of an empty table.
    """
    if as_json:
        print(json.dumps([dict(row) for row in rows], default=_plain, ensure_ascii=False, indent=1))
        return
    if not rows:
        print(empty)
        return
    table = Table(*(key.replace("_", " ") for key in rows[0]), box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    console().print(table)


def show_document(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, default=_plain, ensure_ascii=False, indent=1))


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list, set, frozenset)):
        return ", ".join(map(str, value)) or "—"
    return f"{value:%Y-%m-%d %H:%M} UTC" if isinstance(value, datetime) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
