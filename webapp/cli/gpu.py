"""`berth gpu`"""

from __future__ import annotations

from typing import Any

import click

from webapp.cli.house import open_house
from webapp.cli.output import json_option, show
from webapp.cli.reasons import sentence
from webapp.domain.sizes import show_size
from webapp.store.reads import house as reads
from webapp.store.reads.cards import CardRow


@click.group(name="gpu")
def command() -> None:
    """The cards of the hosts, as the agent saw them: list."""


@command.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """Show all cards: how they are, why one is not offered, who holds it since when."""
    with open_house() as house, house.store.read() as session:
        rows = [_row(host.name, card, as_json=as_json) for host in reads.hosts(session) for card in host.cards]
    show(rows, as_json=as_json, empty="No GPUs were seen. “berth doctor” says why.")


def _row(host: str, card: CardRow, *, as_json: bool) -> dict[str, Any]:
    """For scripts the size in bytes, for people one that can be read."""
    memory = None if card.memory_bytes is None else show_size(card.memory_bytes)
    return {
        "host": host,
        "index": card.index,
        "model": card.model,
        "uuid": card.uuid,
        **({"memory_bytes": card.memory_bytes} if as_json else {"memory": memory}),
        "condition": card.condition,
        "why_not_offered": sentence(card.refusal) if card.refusal else None,
        "holder": card.holder.username if card.holder else None,
        "held_since": card.holder.since if card.holder else None,
        "simulated": card.simulated,
    }
