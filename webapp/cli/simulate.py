"""`berth simulate`: what the simulated GPUs of this machine do. Everything that it prints says "simulated"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from webapp.cli.output import json_option, show_document
from webapp.cli.output import show as show_rows
from webapp.domain.sizes import MIB, parse_size
from webapp.errors import InvalidInput
from webapp.settings import load_settings
from webapp.simulation import presets, state
from webapp.simulation.install import STATE_FOLDER, STATE_NAME, state_file_in

HOST = "host"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _file_option(command: _Command) -> _Command:
    return click.option("--file", type=click.Path(path_type=Path, dir_okay=False),
                        help=f"The state file; default {STATE_FOLDER}/{STATE_NAME} in the state folder.")(command)


@click.group(name="simulate")
def command() -> None:
    """Simulated GPUs for demos and tests: init, show, load, fault, heal.

    Nothing here touches a real GPU. CARD is a number, a UUID or the beginning of one.
    """


@command.command()
@click.option("--preset", type=click.Choice(sorted(presets.PRESETS)), default="four", show_default=True,
              help="Which cards.")
@click.option("--seed", default="berth", show_default=True, help="Another seed gives other UUIDs.")
@click.option("--replace", is_flag=True, help="Also where there is one already.")
@_file_option
def init(preset: str, seed: str, replace: bool, file: Path | None) -> None:
    """Make a simulated host."""
    path = _path(file)
    simulation = presets.preset(preset, seed)
    state.create(path, simulation, replace=replace)
    print(f"simulated host with {len(simulation.cards)} simulated GPUs in {path}")


@command.command()
@json_option
@_file_option
def show(as_json: bool, file: Path | None) -> None:
    """Show the simulated cards, their loads and faults."""
    path = _path(file)
    simulation = state.read(path)
    rows = [_row(number, card) for number, card in enumerate(simulation.cards)]
    host = simulation.host
    if as_json:
        show_document({"simulated": True, "file": path, "driver": host.driver, "cuda": host.cuda, "fault": host.fault,
                       "cards": rows})
        return
    print(f"simulated host, driver {host.driver}, CUDA {host.cuda}: {host.fault or 'no fault'} ({path})")
    show_rows(rows, as_json=False, empty="No simulated cards.")


@command.command()
@click.argument("card")
@click.option("--util", "utilization", type=click.IntRange(0, 100), help="Percent; power, heat and clocks follow.")
@click.option("--memory", help="In use, for example 40GiB; 0 for none.")
@click.option("--process", "name", help="A program that holds this memory.")
@click.option("--pid", type=click.IntRange(1, 2**22), help="Its process id; made up if absent.")
@_file_option
def load(card: str, utilization: int | None, memory: str | None, name: str | None, pid: int | None, file: Path | None
         ) -> None:
    """Put a load on a simulated card."""
    with state.changed(_path(file)) as simulation:
        found = simulation.card(card)
        memory_mib = _mib(memory, found)
        presets.put_load(found, utilization_percent=utilization, memory_mib=memory_mib)
        if name:
            presets.put_process(found, name, memory_mib=memory_mib, pid=pid)
        told = f"{found.utilization_percent} %, {found.used_mib} MiB, {len(found.processes)} processes"
    print(f"simulated {found.uuid}: {told}".replace("None", "—"))


@command.command()
@click.argument("card")
@click.argument("kind")
@_file_option
def fault(card: str, kind: str, file: Path | None) -> None:
    """Let a simulated CARD, or the whole “host”, fail. KIND “list” shows what there is."""
    kinds = state.HOST_FAULTS if card == HOST else state.CARD_FAULTS
    if kind == "list":
        show_rows([{"simulated_fault": name, "what_shows": what} for name, what in kinds.items()], as_json=False)
        return
    if kind not in kinds:
        raise InvalidInput.of("kind", "“%(given)s” is no fault of a simulated %(what)s. There are: %(kinds)s.",
                              given=kind, what=HOST if card == HOST else "card", kinds=", ".join(kinds))
    with state.changed(_path(file)) as simulation:
        target = simulation.host if card == HOST else simulation.card(card)
        target.fault = kind
    print(f"simulated {getattr(target, 'uuid', HOST)}: {kind} ({kinds[kind]})")


@command.command()
@click.argument("card", required=False)
@_file_option
def heal(card: str | None, file: Path | None) -> None:
    """End the fault of a simulated CARD or of the “host”; of everything if neither is named. Loads stay."""
    with state.changed(_path(file)) as simulation:
        healed: list[state.Host | state.Card]
        if card is None:
            healed = [simulation.host, *simulation.cards]
        else:
            healed = [simulation.host if card == HOST else simulation.card(card)]
        for target in healed:
            target.fault = None
    print(f"simulated {card or 'host and all cards'}: healthy again")


def _path(file: Path | None) -> Path:
    return file.absolute() if file else state_file_in(load_settings().state_dir)


def _mib(memory: str | None, card: state.Card) -> int | None:
    """Raises: InvalidInput: no size, or more than the card has."""
    if memory is None:
        return None
    if memory.strip("0") == "":
        return 0
    most = None if card.memory_mib is None else card.memory_mib * MIB
    return parse_size(memory, field="memory", minimum=MIB, maximum=most) // MIB


def _row(number: int, card: state.Card) -> dict[str, Any]:
    return {"number": number, "simulated_card": card.name, "uuid": card.uuid, "memory_mib": card.memory_mib,
            "used_mib": card.used_mib, "utilization_percent": card.utilization_percent, "mig": card.mig_mode,
            "processes": [process.name for process in card.processes], "fault": card.fault}
