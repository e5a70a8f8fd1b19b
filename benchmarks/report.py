"""How every benchmark here ends: a table for people, then one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Figure = float | int | bool | None  # None = not measured


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure is to be. Not measured = not met."""

    at_most: float

    def is_met(self, figure: Figure) -> bool:
        return figure is not None and figure <= self.at_most


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of each round's own ratio; 1.1 = we take a tenth longer.

    Not the ratio of two medians: on a machine that is slow for some rounds these come from different rounds.

    Args:    ours, theirs: one figure a round, in the same order.
    Raises:  ValueError: no round, a round with one side only, or one that took no time.
    """
    if not ours or len(ours) != len(theirs) or min(theirs) <= 0:
        raise ValueError("a ratio needs a measurement on either side in every round")
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def closing_line(benchmark: str, figures: Mapping[str, Figure], goals: Mapping[str, Goal]) -> str:
    """The last line of a benchmark's output.

    Raises:  ValueError: a goal for a figure that there is not: a misspelt one would never be judged.
    """
    unknown = sorted(set(goals) - set(figures))
    if unknown:
        raise ValueError(f"goals without a figure: {', '.join(unknown)}")
    return json.dumps({
        "benchmark": benchmark,
        "figures": {name: _rounded(figure) for name, figure in figures.items()},
        "goals": {name: {"at_most": goal.at_most} for name, goal in goals.items()},
        "met": all(goal.is_met(figures[name]) for name, goal in goals.items()),
    })


def finish(benchmark: str, figures: Mapping[str, Figure], goals: Mapping[str, Goal], *, json_only: bool = False) -> int:
    """Print it all; the exit code. A goal that is missed is a result, not an error."""
    if not json_only:
        print(table(figures, goals))
    print(closing_line(benchmark, figures, goals), flush=True)
    return 0


def table(figures: Mapping[str, Figure], goals: Mapping[str, Goal]) -> str:
    """A line per figure, with its goal and whether it is met."""
    width = max(map(len, figures))
    return "\n".join(
        f"{name:<{width}}  {_shown(figure):>10}  {_judged(figure, goals.get(name))}".rstrip()
        for name, figure in figures.items()
    )


def _judged(figure: Figure, goal: Goal | None) -> str:
    if goal is None:
        return ""
    return f"goal ≤ {goal.at_most:g}: {'met' if goal.is_met(figure) else 'MISSED'}"


def _shown(figure: Figure) -> str:
    return "—" if figure is None else str(_rounded(figure))


def _rounded(figure: Figure) -> Figure:
    return round(figure, 3) if isinstance(figure, float) else figure
