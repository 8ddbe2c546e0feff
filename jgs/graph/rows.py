"""Edges in rows, one row a node: offsets, positions, grouping. NumPy, no loop over edges. At
the end what JAX traces, under `jax.enable_x64(True)`: where rows lie, and searches in stretches
of ascending values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.kernels.call import vary_alike

_EDGES_AT_ONCE = 1 << 22  # bounds the temporaries to some hundred megabytes
_ROWS_AT_ONCE = 1 << 20  # does the same where most rows are empty


def row_offsets(degree: np.ndarray) -> np.ndarray:
    """int64 `[N+1]`: where each row begins, and where the last one ends."""
    indptr = np.zeros(degree.size + 1, np.int64)
    np.cumsum(degree, out=indptr[1:])
    return indptr


def row_lengths(indptr: Any) -> Any:
    """int64 `[N]`: the length of each row, by offsets as those of a `Graph`."""
    return indptr[1:] - indptr[:-1] if indptr.ndim == 1 else indptr[1, :-1] - indptr[0, :-1]


def offsets_of_rows(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """int64 `[n+1]`: the `row_offsets` of these rows alone, in the order of `rows`."""
    offsets: np.ndarray = np.zeros(rows.size + 1, np.int64)
    for first in range(0, rows.size, _ROWS_AT_ONCE):
        chunk = rows[first : first + _ROWS_AT_ONCE]
        ends = offsets[first + 1 : first + chunk.size + 1]
        np.cumsum(indptr[chunk + 1] - indptr[chunk], out=ends)
        ends += offsets[first]
    return offsets


def row_chunks(indptr: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of rows, each of at most 2**20 rows and 2**22 edges, but of at least one row."""
    first, last = 0, indptr.size - 1
    while first < last:
        near = indptr[first : first + _ROWS_AT_ONCE + 1]
        fits = int(np.searchsorted(near, near[0] + _EDGES_AT_ONCE, "right")) - 1
        stop = first + max(1, fits)
        yield first, stop
        first = stop


def edge_chunks(indptr: np.ndarray) -> Iterator[tuple[slice, np.ndarray, Any]]:
    """For each of the `row_chunks` its rows, the offsets int64 `[n+1]` of their edges, which
    count from 0, and where these edges are: a slice, or places int64 of rows with room."""
    room = indptr.ndim == 2
    offsets = row_offsets(row_lengths(indptr)) if room else indptr
    for first, stop in row_chunks(offsets):
        begin, end = int(offsets[first]), int(offsets[stop])
        where = positions_in(*indptr[:, first:stop]) if room else slice(begin, end)
        yield slice(first, stop), offsets[first : stop + 1] - begin, where


def without_room(
    indptr: np.ndarray, arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The offsets int64 `[N+1]` and the `arrays` `[E, ...]` of the same rows without room."""
    offsets, out = row_offsets(row_lengths(indptr)), {}
    for name, array in arrays.items():
        out[name] = np.empty((int(offsets[-1]), *array.shape[1:]), array.dtype)
    for rows, _, where in edge_chunks(indptr):
        for name, array in arrays.items():
            out[name][offsets[rows.start] : offsets[rows.stop]] = array[where]
    return offsets, out


def row_positions(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """int64: the edge positions of all `rows`, one row after the other."""
    return positions_in(indptr[rows], indptr[rows + 1])


def positions_in(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64: the positions of the stretches from `begin` to `end` int64 `[n]`, one after the
    other."""
    ends = np.cumsum(end - begin)
    return np.repeat(end - ends, end - begin) + np.arange(ends[-1:].sum())


def bisect(
    values: np.ndarray, low: np.ndarray, high: np.ndarray, bound: np.ndarray, *, right: bool
) -> np.ndarray:
    """int64 `[n]`: in each of the ascending stretches `low:high` of `values` the place of a
    `bound` `[n]`, before or, with `right`, after equal values."""

    def before(at: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Whether the places of some come after the values `at`."""
        seen, own = values[at], bound[which]
        return (seen <= own) if right else (seen < own)

    low, high = low.copy(), high.copy()
    which = np.flatnonzero(low < high)
    last = which[before(high[which] - 1, which)]
    low[last] = high[last]  # most edges come last
    while (which := which[low[which] < high[which]]).size:
        middle = (low[which] + high[which]) // 2
        after = before(middle, which)
        low[which] = np.where(after, middle + 1, low[which])
        high[which] = np.where(after, high[which], middle)
    return low


def neighbor_counts(indices: np.ndarray, num_nodes: int) -> np.ndarray:
    """`[N]`, in the dtype of `order_dtype`: how often each node occurs in `indices`, which are
    read piece by piece."""
    counts: np.ndarray = np.zeros(num_nodes, order_dtype(indices.size))
    for first in range(0, indices.size, _EDGES_AT_ONCE):
        # Sorted nodes are counted in the order of memory, which is faster.
        nodes, times = np.unique(indices[first : first + _EDGES_AT_ONCE], return_counts=True)
        counts[nodes] += times.astype(counts.dtype)
    return counts


def row_of_edges(indptr: np.ndarray) -> np.ndarray:
    """int32 `[E]`: the row that each edge is in."""
    return np.repeat(np.arange(indptr.size - 1, dtype=np.int32), np.diff(indptr))


def order_dtype(num_edges: int) -> type:
    """The dtype that holds positions among `num_edges` edges."""
    return np.int32 if num_edges < 2**31 else np.int64


def rows_of(
    indptr: jax.Array, nodes: jax.Array, real: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """int64, the shape of `nodes`: where the row of each node begins among the edges, and its
    length, by offsets as those of a `Graph`. Both are 0 where `real` is False; by default that
    is for ids of no nodes."""
    if real is None:
        real = (nodes >= 0) & (nodes < indptr.shape[-1] - 1)
    begin, end = ((nodes,), (nodes + 1,)) if indptr.ndim == 1 else ((0, nodes), (1, nodes))
    start = jnp.where(real, indptr.at[begin].get(mode="clip"), 0)
    return start, jnp.where(real, indptr.at[end].get(mode="clip"), 0) - start


def count_less(
    values: jax.Array, start: jax.Array, count: jax.Array, bound: jax.Array
) -> jax.Array:
    """int64 `[B]`: how many of the `count` ascending values from `start` on are less than
    `bound`, found by binary search."""
    if values.shape[0] == 0:
        return jnp.zeros_like(count)
    return first_where(lambda i: clipped(values, start + i) >= bound, count, (start, values))


def first_where(holds: Any, count: jax.Array, reads: Any) -> jax.Array:
    """int64, the shape of `count`: the first of `0, 1, .., count - 1` for which `holds` is
    True, else `count`. Where it holds for a number it must hold for all greater ones. `reads`
    is what `holds` reads."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        no = (low < high) & ~holds(middle)
        return jnp.where(no, middle + 1, low), jnp.where(no, high, middle)

    low, high, _ = vary_alike(jnp.zeros_like(count), count, reads)
    steps = 64 - jax.lax.clz(jnp.max(count, initial=0).astype(jnp.int64))
    return jax.lax.fori_loop(0, steps, halve, (low, high))[0]


def clipped(array: Any, at: jax.Array) -> jax.Array:
    """`array[at]`, where places out of bounds are the nearest ones within."""
    return array.at[at].get(mode="clip")
