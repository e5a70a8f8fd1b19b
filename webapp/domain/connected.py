"""Which n of some cards belong together, judged by how they are linked. Knows ranks of links, not cards.

What counts, in this order: few kinds (models); every two joined by NVLink, the weakest as wide as can be; no NVLink cut
between what is taken and what stays; the weakest link; all links together; what stays keeps its best links; lowest
positions. NVLink is only cut where that buys the set NVLink throughout: a pair broken for a shorter way over PCIe
would cost the next person far more than it gives this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

UNKNOWN, PIX = 0, 5     # ranks, as gpu.Link.closeness has them: 1 SYS, 2 NODE, 3 PHB, 4 PXB, 5 PIX; above: NVLink
EXACT_SETS = 252        # all sets are looked at up to here: any number out of 10 cards, 1 or 2 out of 18
_STEP = 1024            # one better link outweighs all worse ones, as long as a host has no more than 64 cards


class Score(NamedTuple):
    """How good a set is; the greater tuple is the better set."""

    alike: int      # minus the number of kinds
    nvlink: int     # rank of the weakest link when all are NVLink, else 0
    whole: int      # minus the number of NVLink-joined twos of which one is taken and one stays
    weakest: int    # rank; 0 for a single card
    total: int      # weight of the links inside
    rest: int       # minus the weight of the links between what is taken and what stays
    order: tuple[int, ...]  # minus the positions


class Field:
    """Cards to choose from, by position 0 … size - 1.

    ranks: how near two cards are, a symmetric matrix; its diagonal is not read.   kinds: what should be alike, for each
    card.
    """

    def __init__(self, ranks: Sequence[Sequence[int]], kinds: Sequence[str]) -> None:
        self.size = len(kinds)
        self._ranks = ranks
        self._kinds = kinds
        self._weights = [[0 if i == j else _weight(rank) for j, rank in enumerate(row)] for i, row in enumerate(ranks)]
        self._weight_of = [sum(row) for row in self._weights]
        self._nvlinks_of = [sum(rank > PIX for j, rank in enumerate(row) if j != i) for i, row in enumerate(ranks)]

    def best(self, count: int) -> tuple[int, ...]:
        """Positions of the best set of `count` (1 … size), ascending.

        Exact up to EXACT_SETS sets. Above, grown from each card and mended: on 400 random hosts of 11–14 cards equal to
        the exact answer down to the weakest link in 9 of 10, at 18 cards within 5 ms.
        """
        if comb(self.size, count) <= EXACT_SETS:
            return max(combinations(range(self.size), count), key=self.score)
        ways = (True, False) if any(self._nvlinks_of) else (False,)
        grown = {self._grow(seed, count, by_nvlink) for seed in range(self.size) for by_nvlink in ways}
        return self._swap(max(grown, key=self.score))

    def score(self, chosen: tuple[int, ...]) -> Score:
        """How good this set is. `chosen`: distinct positions, ascending."""
        twos = list(combinations(chosen, 2))
        inside = [self._ranks[i][j] for i, j in twos]
        total = sum([self._weights[i][j] for i, j in twos])
        weakest = min(inside, default=UNKNOWN)
        nvlinks = sum([rank > PIX for rank in inside])
        return Score(
            alike=-len({self._kinds[i] for i in chosen}),
            nvlink=weakest if weakest > PIX else 0,
            whole=2 * nvlinks - sum([self._nvlinks_of[i] for i in chosen]),
            weakest=weakest,
            total=total,
            rest=2 * total - sum([self._weight_of[i] for i in chosen]),
            order=tuple([-i for i in chosen]),
        )

    def _grow(self, seed: int, count: int, by_nvlink: bool) -> tuple[int, ...]:
        """Add the card that suits those taken best, until there are `count`.

        by_nvlink: first whom NVLink joins to one of them, then who brings such a card along: pair after pair, however
        far apart. Otherwise the nearest card, among equals one that stands alone.
        """
        chosen, rest = [seed], set(range(self.size)) - {seed}
        weakest, total = list(self._ranks[seed]), list(self._weights[seed])
        joined = [rank > PIX for rank in weakest]
        while len(chosen) < count:
            mates = {i for i in rest if any(self._ranks[i][j] > PIX for j in rest if j != i)} if by_nvlink else rest
            card = max(rest, key=lambda i: (
                self._kinds[i] == self._kinds[seed],
                by_nvlink and joined[i], i in mates,
                weakest[i], total[i], -self._weight_of[i], -i,
            ))
            chosen.append(card)
            rest.remove(card)
            for i in rest:
                weakest[i] = min(weakest[i], self._ranks[card][i])
                total[i] += self._weights[card][i]
                joined[i] = joined[i] or self._ranks[card][i] > PIX
        return tuple(sorted(chosen))

    def _swap(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Exchange one card at a time while that helps.

        Where NVLink joins cards in pairs this leaves no pair broken that need not be: a half in the set either takes
        the place of another half's mate, or leaves for a card without one.
        """
        while True:
            better = max(self._neighbours(chosen), key=self.score, default=chosen)
            if self.score(better) <= self.score(chosen):
                return chosen
            chosen = better

    def _neighbours(self, chosen: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
        taken = set(chosen)
        for out in chosen:
            for new in range(self.size):
                if new not in taken:
                    yield tuple(sorted(taken - {out} | {new}))


def _weight(rank: int) -> int:
    """Sums of weights compare by their best links first; more NVLinks weigh more."""
    return int(_STEP ** min(rank, PIX + 1)) * max(1, rank - PIX)
