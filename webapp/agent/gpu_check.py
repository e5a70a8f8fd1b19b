"""Are the cards inside a workspace the ones that it holds? Asked of the engine, then of nvidia-smi inside."""

from __future__ import annotations

from collections.abc import Iterable

from webapp.agent.desk import Desk, Failed
from webapp.domain.gpu import Condition
from webapp.domain.reasons import Reason
from webapp.errors import GpusRefused
from webapp.gpus.parse.facts import CardFacts
from webapp.gpus.parse.listing import read_listing
from webapp.gpus.query import LIST
from webapp.store.reads.agent import CardHeld, WorkspaceInFull

LOOK_SECONDS = 20.0         # nvidia-smi inside; without persistence mode it takes seconds
TRIES = 12                  # of a start whose cards are not there yet: eight minutes, for a driver that comes late


def refuse_start(desk: Desk) -> None:
    """Before a start. Raises Failed: its cards are not as they should be."""
    workspace = desk.workspace
    if workspace.gpu_count == 0:
        return
    if len(workspace.cards) != workspace.gpu_count:
        raise Failed(Reason("gpus_not_held", {"wanted": workspace.gpu_count, "held": len(workspace.cards)}))
    if not desk.context.cards.await_first_look():
        raise Failed(Reason("gpus_not_read", {"host": desk.context.host_name}), retry=True, tries=TRIES)
    desk.reload()               # what that look has shown
    if reason := _fault(desk.workspace):
        desk.context.cards.look_again.set()     # it may be well by the next try
        raise Failed(reason, retry=True, tries=TRIES)


def as_failed(desk: Desk, error: GpusRefused) -> Failed:
    """The toolkit said no: its driver may be late, or a card is gone and the next look will show it."""
    desk.context.cards.look_again.set()
    return Failed(Reason(error.code, {"host": desk.context.host_name, **error.facts}), retry=True, tries=TRIES)


def check_inside(desk: Desk, name: str) -> None:
    """In a running container. Raises Failed when it has other cards than it should; it is stopped then."""
    held = {card.uuid for card in desk.workspace.cards}
    if not held:
        return
    detail = desk.engine.inspect(name)
    if detail is None or not detail.container.is_up:
        return                  # the next plan sees to it
    if set(detail.gpus) != held:
        raise Failed(_differ(desk, detail.gpus))
    answer = desk.engine.exec(name, LIST, deadline_seconds=LOOK_SECONDS)
    seen = read_listing(answer.output)
    shown = {uuid for card in seen.cards for uuid in _usable(card)}
    if not shown:               # of "No devices were found" the exit code is 0 with some drivers (promises.md 13)
        lines = answer.output.strip().splitlines()
        said = lines[0][:200] if lines else f"exit code {answer.exit_code}"
        raise Failed(Reason("gpus_unseen", {"detail": said}), retry=True)
    if shown != held:           # one that is missing may have fallen off a moment ago: the next look tells
        desk.context.cards.look_again.set()
        raise Failed(_differ(desk, sorted(uuid or "?" for uuid in shown)), retry=shown < held)


def _usable(card: CardFacts) -> Iterable[str | None]:
    """Of a card in MIG mode its slices, which alone can be used."""
    return [part.uuid for part in card.mig_slices or ()] or [card.uuid]


def _differ(desk: Desk, seen: Iterable[str]) -> Reason:
    held = ", ".join(card.uuid for card in desk.workspace.cards)
    return Reason("gpus_differ", {"held": held, "seen": ", ".join(seen) or "—"})


def fault(card: CardHeld) -> Reason:
    """What is wrong with a card that is not well."""
    if card.fault is None:
        return Reason(f"gpu_{Condition.FAULTY}", {"gpu": card.label})
    return Reason(card.fault["code"], card.fault.get("facts") or {})


def _fault(workspace: WorkspaceInFull) -> Reason | None:
    ill = next((card for card in workspace.cards if not card.is_well), None)
    return None if ill is None else fault(ill)
