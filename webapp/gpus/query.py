"""Command lines for the nvidia-smi of one driver, and the whole inventory of a host.

An unknown field makes a whole query fail, with exit code 2 and the message on stdout. So which fields there are is
asked once (`--help-query-gpu`), fields are chosen from those in order of preference, and one that is refused all the
same is left out and the query repeated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from webapp.domain.gpu import NO_CARDS, Inventory, InventoryTrouble
from webapp.gpus.merge import MOST_MESSAGES, merge
from webapp.gpus.output import NoAnswer, Output, Run
from webapp.gpus.parse.failures import classify, device_failures, first_line, invalid_field
from webapp.gpus.parse.listing import Listing, read_listing
from webapp.gpus.parse.report import Report, read_report
from webapp.gpus.parse.rows import GpuRows, read_gpu_rows
from webapp.gpus.parse.topology import TopologyTable, read_topology

PROGRAM = "nvidia-smi"
HELP = (PROGRAM, "--help-query-gpu")
LIST = (PROGRAM, "-L")
REPORT = (PROGRAM, "-q", "-x")
TOPOLOGY = (PROGRAM, "topo", "-m")
APP_FIELDS = ("gpu_uuid", "pid", "used_gpu_memory", "process_name")     # the name last: it may have commas
_APPS = (PROGRAM, f"--query-compute-apps={','.join(APP_FIELDS)}", "--format=csv,noheader,nounits")

# Names of one fact, best first; the first that this driver knows is asked for.
Wanted = Sequence[Sequence[str]]
SAMPLE: Wanted = (
    ("timestamp",), ("count",), ("index",), ("uuid", "gpu_uuid"), ("utilization.gpu",), ("memory.used",),
    ("memory.total",), ("temperature.gpu",), ("power.draw",), ("power.draw.average",), ("power.draw.instant",),
    ("fan.speed",),
)
CARD: Wanted = (
    ("index",), ("uuid", "gpu_uuid"), ("name", "gpu_name"), ("pci.bus_id", "gpu_bus_id"), ("driver_version",),
    ("memory.total",), ("memory.used",), ("utilization.gpu",), ("temperature.gpu",), ("mig.mode.current",),
    ("compute_mode",), ("gpu_recovery_action", "reset_status.reset_required"),
)
# What every nvidia-smi since 2013 knows: asked for when it does not tell its fields.
OLDEST = frozenset({"timestamp", "count", "index", "uuid", "name", "pci.bus_id", "driver_version", "memory.total",
                    "memory.used", "utilization.gpu", "temperature.gpu", "power.draw", "fan.speed", "compute_mode"})
MOST_REFUSED = 6
CARD_UNREACHABLE = "card_unreachable"       # one card failed, and what there is beside it is not said
_ONE_CARD = {"gpu_lost": CARD_UNREACHABLE, "device_handle_unknown_error": CARD_UNREACHABLE}
_HELP_LINE = re.compile(r'^"([A-Za-z][\w.]{0,80})"((?: or "[A-Za-z][\w.]{0,80}")*)\s*$', re.MULTILINE)
_OR = re.compile(r'or "([^"]+)"')


def read_fields(help_output: str) -> frozenset[str]:
    """Fields named by `--help-query-gpu`: each in quotes at the beginning of a line, other names after `or`."""
    return frozenset(
        name for match in _HELP_LINE.finditer(help_output) for name in (match[1], *_OR.findall(match[2])))


def ask_fields(run: Run) -> frozenset[str]:
    """Fields that the host's nvidia-smi knows: to be asked once for each version of its driver."""
    known = read_fields(run(HELP).text)
    return known if {"index", "uuid"} <= known else OLDEST


def choose(wanted: Wanted, known: Collection[str]) -> tuple[str, ...]:
    chosen = (next((name for name in names if name in known), None) for names in wanted)
    return tuple(name for name in chosen if name)


def gpu_query(fields: Sequence[str], *, loop_ms: int | None = None) -> tuple[str, ...]:
    """Argument list of a query; with loop_ms it prints all cards again and again and never ends."""
    command = (PROGRAM, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return command if loop_ms is None else (*command, f"--loop-ms={loop_ms}")


def apps_query() -> tuple[str, ...]:
    return _APPS


def inventory(run: Run, *, known_fields: Collection[str] | None = None, host: str = "this host") -> Inventory:
    """All cards of a host.

    Args:  run: starts one command there and returns what came of it, within a deadline of its own; called for one
           command after the other (promises.md 16), three to six times, once on a host without a driver.
           known_fields: of an earlier ask_fields.   host: for sentences.
    """
    listed = run(LIST)
    listing = read_listing(listed.stdout)
    trouble = _trouble(listed, listing, host)
    if listed.no_answer or (trouble and not listing.cards and trouble.code != CARD_UNREACHABLE):
        return Inventory(trouble=trouble, messages=listing.stray[:MOST_MESSAGES])
    answers = _ask_more(run, known_fields, host)
    return merge(listing, answers.rows, answers.report, answers.topology, trouble=trouble or answers.trouble)


@dataclass(frozen=True, slots=True)
class _Answers:
    rows: GpuRows
    report: Report
    topology: TopologyTable
    trouble: InventoryTrouble | None


def _ask_more(run: Run, known_fields: Collection[str] | None, host: str) -> _Answers:
    fields = choose(CARD, known_fields if known_fields is not None else ask_fields(run))
    queried, fields = _query(run, fields)
    rows = read_gpu_rows(queried.stdout, fields)
    trouble = _trouble(queried, rows, host)
    if queried.no_answer is NoAnswer.LATE:                  # the driver hangs: more questions hang as well
        return _Answers(rows, read_report(""), read_topology(""), trouble)
    topology = read_topology(run(TOPOLOGY).stdout if len(rows.cards) > 1 else "")
    return _Answers(rows, read_report(run(REPORT).stdout), topology, trouble)


def _query(run: Run, fields: Sequence[str]) -> tuple[Output, tuple[str, ...]]:
    """The query without those fields that are refused, and the fields that are left."""
    fields = tuple(fields)
    for _ in range(MOST_REFUSED):
        output = run(gpu_query(fields))
        refused = invalid_field(output.text)
        if refused not in fields or len(fields) == 1:
            break
        fields = tuple(name for name in fields if name != refused)
    return output, fields


def _trouble(output: Output, read: Listing | GpuRows, host: str) -> InventoryTrouble | None:
    """Why an output has no cards, or perhaps not all.

    An exit code beside cards is a warning (14: a damaged infoROM), unless a card failed and nvidia-smi gave up there.
    """
    if output.no_answer:
        return _named(str(output.no_answer), output, host)
    if read.cards:
        gave_up = output.exit_code != 0 and device_failures(read.stray)
        return _named(CARD_UNREACHABLE, output, host, gave_up[0].detail) if gave_up else None
    code = classify(output.text, output.exit_code)
    if code is None and not output.text.strip() and output.exit_code == 0:
        code = NO_CARDS                 # some versions say nothing at all (promises.md 13)
    return _named(_ONE_CARD.get(code or "", code or "smi_unreadable"), output, host)


def _named(code: str, output: Output, host: str, detail: str = "") -> InventoryTrouble:
    detail = detail or first_line(output.text) or f"exit code {output.exit_code}"
    return InventoryTrouble(code, {"host": host, "detail": detail, "seconds": round(output.seconds)})
