"""`Index`: in which rows the edges of a number, or from a node, are."""

from __future__ import annotations

import numpy as np

from jgs.graph.grouping import group
from jgs.graph.live.rows import Rows
from jgs.graph.rows import row_chunks, row_lengths, row_offsets

_LEAST = 1 << 16


class Index:
    """The rows of edges by their numbers and by their sources. It is made of all edges once,
    and then told of new ones. It may know edges that have been removed since."""

    def __init__(self, rows: Rows, next_edge: int):
        lengths = row_lengths(rows.bounds)
        row: np.ndarray = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
        number, source = np.empty(row.size, np.int64), np.empty(row.size, np.int32)
        indptr = row_offsets(lengths)
        for first, stop in row_chunks(indptr):
            slots, _ = rows.slots(np.arange(first, stop))
            number[indptr[first] : indptr[stop]] = rows.arrays["edge_order"][slots]
            source[indptr[first] : indptr[stop]] = rows.arrays["indices"][slots]
        self._row_of = np.full(next_edge, -1, np.int32)
        self._row_of[number] = row
        self._begins, order = group(source, lengths.size)
        self._row_by_source = row[order]
        self._first, self._new = next_edge, np.empty((2, 0), np.int32)

    def is_stale(self) -> bool:
        """Whether so many edges are new that it should be made again."""
        return self._new.shape[1] > max(_LEAST, self._row_by_source.size // 4)

    def add(self, source: np.ndarray, row: np.ndarray) -> None:
        """Tells it of edges with the next numbers."""
        self._new = np.concatenate([self._new, np.stack([source, row]).astype(np.int32)], 1)

    def rows_of(self, numbers: np.ndarray) -> np.ndarray:
        """The distinct rows that have the edges of these numbers, below the next one."""
        new = numbers >= self._first
        rows = [self._row_of[numbers[~new]], self._new[1, numbers[new] - self._first]]
        found = np.unique(np.concatenate(rows))
        return found[found >= 0]

    def rows_from(self, nodes: np.ndarray) -> np.ndarray:
        """The distinct rows that have edges from these nodes."""
        begin, end = self._begins[nodes], self._begins[nodes + 1]
        ends = np.cumsum(end - begin)
        at = np.repeat(end - ends, end - begin) + np.arange(ends[-1] if nodes.size else 0)
        new = np.isin(self._new[0], nodes)
        return np.unique(np.concatenate([self._row_by_source[at], self._new[1, new]]))
