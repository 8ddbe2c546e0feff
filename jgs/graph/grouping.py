"""Edges grouped by target: a stable counting sort, on all cores. `RelationIndex`: where the
edges of each relation are in each row."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy

from jgs import kernels
from jgs.arrays import aligned_empty
from jgs.graph.device import as_device
from jgs.graph.rows import order_dtype, row_chunks, row_offsets

_BUCKET_EDGES = 1 << 17  # small enough to sort a bucket in the cache
_MOST_BUCKETS = 1 << 10
_CHUNK_EDGES = 1 << 22
_TAKEN_AT_ONCE = 1 << 20
RUN_BITS = 15  # a relation's number is below 2**15


class Groups(NamedTuple):
    """Positions of keys, grouped by key.

    Fields:
      indptr: int64 `[num_groups + 1]`; group `g` is `indptr[g]:indptr[g+1]` of the other two.
      order: `[E]`, in the dtype of `order_dtype`; the positions of the group's keys, ascending.
      values: int32 `[E]`; the values at those positions. None if no values were given.
    """

    indptr: np.ndarray
    order: np.ndarray
    values: np.ndarray | None


def group(keys: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """`indptr` and `order` of the `Groups` of integer keys `[E]` in `[0, num_groups)`."""
    groups = group_values(keys, None, num_groups)
    assert groups is not None
    return groups.indptr, groups.order


def group_values(keys: np.ndarray, values: np.ndarray | None, num_groups: int) -> Groups | None:
    """The `Groups` of contiguous int32 or int64 arrays `keys` and `values` `[E]`. Its arrays
    are aligned for `as_device`. None if a key or a value is not in `[0, num_groups)`.

    The time is in proportion to `E + num_groups`. The kernel's memory, besides the result, is
    two int32 arrays `[E]` where all keys are equal, and otherwise far less; the plain form
    needs more.
    """
    implementation = group_kernel if kernels.available() else group_plain
    return implementation(keys, values, num_groups)


def group_plain(keys: np.ndarray, values: np.ndarray | None, num_groups: int) -> Groups | None:
    """`group_kernel` in SciPy; several times faster than a stable `numpy.argsort`."""
    for ids in (keys,) if values is None else (keys, values):
        if ids.size and (ids.min() < 0 or ids.max() >= num_groups):
            return None
    starts: np.ndarray = np.arange(keys.size + 1, dtype=order_dtype(keys.size))
    matrix = scipy.sparse.csr_array(
        (np.ones(keys.size, bool), keys, starts), shape=(keys.size, num_groups)
    ).tocsc()
    order = matrix.indices.astype(starts.dtype, copy=False)
    if values is not None:
        values = values[order].astype(np.int32, copy=False)
    return Groups(matrix.indptr.astype(np.int64), order, values)


def group_kernel(
    keys: np.ndarray,
    values: np.ndarray | None,
    num_groups: int,
    *,
    bucket_edges: int = _BUCKET_EDGES,
    chunk_edges: int = _CHUNK_EDGES,
) -> Groups | None:
    """See `group_values`; `jgs/kernels/group.h` describes the algorithm.

    About `bucket_edges` edges are sorted at once, and `chunk_edges` are counted at once; these
    two change no result.
    """
    own = kernels.function
    result, spreading = own("JgsGroupResult", None), own("JgsGroupSpread", None)
    counting, sorting = (own(f"JgsGroup{name}", ctypes.c_int64) for name in ("Count", "Sort"))
    keys = np.ascontiguousarray(keys, None if keys.dtype in (np.int32, np.int64) else np.int64)
    size = keys.size
    indptr = aligned_empty(num_groups + 1, np.int64)
    spread, order = aligned_empty(size, np.int32), aligned_empty(size, order_dtype(size))
    most = min(_MOST_BUCKETS, max(1, size // bucket_edges))
    shift = max(0, (max(0, num_groups - 1) // most).bit_length())
    num_buckets = (max(0, num_groups - 1) >> shift) + 1
    ends = np.linspace(0, size, max(1, size // chunk_edges) + 1).astype(np.int64)
    counts = np.zeros((ends.size - 1, num_buckets), np.int64)
    given, wanted, out = _ints(keys), _ints(values), _ints(order)

    def count(chunk: int) -> bool:
        return counting(
            given, wanted, *longs(ends[chunk], ends[chunk + 1], num_groups, shift),
            pointer(counts[chunk]),
        ) == 0  # fmt: skip

    def spread_out(chunk: int) -> None:
        spreading(
            given, *longs(ends[chunk], ends[chunk + 1], shift), pointer(starts[chunk]),
            pointer(spread), out,
        )  # fmt: skip

    def sort(bucket: int) -> bool:
        first, last = bucket << shift, min((bucket + 1) << shift, num_groups)
        return sorting(
            *longs(buckets[bucket], buckets[bucket + 1], first, last - first), wanted,
            pointer(spread), out, pointer(indptr[first + 1 :]),
        ) == 0  # fmt: skip

    for array in (indptr, spread, order):
        result(pointer(array), ctypes.c_int64(array.nbytes))
    indptr[0] = 0
    with threads(ends.size - 1) as run:
        if not all(run(count, range(ends.size - 1))):
            return None
        if num_groups == 0:
            return Groups(indptr, order, None if values is None else spread)
        # The edges of a bucket lie together, in the order of the chunks.
        starts = (np.cumsum(counts.T).reshape(num_buckets, -1) - counts.T).T.copy()
        buckets = np.r_[starts[0], size]
        for _ in run(spread_out, range(ends.size - 1)):
            pass
        if not all(run(sort, range(num_buckets))):
            raise MemoryError(f"sorting {size:,} edges")
    return Groups(indptr, order, None if values is None else spread)


def order_by(
    rows: np.ndarray,
    sources: np.ndarray,
    num_nodes: int,
    types: np.ndarray | None = None,
    times: np.ndarray | None = None,
) -> np.ndarray:
    """`[E]`: the positions of the edges sorted by row, then by type and by time if `types` and
    `times` are given, then by source; equal edges keep their order."""
    _, order = group(sources, num_nodes)
    if times is not None:
        order = order[_stable_order(times[order])]
    if types is not None:
        _, by_type = group(types[order], int(types.max(initial=0)) + 1)
        order = order[by_type]
    _, by_row = group(rows[order], num_nodes)
    return order[by_row]


def order_by_time(times: np.ndarray, types: np.ndarray | None = None) -> np.ndarray:
    """`[E]`, in the dtype of `order_dtype`: the positions of edges sorted by type, if `types`
    are given, which ascend already, then by time; equal edges keep their order."""
    order: np.ndarray = np.empty(times.size, order_dtype(times.size))
    new = np.array([], int) if types is None else np.flatnonzero(types[1:] != types[:-1]) + 1

    def sort(bounds: tuple[int, int]) -> None:
        begin, end = bounds
        order[begin:end] = _stable_order(times[begin:end])
        order[begin:end] += begin

    stretches = list(pairwise([0, *new, times.size]))
    alike = [_earlier(times, stretches[:i], *own) for i, own in enumerate(stretches)]
    with threads(len(stretches)) as run:
        first = (own for own, known in zip(stretches, alike, strict=True) if known is None)
        for _ in run(sort, first):
            pass
    for (begin, end), known in zip(stretches, alike, strict=True):
        if known is not None:
            np.add(order[known : known + end - begin], begin - known, out=order[begin:end])
    return order


def _earlier(
    times: np.ndarray, stretches: list[tuple[int, int]], begin: int, end: int
) -> int | None:
    """Where the first of the `stretches` begins that has the same times as `begin:end`, as a
    relation and its reverse have; None if none has."""
    own = times[begin:end]
    return next(
        (
            first
            for first, last in stretches
            if last - first == end - begin
            and times[first] == times[begin]
            and np.array_equal(times[first:last], own)
        ),
        None,
    )


def _stable_order(keys: np.ndarray) -> np.ndarray:
    """`np.argsort(keys, kind="stable")` of int64 keys, several times faster where their range
    and their number are below 2**63 together: keys and positions are sorted as one number."""
    if (keys[1:] >= keys[:-1]).all():
        return np.arange(keys.size)
    least, bits = keys.min(), keys.size.bit_length()
    if int(keys.max()) - int(least) >= 1 << (63 - bits):
        return np.argsort(keys, kind="stable")
    packed = (keys - least) << bits
    packed |= np.arange(keys.size)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def taken(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`array[order]`, aligned for `as_device`, on all cores. Positions must be in range."""
    shape = (order.size, *array.shape[1:])
    out = aligned_empty(math.prod(shape), array.dtype).reshape(shape)
    pieces = range(0, order.size, _TAKEN_AT_ONCE)  # NumPy copies positions to int64

    def take(first: int) -> None:
        at = slice(first, first + _TAKEN_AT_ONCE)
        np.take(array, order[at], 0, out=out[at], mode="clip")

    with threads(len(pieces)) as run:
        for _ in run(take, pieces):
            pass
    return out


@contextmanager
def threads(tasks: int) -> Iterator[Callable[[Callable, Iterable[Any]], Iterable[Any]]]:
    """Gives a map, on as many threads as kernels may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    threads = min(tasks, kernels.NUM_THREADS or cores)
    if threads <= 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


class _Ints(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_int64))


def _ints(array: np.ndarray | None) -> _Ints:
    return _Ints(None, 4) if array is None else _Ints(array.ctypes.data, array.itemsize)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def longs(*numbers: Any) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(int(number)) for number in numbers]


class RelationIndex(NamedTuple):
    """Where the runs of each node begin. It takes 8 bytes a node and 8 bytes a run: one for
    each node and relation that has an edge.

    Fields:
      indptr: int64 `[N+1]`; node `v` has the runs `indptr[v]:indptr[v+1]`, ascending by
        relation. `[2, N+1]` where rows have room: `indptr[0, v]:indptr[1, v]`.
      runs: int64 `[M+1]`; each run's first edge times 2**15, plus its relation. The next entry
        has where it ends. The last one stands for the end of all.
    """

    indptr: jax.Array
    runs: jax.Array


def index_of(graph: Any) -> RelationIndex:
    """The index of a graph with edge types. It reads `edge_type` in pieces, on all cores. A
    graph whose rows have room has its index with it."""
    if graph.has_room:
        return graph.relation_index
    indptr, types = np.asarray(graph.indptr), np.asarray(graph.edge_type)
    made = _by_kernel if kernels.available() else _plain
    counts, runs = made(np.ascontiguousarray(indptr), np.ascontiguousarray(types))
    runs[-1] = graph.num_edges << RUN_BITS
    return RelationIndex(as_device(row_offsets(counts)), as_device(runs))


def _plain(indptr: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of runs of each row int64 `[N]`, and the runs int64 `[M+1]`, of which the last
    entry is not set."""
    counts, found = [], []
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        piece = types[begin:end]
        starts = np.ones(end - begin, bool)
        starts[1:] = piece[1:] != piece[:-1]
        ends = indptr[first : stop + 1] - begin
        starts[ends[ends < end - begin]] = True  # a row without edges marks the next one's
        at = np.flatnonzero(starts)
        found.append((at + begin) << RUN_BITS | piece[at].astype(np.int64))
        counts.append(np.diff(row_offsets(starts)[ends]))
    none = np.zeros(1, np.int64)
    return np.concatenate([none[:0], *counts]), np.concatenate([*found, none])


def _by_kernel(indptr: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result of `_plain`."""
    counts, chunks = np.empty(indptr.size - 1, np.int64), [*row_chunks(indptr)]

    def find(rows: tuple[int, int], runs: np.ndarray | None = None) -> None:
        first, stop = rows
        given = pointer(indptr), pointer(types), *longs(types.size, first, stop, RUN_BITS)
        out = None if runs is None else pointer(runs)
        kernels.function("JgsRelationRuns", None)(*given, pointer(counts[first:stop]), out)

    with threads(len(chunks)) as run:
        for _ in run(find, chunks):
            pass
        runs = aligned_empty(int(counts.sum()) + 1, np.int64)
        ends = np.cumsum([counts[first:stop].sum() for first, stop in chunks])
        pieces = np.split(runs[:-1], ends[:-1]) if chunks else []
        for _ in run(lambda each: find(*each), zip(chunks, pieces, strict=True)):
            pass
    return counts, runs
