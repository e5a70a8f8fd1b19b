"""--query-gpu and --query-compute-apps: lines of comma-separated values, and the help that names their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .facts import facts_of, process_facts, tokens, value_of
from .reading import Refused
from .tables import APP_FIELDS, BAD_ARGUMENT, CONFUSED, FIELDS, LOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def each(state: dict[str, Any], cards: list[dict[str, Any]], show: Callable[[dict[str, Any], dict[str, str]], str]
          ) -> tuple[str, int]:
    """What `show` makes of each card and its facts; a lost one is a line in its place."""
    parts, code = [], 0
    for card in cards:
        if card["fault"] in ("lost", "lost-stops"):
            line = _lost(state, card)
            if card["fault"] == "lost-stops":
                raise Refused(LOST, line)
            parts.append(line)
            code = LOST
        else:
            parts.append(show(card, facts_of(state, card)))
    return "".join(parts), code


def _lost(state: dict[str, Any], card: dict[str, Any]) -> str:
    """The three wordings that drivers had one after the other."""
    bus_id, major = card["bus_id"][4:], int(state["host"]["driver"].partition(".")[0])
    named = f" {bus_id}" if major < 500 else bus_id if major < 560 else f"{card['index']}: {bus_id}"
    return (f"Unable to determine the device handle for GPU{named}: GPU is lost.  "
            "Reboot the system to recover this GPU\n")
def _columns(asked: str, table: str, unknown: Sequence[str]) -> list[tuple[str, str, str]]:
    """[(first name, unit, value)] for the names asked for. Raises: Refused: one that this driver does not know."""
    known = {name: (names[0], unit, value) for names, unit, value in tokens(table) for name in names}
    columns = []
    for name in (field.strip() for field in asked.split(",")):
        if name not in known or name in unknown:
            raise Refused(BAD_ARGUMENT, f'Field "{name}" is not a valid field to query.\n\n')
        columns.append(known[name])
    return columns


def _row(columns: list[tuple[str, str, str]], facts: dict[str, str], cells: dict[str, str], units: bool) -> str:
    row = []
    for name, unit, source in columns:
        value = value_of(source, facts)
        row.append(cells.get(name, f"{value} {unit}" if unit and units and not value.startswith("[") else value))
    return ", ".join(row) + "\n"


def _titles(columns: list[tuple[str, str, str]]) -> str:
    return ", ".join(f"{name} [{unit}]" if unit else name for name, unit, _ in columns) + "\n"


def _formats(options: dict[str, str]) -> list[str]:
    words = options.get("--format", "").split(",")
    if "csv" not in words:
        raise Refused(BAD_ARGUMENT, CONFUSED)
    return words


def query_gpu(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
               ) -> tuple[str, int]:
    columns, words = _columns(options["--query-gpu"], FIELDS, state["host"]["unknown_fields"]), _formats(options)
    rows, code = each(state, cards, lambda card, facts: _row(columns, facts, card["cells"], "nounits" not in words))
    return (_titles(columns) if header and "noheader" not in words else "") + rows, code


def query_apps(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
                ) -> tuple[str, int]:
    columns, words = _columns(options["--query-compute-apps"], APP_FIELDS, ()), _formats(options)

    def rows(card: dict[str, Any], facts: dict[str, str]) -> str:
        return "".join(_row(columns, {**facts, **process_facts(process, card["fault"])}, {}, "nounits" not in words)
                       for process in card["processes"] if "C" in process["kind"])
    text, code = each(state, cards, rows)
    return (_titles(columns) if header and "noheader" not in words else "") + text, code


def help_gpu(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
             ) -> tuple[str, int]:
    return _help("--query-gpu", FIELDS, state["host"]["unknown_fields"]), 0


def help_apps(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
              ) -> tuple[str, int]:
    return _help("--query-compute-apps", APP_FIELDS, ()), 0


def _help(switch: str, table: str, unknown: Sequence[str]) -> str:
    known = [" or ".join(f'"{name}"' for name in names if name not in unknown) for names, _, _ in tokens(table)]
    return "\n\n".join([f'List of valid properties to query for the switch "{switch}":',
                        *(f"{names}\nA property of a simulated card." for names in known if names)]) + "\n\n"
