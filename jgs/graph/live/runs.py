"""`Runs`: the `RelationIndex` of rows that change in place."""

from __future__ import annotations

import itertools

import numpy as np

from jgs.arrays import aligned_zeros
from jgs.graph.relation_index import RUN_BITS
from jgs.graph.rows import bisect

_AT_ONCE = 1 << 16  # rows


class Runs:
    """The arrays of a `RelationIndex` for `N` rows with room. Each row has an entry for every
    relation that may lead to it, and one for where its edges end.

    Fields:
      indptr: int64 `[2, N+1]`.
      runs: int64 `[M]`.
    """

    def __init__(self, targets: list[tuple[range, ...]], num_rows: int):
        """`targets` has the rows that the edges of each relation may be in."""
        self._targets = targets
        size = np.ones(num_rows, np.int64)
        for rows in itertools.chain(*targets):
            size[rows.start : rows.stop] += 1
        ends = np.cumsum(size)
        self.indptr = aligned_zeros(2 * (num_rows + 1), np.int64).reshape(2, -1)
        self.indptr[:, :-1] = ends - size
        self.runs = aligned_zeros(int(size.sum()) + 1, np.int64)

    def copy(self) -> Runs:
        """The same in other memory."""
        return Runs(self._targets, self.indptr.shape[1] - 1)

    def find(self, nodes: np.ndarray, bounds: np.ndarray, types: np.ndarray) -> None:
        """Finds the runs of the rows of `nodes`, which have these `bounds` int64 `[2, n]` among
        edges of the `types`, ascending in a row."""
        for first in range(0, nodes.size, _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            self._find(nodes[some], bounds[:, some], types)

    def _find(self, nodes: np.ndarray, bounds: np.ndarray, types: np.ndarray) -> None:
        at, low, end = self.indptr[0, nodes], *bounds
        for relation, rows in enumerate(self._targets):
            leads = np.any([(nodes >= r.start) & (nodes < r.stop) for r in rows], axis=0)
            own = np.flatnonzero(leads & (low < end))
            high = low.copy()
            wanted = np.full(own.size, relation)
            high[own] = bisect(types, low[own], end[own], wanted, right=True)
            some = high > low
            self.runs[at[some]] = low[some] << RUN_BITS | relation
            at, low = at + some, high
        self.runs[at] = end << RUN_BITS
        self.indptr[1, nodes] = at
