"""`RowsByKey`: in which rows edges of a key are, such as a number, a source or a time."""

from __future__ import annotations

import numpy as np

from jgs.graph.grouping import order_by_time
from jgs.graph.rows import positions_in

_MOST = 16  # runs that are looked at each time


class RowsByKey:
    """The rows of edges by an integer key: runs, each ascending by key. Small runs are merged,
    so that there are few, and an edge that is added costs O(log n)."""

    def __init__(self, dtype: type = np.int64) -> None:
        self._dtype, self.size = dtype, 0
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Adds edges: keys that fit in the dtype `[n]`, rows int `[n]`."""
        self.size += keys.size
        keys, rows = keys.astype(self._dtype, copy=False), rows.astype(np.int32, copy=False)
        self._runs.append(_ascending(keys, rows))
        while len(self._runs) > _MOST:
            self._runs.sort(key=lambda run: run[0].size)
            (one, of_one), (other, of_other), *rest = self._runs
            merged = np.concatenate([one, other]), np.concatenate([of_one, of_other])
            self._runs = [*rest, _ascending(*merged)]

    def of(self, wanted: np.ndarray) -> np.ndarray:
        """The distinct rows of edges that have one of the keys `wanted`, int `[n]`."""
        wanted, found = np.unique(wanted).astype(self._dtype), [np.empty(0, np.int32)]
        for keys, rows in self._runs:
            begin, end = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))
            found.append(rows[positions_in(begin, end)])
        return np.unique(np.concatenate(found))

    def take_before(self, key: int) -> np.ndarray:
        """The distinct rows of edges with smaller keys, which are forgotten."""
        found = [np.empty(0, np.int32)]
        for i, (keys, rows) in enumerate(self._runs):
            num = int(np.searchsorted(keys, key))
            found.append(rows[:num])
            self._runs[i], self.size = (keys[num:], rows[num:]), self.size - num
        self._runs = [run for run in self._runs if run[0].size]
        return np.unique(np.concatenate(found))


def _ascending(keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if np.all(keys[:-1] <= keys[1:]):  # as the numbers of new edges
        return keys.copy(), rows.copy()
    order = order_by_time(keys.astype(np.int64, copy=False))
    return keys[order], rows[order]
