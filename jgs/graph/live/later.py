"""`LaterRows`: rows of features that hold from moments on, which come and go in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.arrays import aligned_zeros
from jgs.graph.device import aligned_copy
from jgs.graph.live.rows import Rows
from jgs.graph.row_tables.versioned import VersionedFeatures, Versions
from jgs.graph.rows import row_of_edges, row_offsets

_LEAST = 1 << 10  # rows that there is room for


class LaterRows:
    """The later rows of a table of features, in memory: `Versions` with room.

    Fields:
      index: the `Rows` of the table's `N` rows. Their edges are versions: `edge_time` is the
        moment, and `indices` the row, `N + i` for row `i` of `rows`.
      rows: `[R, F]`; those that no version has are 0.
    """

    def __init__(
        self, table: np.ndarray, nodes: np.ndarray, time: np.ndarray, rows: np.ndarray
    ):
        """The `rows` `[V, F]` that `nodes` int `[V]`, ascending, have from `time` on, int64
        `[V]`, ascending within a node. The `table` `[N, F]` has the rows from before."""
        self._first, self._used = len(table), nodes.size
        number = self._first + np.arange(nodes.size, dtype=np.int32)
        ends = row_offsets(np.bincount(nodes, minlength=self._first))
        self.index = Rows(ends, {"edge_time": time, "indices": number})
        self._free: list[int] = []
        self.rows = rows
        self._make_room()
        self._lay_out()

    def of(self, table: Any) -> VersionedFeatures:
        """The features that begin with the rows of the table."""
        index = self.index.bounds, *(self.index.arrays[n] for n in ("edge_time", "indices"))
        return VersionedFeatures((table, self.rows), Versions(*index))

    @property
    def packed(self) -> tuple[np.ndarray, ...]:
        """What `LaterRows` takes beside the table."""
        ends, own = self.index.packed()
        return row_of_edges(ends), own["edge_time"], self.rows[own["indices"] - self._first]

    def add(self, nodes: np.ndarray, time: np.ndarray, rows: np.ndarray) -> None:
        """Adds versions, each after those of its node that are not later."""
        again, self._free = self._free[: nodes.size], self._free[nodes.size :]
        begin, self._used = self._used, self._used + nodes.size - len(again)
        if self._used > len(self.rows):
            self._make_room()
        number = np.concatenate([again, np.arange(begin, self._used)]).astype(np.int32)
        self.rows[number] = rows
        self.index.insert(nodes, {"edge_time": time, "indices": self._first + number})

    def remove(self, nodes: np.ndarray) -> None:
        """Removes the versions of nodes, and leaves no byte of them."""
        slots, row = self.index.slots(np.unique(nodes))
        if slots.size:
            number = self.index.arrays["indices"][slots] - self._first
            self.rows[number], self._free = 0, self._free + number.tolist()
            self.index.remove(slots, row)

    def copy(self) -> None:
        """Moves all arrays to other memory."""
        self._lay_out()
        self.rows = aligned_copy(self.rows)

    def _lay_out(self) -> None:  # for so many that the cost of all rows is theirs
        self.index.lay_out_again(self._first // 4)

    def _make_room(self) -> None:
        size = max(_LEAST, 1 << max(self._used - 1, 0).bit_length())
        width = self.rows.shape[1]
        room = aligned_zeros(size * width, self.rows.dtype).reshape(size, width)
        room[: len(self.rows)], self.rows = self.rows, room
