"""`Demand`: how much steps have needed, and what later steps will hardly exceed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import scipy

_CHANCE = 1e-4  # a tenth of the promised chance, because needs are not quite normal


class Demand:
    """Takes what each step needs, at first `needs`, and says by `most` what later steps will
    need.

    Steps are taken to be independent, and their needs to be normal with unknown mean and
    deviation. A further step then exceeds `mean + t s sqrt(1 + 1/n)` in one of ten thousand
    cases, where `t` is the quantile of Student's distribution.
    """

    def __init__(self, needs: Iterable[int] = ()) -> None:
        self._num, self._sum, self._squares, self._largest = 0, 0, 0, 0  # Python's are exact
        for need in needs:
            self.add(need)

    def add(self, need: int) -> None:
        self._num += 1
        self._sum += need
        self._squares += need * need
        self._largest = max(self._largest, need)

    def most(self) -> int:
        """At least the largest need so far, at most twice that; 0 before any step."""
        n = self._num
        if n < 2:  # nothing is known of how they differ
            return math.ceil(1.1 * self._largest)
        variance = max(self._squares - self._sum * self._sum / n, 0.0) / (n - 1)
        quantile = float(scipy.special.stdtrit(n - 1, 1 - _CHANCE))
        bound = self._sum / n + quantile * math.sqrt(variance * (1 + 1 / n))
        return max(self._largest, min(math.ceil(bound), 2 * self._largest))


def rounded(need: int) -> int:
    """A capacity for `need`: the next multiple of 64, at least 1."""
    return max(1, -(-need // 64) * 64)
