"""`berth hold`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from sqlalchemy.orm import Session

from webapp.cli.house import ACTOR, now, open_house
from webapp.cli.output import json_option, show, show_document
from webapp.domain import hold as rules
from webapp.domain import hold_words
from webapp.domain.hold import Decision
from webapp.domain.hold_errors import NoFinding
from webapp.errors import InvalidInput
from webapp.services import hold, hold_origin
from webapp.services.hold_release import release as end
from webapp.store.reads import hold as reads
from webapp.store.reads.hold import FindingRow, Hold


@click.group(name="hold", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """After a restore: what differs between the database and what runs. On hold the agent only looks.

    Without a command it shows. Each difference is decided on, then the hold ends: adopt takes over what is there, keep
    goes by the database, forget lets it go.
    """
    if ctx.invoked_subcommand is not None:
        return
    with open_house() as house, house.store.read() as session:
        on = reads.current(session)
        rows = [_row(session, found) for found in reads.findings(session)] if on else []
    if as_json:
        show_document({"on_hold": on is not None, "since": on and on.since, "why": on and on.why,
                       "backup_made_at": on and on.made_at, "findings": rows})
    elif on is None:
        print("Berth is not on hold.")
    else:
        _tell(on, rows)


@command.command(name="on")
@click.option("--why", required=True, help="What everybody reads while it lasts.")
def on_(why: str) -> None:
    """Put Berth on hold: from now on the agent takes nothing up."""
    with open_house() as house, house.store.write() as session:
        hold.put_on(session, ACTOR, why=why, now=now())
    print("Berth is on hold. See what differs: berth hold")


@command.command()
@click.argument("workspace")
@click.argument("decision", type=click.Choice([str(each) for each in Decision]))
def decide(workspace: str, decision: str) -> None:
    """Decide about one difference: its WORKSPACE is a name, owner/name, or an id. Nothing happens before the end."""
    with open_house() as house, house.store.write() as session:
        found = _pick(reads.findings(session), workspace)
        hold.decide(session, ACTOR, found.workspace_id, decision, seen=found.mark, now=now())
    print(f"{found.name}: {hold_words.consequence(found.kind, decision, found.facts)}")


@command.command()
@click.option("--keep-rest", is_flag=True, help="Go by the database where nothing is decided; leave unknown containers "
              "alone.")
def release(keep_rest: bool) -> None:
    """End the hold: all decisions at once, or none if two do not go together."""
    with open_house() as house, house.store.write() as session:
        count = end(session, ACTOR, keep_rest=keep_rest, now=now())
    print(f"The hold is over, differences decided on: {count}. The agent goes on.")


def _row(session: Session, found: FindingRow) -> dict[str, Any]:
    truth, refusal = rules.truth_in(found.facts), hold_origin.refusal(session, found.kind, found.facts)
    choices = [each for each in rules.choices(found.kind, found.facts) if each != Decision.ADOPT or refusal is None]
    return {
        "workspace": found.name,
        "owner": found.owner,
        "host": found.host_name,
        "id": found.workspace_id,
        "kind": str(found.kind),
        "container": truth.container_name if truth else None,
        "state": truth.state if truth else None,
        "since": truth.since if truth else None,
        "gpus": truth.gpus if truth else [],
        "ports": dict(truth.ports) if truth else {},
        "differs": list(found.facts["differs"]),
        "choices": {str(each): hold_words.consequence(found.kind, each, found.facts) for each in choices},
        "why_not_adopt": refusal if Decision.ADOPT in rules.choices(found.kind, found.facts) else None,
        "decision": found.decision and str(found.decision),
        "decided_before": found.decided_before and str(found.decided_before),
    }


def _tell(on: Hold, rows: Sequence[dict[str, Any]]) -> None:
    made = f", of a backup made {on.made_at:%Y-%m-%d %H:%M} UTC" if on.made_at else ""
    why = "after a restore" if on.why == hold.RESTORE else on.why
    print(f"On hold since {on.since:%Y-%m-%d %H:%M} UTC: {why}{made}.")
    if not on.looks:
        print("No agent has looked yet: berth up")
        return
    show([{
        "workspace": row["workspace"], "owner": row["owner"], "what": hold_words.title(row["kind"]),
        "choices": ", ".join(row["choices"]), "decision": _decided(row),
    } for row in rows], as_json=False, empty="Nothing differs. End it: berth hold release")


def _decided(row: dict[str, Any]) -> str | None:
    if row["decision"] is None and row["decided_before"]:
        return f"changed since “{row['decided_before']}” was decided"
    return row["decision"] and str(row["decision"])


def _pick(rows: Sequence[FindingRow], name: str) -> FindingRow:
    """Raises NoFinding; InvalidInput: two have that name."""
    found = [row for row in rows if name in (row.workspace_id, row.name, f"{row.owner}/{row.name}")]
    if not found:
        raise NoFinding(name=name)
    if len(found) > 1:
        which = ", ".join(f"{row.owner}/{row.name}" if row.owner else row.workspace_id for row in found)
        raise InvalidInput.of("workspace", "“%(given)s” may be each of these: %(which)s. Name one.", given=name,
                              which=which)
    return found[0]
