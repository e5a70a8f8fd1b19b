"""CSV of `--query-gpu` and `--query-compute-apps`: with or without header and units. nvidia-smi quotes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webapp.domain.gpu import Process
from webapp.gpus.parse import cells
from webapp.gpus.parse.facts import CardFacts, fault_words, first_power, shares_memory, wanted_recovery
from webapp.gpus.parse.failures import is_failure

_COLUMN = re.compile(r"([a-z][A-Za-z0-9_.]*)(?: \[[^\[\]]{1,10}\])?")    # memory.used [MiB]
_PROCESS_NAME = ("process_name", "name")


@dataclass(frozen=True, slots=True)
class Rows:
    """`header`: the columns as printed, or as asked for; `rows`: field (without its unit) → cell."""

    header: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    stray: tuple[str, ...]          # lines that are no rows: failures of single cards, messages, cut ends


@dataclass(frozen=True, slots=True)
class GpuRows:
    header: tuple[str, ...]
    cards: tuple[CardFacts, ...]
    stray: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppRow:
    """One process on one card; on two cards it has two rows."""

    gpu_uuid: str | None
    process: Process


@dataclass(frozen=True, slots=True)
class AppRows:
    header: tuple[str, ...]
    apps: tuple[AppRow, ...]
    stray: tuple[str, ...]


def read_rows(output: str, fields: Sequence[str] | None = None, *, free_text: Sequence[str] = ()) -> Rows:
    """Rows of a CSV.

    Args:  fields: what was asked for with noheader; None = the first line that can be one is the header.
           free_text: names of the field whose cells people write: commas are allowed, and nothing in them is a message.
    """
    header = tuple(fields or ())
    rows: list[Mapping[str, str]] = []
    stray: list[str] = []
    for line in output.split("\n"):
        line = line.strip("\r")
        if not line.strip():
            continue
        found = [] if not free_text and is_failure(line) else _cells(line, header, free_text)
        if found and _fields(found) == _fields(header):
            continue                                # a header where none was asked for, or once more
        if found and len(found) == len(header):
            rows.append(dict(zip(_fields(header), found, strict=True)))
        elif found and not header and all(map(_COLUMN.fullmatch, found)):
            header = tuple(found)
        else:
            stray.append(line.strip())
    return Rows(header, tuple(rows), tuple(stray))


def read_gpu_rows(output: str, fields: Sequence[str] | None = None) -> GpuRows:
    """Cards of `--query-gpu`, whatever was asked for."""
    read = read_rows(output, fields)
    return GpuRows(read.header, tuple(map(_card, read.rows)), read.stray)


def read_app_rows(output: str, fields: Sequence[str] | None = None) -> AppRows:
    """Processes of `--query-compute-apps`. Rows whose pid cannot be one are left out (promises.md 5)."""
    read = read_rows(output, fields, free_text=_PROCESS_NAME)
    return AppRows(read.header, tuple(filter(None, map(_app, read.rows))), read.stray)


def _fields(header: Sequence[str]) -> tuple[str, ...]:
    """Columns without their units: a cell that is no column stays as it is."""
    return tuple(match[1] if (match := _COLUMN.fullmatch(column)) else column for column in header)


def _cells(line: str, header: Sequence[str], free_text: Sequence[str]) -> list[str]:
    found = [cell.strip() for cell in line.split(",")]
    free = next((place for place, field in enumerate(_fields(header)) if field in free_text), None)
    if free is None or len(found) <= len(header):
        return found
    after = len(header) - free - 1
    parts = line.split(",")
    end = len(parts) - after
    return [*found[:free], ",".join(parts[free:end]).strip(), *found[end:]]


def _card(row: Mapping[str, str]) -> CardFacts:
    draw, average, instant = (cells.watts(row.get(f"power.draw{kind}")) for kind in ("", ".average", ".instant"))
    lost, reset = fault_words(row.values())
    mode = cells.mig_mode(row.get("mig.mode.current"))
    total = row.get("memory.total")
    return CardFacts(
        index=cells.whole(row.get("index")),
        uuid=cells.text(row.get("uuid", row.get("gpu_uuid"))),
        name=cells.text(row.get("name", row.get("gpu_name"))),
        pci_bus_id=cells.text(row.get("pci.bus_id", row.get("gpu_bus_id"))),
        driver_version=cells.text(row.get("driver_version")),
        memory_total_bytes=cells.memory_bytes(total),
        memory_used_bytes=cells.memory_bytes(row.get("memory.used")),
        utilization_percent=cells.percent(row.get("utilization.gpu")),
        temperature_celsius=cells.celsius(row.get("temperature.gpu")),
        power_watts=first_power(draw, average, instant), power_average_watts=average, power_instant_watts=instant,
        fan_percent=cells.percent(row.get("fan.speed"), most=1000),
        mig_mode=mode, compute_mode=cells.text(row.get("compute_mode")),
        shares_host_memory=shares_memory(total, mode),
        lost=lost,
        reset=reset or wanted_recovery(row.get("gpu_recovery_action"), row.get("reset_status.reset_required")),
        unread=cells.word(total) == "unknown error" or None)


def _app(row: Mapping[str, str]) -> AppRow | None:
    pid = cells.pid(row.get("pid"))
    if pid is None:
        return None
    name = next((row[field] for field in _PROCESS_NAME if field in row), None)
    used = row.get("used_gpu_memory", row.get("used_memory"))
    return AppRow(cells.text(row.get("gpu_uuid")), Process(pid, cells.name(name), cells.memory_bytes(used)))
