"""What each difference is, and what each decision about it comes to, in a sentence. Message ids; facts fill them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webapp.domain.hold import Decision, Difference, FindingKind, Truth, truth_in
from webapp.domain.workspace import Desired
from webapp.errors import N_

TITLES: Mapping[FindingKind, str] = {
    FindingKind.CARDS: N_("Runs with GPUs that the database does not give it"),
    FindingKind.RUNS_BUT_STOPPED: N_("Runs, and should not by the database"),
    FindingKind.UNKNOWN_CONTAINER: N_("A container that the database does not know"),
    FindingKind.MOVED: N_("Is not as the database says"),
    FindingKind.DOWN_BUT_WANTED: N_("Is down, and should run by the database"),
    FindingKind.GONE: N_("Has no container any more"),
}
DECISIONS: Mapping[Decision, str] = {
    Decision.ADOPT: N_("Take over what is there"),
    Decision.KEEP: N_("Go by the database"),
    Decision.FORGET: N_("Let go"),
}
DIFFERENCES: Mapping[Difference, str] = {
    Difference.CONTAINER: N_("made anew since"),
    Difference.PORTS: N_("other ports"),
    Difference.GPUS: N_("other GPUs"),
    Difference.SHAPE: N_("other shared memory or volumes"),
    Difference.LIMITS: N_("other CPU or memory"),
}
_MADE_ANEW = frozenset({Difference.PORTS, Difference.GPUS, Difference.SHAPE})


def title(kind: str) -> str:
    return TITLES[FindingKind(kind)]


def consequence(kind: str, decision: str, facts: Mapping[str, Any]) -> str:
    """What will happen after the release, as a message id without places."""
    truth = truth_in(facts)
    match decision:
        case Decision.ADOPT:
            return _adopted(kind, truth)
        case Decision.KEEP:
            return _kept(kind, truth, facts)
        case _:
            return _forgotten(kind, truth)


def _adopted(kind: str, truth: Truth | None) -> str:
    is_up = truth is not None and truth.is_up
    if kind == FindingKind.UNKNOWN_CONTAINER:
        return N_("It becomes a workspace again, and goes on as it runs.") if is_up else N_(
            "It becomes a stopped workspace again; its owner can start it.")
    if is_up:
        return N_("It goes on as it runs. The database takes over its ports, GPUs, limits and volumes.")
    return N_("It stays stopped, and holds no GPUs; its owner can start it.")


def _kept(kind: str, truth: Truth | None, facts: Mapping[str, Any]) -> str:
    was, differs = facts.get("was") or {}, {Difference(each) for each in facts.get("differs") or ()}
    if kind == FindingKind.RUNS_BUT_STOPPED:
        return N_("It will be stopped and removed, as was asked for; home and volumes stay.") \
            if was.get("desired") == Desired.REMOVED else N_("It will be stopped. What is in it stays.")
    if kind == FindingKind.DOWN_BUT_WANTED:
        return N_("It will be started again.")
    if kind == FindingKind.GONE:
        return N_("It will be made anew and started. The home is there; what was installed outside of it is not.") \
            if was.get("is_to_run") else N_("It stays in the list as stopped; its next start makes a new container.")
    if truth is None or not truth.is_up:
        return N_("It stays stopped; its next start goes by the database.")
    if differs & _MADE_ANEW:
        return N_("It will be made anew as the database says. What is in it is kept; programs in it end.")
    if Difference.LIMITS in differs:
        return N_("It goes on, and gets the CPU and memory that the database says.")
    return N_("It goes on, and nothing in it changes.")


def _forgotten(kind: str, truth: Truth | None) -> str:
    if truth is None:
        return N_("It counts as removed: its ports and keys are given up. Home and volumes stay.")
    if truth.is_up:
        return N_("Berth leaves it alone and never touches it; its GPUs stay in use.") if truth.gpus else N_(
            "Berth leaves it alone and never touches it.")
    if kind == FindingKind.UNKNOWN_CONTAINER:
        return N_("Berth leaves it alone and never touches it.")
    return N_("It counts as removed: its ports are free. Its stopped container is left alone; home and volumes stay.")
