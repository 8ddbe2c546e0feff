"""`Rows`: edges in rows that have room, which are changed in place.

A packed memory array by rows: each row has room at its end, so that changes move edges of
their own rows alone. A row that outgrows its room moves to a larger one, so that a row of `d`
edges has moved O(log d) times, and an edge that comes last costs O(1) on average.

`Runs` is the `RelationIndex` of such rows. `RowsByKey` says in which rows edges of a key are,
such as a number, a source or a time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np

from jgs import kernels
from jgs.arrays import aligned_zeros
from jgs.graph.grouping import RUN_BITS, longs, order_by_time, pointer
from jgs.graph.rows import (
    bisect,
    positions_in,
    row_chunks,
    row_lengths,
    row_offsets,
    without_room,
)
from jgs.graph.weights import weight_prefix_sums

_PREFIX, _WEIGHT = "edge_weight_prefix", "edge_weight"
_LEAST = 1 << 12  # slots that no row has at first
_AT_ONCE = 1 << 16  # rows whose runs are found
_MOST = 16  # runs of keys that are looked at each time


class Rows:
    """Edges in rows with room.

    Fields (`N` rows, `C` slots for edges):
      bounds: int64 `[2, N+1]`; row `v` has the slots `bounds[0, v]:bounds[1, v]`. A row without
        room begins and ends at `C`, as the last column does.
      stops: int64 `[N]`, where the room of each row ends.
      arrays: `[C, ...]` by name, as `Graph.edge_arrays`. Within a row edges ascend by
        `edge_type` and `edge_time`, if there are these; equal ones are in the order of arrival.
        Slots without an edge are 0.
      used: no row has room from this slot on.
    """

    def __init__(
        self, indptr: np.ndarray, arrays: dict[str, np.ndarray], runs: Runs | None = None
    ):
        """Copies the edges of the offsets `indptr` int64 `[N+1]`, whose `arrays` are `[E, ...]`
        by name. The `runs` are kept up to date, where edges have types."""
        self.runs = runs
        self._lay_out(indptr, arrays, 0)

    def _lay_out(self, indptr: np.ndarray, arrays: dict[str, np.ndarray], wanted: int) -> None:
        """Copies the edges to rows with room, and leaves `wanted` slots that no row has."""
        degree = np.diff(indptr)
        begins = row_offsets(np.where(degree > 0, degree + degree // 4, 0))
        self.used = int(begins[-1])
        # Of few sizes, so that a graph that was opened again needs the same programs.
        self.capacity = _size(self.used + max(self.used // 4, wanted, _LEAST), _LEAST)
        bounds = np.full((2, degree.size + 1), self.capacity)
        some = degree > 0
        bounds[0, :-1][some] = begins[:-1][some]
        bounds[1, :-1] = bounds[0, :-1] + degree
        self.bounds = aligned_zeros(bounds.size, np.int64).reshape(bounds.shape)
        self.bounds[:] = bounds
        self.stops = np.where(some, begins[1:], self.capacity)
        self._free: dict[int, list[int]] = defaultdict(list)
        self.arrays = {}
        for name, array in arrays.items():
            width = int(np.prod(array.shape[1:], dtype=np.int64))
            room = aligned_zeros(self.capacity * width, array.dtype)
            room = self.arrays[name] = room.reshape(self.capacity, *array.shape[1:])
            for first, stop in row_chunks(indptr):
                piece = slice(int(indptr[first]), int(indptr[stop]))
                shift = np.repeat((begins[:-1] - indptr[:-1])[first:stop], degree[first:stop])
                room[np.arange(piece.start, piece.stop) + shift] = array[piece]
        if self.runs is not None:
            every = np.arange(degree.size)
            self.runs.find(every, self.bounds[:, :-1], self.arrays["edge_type"])

    @property
    def num_edges(self) -> int:
        return int(row_lengths(self.bounds).sum())

    def insert(self, row: np.ndarray, new: dict[str, np.ndarray]) -> None:
        """Adds edges to the rows `row` int `[n]`, with arrays `[n, ...]` as `arrays`, but the
        prefix sums of weights. An edge comes after those of its row that are not later."""
        keys = [new[name] for name in ("edge_time", "edge_type") if name in new]
        order = np.lexsort([*keys, row])
        row, new = row[order], {name: array[order] for name, array in new.items()}
        at = self._after(row, new)
        first = np.flatnonzero(np.diff(row, prepend=-1))
        touched, count = row[first], np.diff(first, append=row.size)
        begin, end = self.bounds[:, touched]
        length = end - begin + count
        moves = begin + length > self.stops[touched]
        sizes = _room(length[moves])
        if self.used + sizes.sum() > self.capacity:
            self.lay_out_again(2 * int(sizes.sum()))
            return self.insert(row, new)
        to = begin.copy()
        to[moves] = self._rooms(sizes)
        rank = np.arange(row.size) - np.repeat(first, count)
        shift = np.repeat(to - begin, count) + rank
        after = np.append(at[1:], 0)  # where the edges end that follow each new one
        after[first[1:] - 1], after[-1] = end[:-1], end[-1]
        segments = np.stack([at, at + shift + 1, after - at])[:, ::-1]  # the last one first
        heads = np.stack([begin, to, at[first] - begin])[:, moves]
        self._move(np.concatenate([heads, segments], axis=1), new, at + shift)
        for room in zip(
            begin[moves].tolist(), self.stops[touched[moves]].tolist(), strict=True
        ):
            self._release(*room)
        self.stops[touched[moves]] = to[moves] + sizes
        self.bounds[:, touched] = to, to + length
        self._derive(touched)
        return None

    def remove(self, slots: np.ndarray, row: np.ndarray) -> None:
        """Removes the edges at `slots` int64 `[n]`, ascending within each of the rows `row` int
        `[n]`, which come one after the other."""
        first = np.flatnonzero(np.diff(row, prepend=-1))
        touched, count = row[first], np.diff(first, append=row.size)
        end = self.bounds[1, touched]
        rank = np.arange(row.size) - np.repeat(first, count)
        after = np.append(slots[1:], 0)
        after[first[1:] - 1], after[-1] = end[:-1], end[-1]
        self._move(np.stack([slots + 1, slots - rank, after - slots - 1]), {}, slots[:0])
        gone = np.repeat(end, count) - 1 - rank
        for array in self.arrays.values():
            array[gone] = 0
        self.bounds[1, touched] = end - count
        self._derive(touched)

    def slots(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slots int64 `[m]` of the edges of these rows, one row after the other, and the
        row of each."""
        begin, end = self.bounds[:, nodes]
        return positions_in(begin, end), np.repeat(nodes, end - begin)

    def packed(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The offsets int64 `[N+1]` and the arrays `[E, ...]` of the same rows without room."""
        return without_room(self.bounds, self.arrays)

    def lay_out_again(self, wanted: int = 0) -> None:
        """Gives every row new room, and leaves `wanted` slots. It copies all edges."""
        self._lay_out(*self.packed(), wanted)

    # -- the parts of a change -----------------------------------------------------------------

    def _after(self, row: np.ndarray, new: dict[str, np.ndarray]) -> np.ndarray:
        """int64 `[n]`: the slot after the edges of each row that are not later than the new."""
        low, high = self.bounds[:, row]
        for name in ("edge_type", "edge_time"):
            if name in new:
                values, stretch, bound = self.arrays[name], (low, high), new[name]
                high = bisect(values, *stretch, bound, right=True)
                if name == "edge_type":
                    low = bisect(values, *stretch, bound, right=False)
        return high

    def _rooms(self, sizes: np.ndarray) -> np.ndarray:
        """int64: where the rooms of these sizes begin, which are free."""
        begins = np.empty(sizes.size, np.int64)
        for i, size in enumerate(sizes.tolist()):
            if free := self._free.get(size):
                begins[i] = free.pop()
            else:
                begins[i] = self.used
                self.used += size
        return begins

    def _release(self, begin: int, stop: int) -> None:
        for array in self.arrays.values():
            array[begin:stop] = 0
        if size := _whole_room(stop - begin):
            self._free[size].append(begin)

    def _move(self, moves: np.ndarray, new: dict[str, np.ndarray], place: np.ndarray) -> None:
        """Moves edges in all arrays: `moves` int64 `[3, m]` has where each segment is, where it
        goes and how long it is. Then writes the new edges to the slots `place` int64 `[n]`."""
        moves = np.ascontiguousarray(moves[:, (moves[2] > 0) & (moves[0] != moves[1])])
        place = np.ascontiguousarray(place)
        for name, array in self.arrays.items():
            if name == _PREFIX:
                continue
            added = np.ascontiguousarray(new[name], array.dtype) if new else array[:0]
            if kernels.available():
                item = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
                kernels.function("JgsMoveRows", None)(
                    pointer(array), *longs(item), *map(pointer, moves), *longs(moves.shape[1]),
                    pointer(added), pointer(place), *longs(place.size),
                )  # fmt: skip
                continue
            for start, to, count in moves.T.tolist():
                array[to : to + count] = array[start : start + count].copy()
            array[place] = added

    def _derive(self, touched: np.ndarray) -> None:
        """Computes the prefix sums of these rows' weights, and their runs."""
        if self.runs is not None:
            self.runs.find(touched, self.bounds[:, touched], self.arrays["edge_type"])
        if _PREFIX in self.arrays:
            slots, _ = self.slots(touched)
            within = row_offsets(self.bounds[1, touched] - self.bounds[0, touched])
            self.arrays[_PREFIX][slots] = weight_prefix_sums(
                within, self.arrays[_WEIGHT][slots]
            )


def _room(length: np.ndarray) -> np.ndarray:
    """int64: how many slots a row of this length gets when it moves: a quarter more, in few
    different sizes."""
    return np.array([_size(each) for each in (length + length // 4 + 4).tolist()], np.int64)


def _size(least: int, step: int = 4) -> int:
    """The least room of at least so many slots: there are eight sizes to each doubling, and
    multiples of `step` alone."""
    step = max(step, _step(least))
    return -(-least // step) * step


def _whole_room(most: int) -> int:
    """The largest room of at most so many slots."""
    return most // _step(most) * _step(most)


def _step(size: int) -> int:
    return max(4, 1 << max(size.bit_length() - 4, 0))


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
