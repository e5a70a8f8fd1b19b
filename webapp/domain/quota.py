"""How much somebody may have at once, and what a wish would add to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from webapp.errors import N_, FieldProblem, InvalidInput

Limit = int | None      # None = no limit


@dataclass(frozen=True, slots=True)
class Amounts:
    """`workspaces`: all that are there, stopped ones too; the rest: of those that run or are to run."""

    workspaces: int = 0
    cards: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(getattr(self, name) + getattr(other, name) for name in FIGURES))


@dataclass(frozen=True, slots=True)
class Quota:
    workspaces: Limit = None
    cards: Limit = None
    cpu_millis: Limit = None
    memory_bytes: Limit = None


FIGURES = tuple(field.name for field in fields(Amounts))


class QuotaExceeded(InvalidInput):
    """One problem for each figure that would be too much."""

    code, status = "quota_exceeded", 409
    title = N_("That is more than your quota allows.")


# Figure → the field of the form that it belongs to, and what is said; no field = of the form as a whole.
_SAID = {
    "workspaces": ("", N_("%(limit)d workspaces are allowed, and %(used)d are there, stopped ones too. Remove one that "
                          "you no longer need.")),
    "cards": ("gpus", N_("%(limit)d GPUs are allowed at once, %(used)d are in use, and %(asked)d more were asked for. "
                         "Stop a workspace, or ask for fewer.")),
    "cpu_millis": ("cpus", N_("%(limit)s CPUs are allowed at once, %(used)s are in use, and %(asked)s more were asked "
                              "for. Stop a workspace, or ask for less.")),
    "memory_bytes": ("memory", N_("%(limit)s of memory are allowed at once, %(used)s are in use, and %(asked)s more "
                                  "were asked for. Stop a workspace, or ask for less.")),
}


def refuse_excess(quota: Quota, used: Amounts, asked: Amounts) -> None:
    """Only what is asked for is refused, not that too much is used already. Raises QuotaExceeded."""
    problems = tuple(_problems(quota, used, asked))
    if problems:
        raise QuotaExceeded(*problems)


def is_over(quota: Quota, used: Amounts) -> str | None:
    """The first figure of which more is used than allowed; None = none."""
    return next((name for name in FIGURES if (limit := getattr(quota, name)) is not None
                 and getattr(used, name) > limit), None)


def most_generous(quotas: Iterable[Quota]) -> Quota:
    """For each figure the largest; no limit is the largest of all."""
    listed = list(quotas)
    return Quota(*(_largest([getattr(quota, name) for quota in listed]) for name in FIGURES))


def _largest(limits: list[Limit]) -> Limit:
    given = [limit for limit in limits if limit is not None]
    return max(given) if given and len(given) == len(limits) else None


def _problems(quota: Quota, used: Amounts, asked: Amounts) -> Iterator[FieldProblem]:
    for name in FIGURES:
        limit, has, wants = getattr(quota, name), getattr(used, name), getattr(asked, name)
        if limit is not None and wants > 0 and has + wants > limit:
            field, message = _SAID[name]
            yield FieldProblem(field, message, {
                "limit": _shown(name, limit), "used": _shown(name, has), "asked": _shown(name, wants)})


def _shown(name: str, value: int) -> int | str:
    if name == "cpu_millis":
        return f"{value / 1000:g}"
    return f"{value / 2**30:.4g} GiB" if name == "memory_bytes" else value
