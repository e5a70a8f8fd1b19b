"""The history of the house for administrators: looked through by address, and taken along as CSV or JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from flask import Blueprint, Response, render_template, request, stream_with_context
from werkzeug.exceptions import NotFound

from webapp.errors import N_, InvalidInput
from webapp.store.reads import audit as reads
from webapp.store.reads.audit import EventRow, Wanted
from webapp.web.auth import admins_only
from webapp.web.context import reading
from webapp.web.forms import Form

blueprint = Blueprint("audit", __name__)
FILTERS = ("actor", "action", "object", "since", "until")
COLUMNS = ("id", "at", "actor", "address", "action", "object_type", "object_id", "details")
TYPES = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
MOST_SHOWN = 120    # characters of one fact
# What a spreadsheet would take for a formula (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@blueprint.get("/house/audit")
@admins_only
def audit() -> tuple[str, int] | str:
    form = Form.half_filled(*FILTERS)
    try:
        wanted = _wanted(form)
    except InvalidInput as error:
        return _page(form.refused(error), reads.Page((), None)), error.status
    with reading() as db:
        return _page(form, reads.page(db, wanted, before=_before()))


@blueprint.get("/house/audit/export.<kind>")
@admins_only
def export(kind: str) -> Response:
    """All that the same filters leave, in steps. `kind`: csv | jsonl."""
    if kind not in TYPES:
        raise NotFound()
    wanted = _wanted(Form.half_filled(*FILTERS))
    lines = (_csv if kind == "csv" else _json_lines)(_every(wanted))
    response = Response(stream_with_context(lines), mimetype=TYPES[kind])
    response.headers["Content-Disposition"] = f"attachment; filename=audit.{kind}"
    return response


def facts(details: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value, as a line each."""
    return [(name, _short(value)) for name, value in sorted(details.items()) if value is not None]


def _page(form: Form, page: reads.Page) -> str:
    here = {name: value for name, value in form.values.items() if value}
    return render_template("house/audit.html", form=form, page=page, facts=facts, here=here,
                           is_first="before" not in request.args)


def _wanted(form: Form) -> Wanted:
    """Raises InvalidInput: a day that is none."""
    since, until = _day(form["since"], "since"), _day(form["until"], "until")
    return Wanted(
        actor=form["actor"].strip()[:64], action=form["action"].strip()[:64], object_id=form["object"].strip()[:64],
        since=since, until=until and until + timedelta(days=1))


def _day(text: str, field: str) -> datetime | None:
    try:
        return datetime.combine(date.fromisoformat(text.strip()), time(), UTC) if text.strip() else None
    except (ValueError, OverflowError):
        raise InvalidInput.of(field, N_("“%(given)s” is no day. Write it as 2026-11-24."), given=text[:40]) from None


def _before() -> int | None:
    text = request.args.get("before", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _every(wanted: Wanted) -> Iterator[EventRow]:
    before: int | None = None
    while True:
        with reading() as db:
            rows = reads.step(db, wanted, before=before)
        if not rows:
            return
        yield from rows
        before = rows[-1].id


def _json_lines(rows: Iterable[EventRow]) -> Iterator[str]:
    for row in rows:
        yield json.dumps({name: _plain(getattr(row, name)) for name in COLUMNS}, ensure_ascii=False) + "\n"


def _csv(rows: Iterable[EventRow]) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(_plain(getattr(row, name))) for name in COLUMNS])
        yield line.getvalue()
        line.seek(0)
        line.truncate()
    yield line.getvalue()


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _cell(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
