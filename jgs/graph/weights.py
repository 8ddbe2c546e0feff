"""Edge weights in fixed point, so that every device decides a weighted draw alike.

A float32 weight is `m * 2**e` with a 24-bit integer `m`. All weights of a row are shifted by
the same power of two, so that the row's total stays below 2**62. Weights down to about
`2**-38 * degree**-1` of the row's largest keep every bit. Smaller weights lose their last
bits, but no positive weight becomes zero. A draw is then an integer below the row's total and
a binary search among the row's prefix sums: no logarithm, no rounding, no scan of a hub.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.arrays import refuse_where, refuse_words, require_array
from jgs.graph.checks import as_array
from jgs.graph.rows import row_chunks

_TOTAL_BITS = 62


def check_weights(edge_weight: Any, num_edges: int) -> np.ndarray:
    """`edge_weight` as float32 `[num_edges]`. Raises `InputError` unless every weight is finite
    and not negative, and none that is positive rounds to 0 in float32."""
    array = as_array("edge_weight", edge_weight, "a float array")
    refuse_words("edge_weight", array)
    form = "numbers [E], one an edge"
    remedy = "Give one weight for every edge, in the order of the edges."
    require_array("edge_weight", array, form, remedy, E=num_edges)
    with np.errstate(over="ignore"):
        weight = np.ascontiguousarray(array, np.float32)
    rule = "edge weights must be finite float32 numbers and not negative"
    remedy = "Remove the edge, or give it weight 0: it is then never drawn."
    refuse_where(~np.isfinite(weight) | (weight < 0), array, "edge", rule, remedy)
    if array.dtype.itemsize > 4:
        rule = "edge weights that are not 0 must be at least 1.4e-45, float32's least"
        remedy = "Multiply all weights by a constant: only their ratios count."
        refuse_where((weight == 0) & (array != 0), array, "edge", rule, remedy)
    return weight


def weight_prefix_sums(indptr: np.ndarray, edge_weight: np.ndarray) -> np.ndarray:
    """int64 `[E]`: inclusive prefix sums of the fixed-point weights within each row."""
    prefix = np.empty(edge_weight.size, np.int64)
    for first, stop in row_chunks(indptr):
        span = slice(indptr[first], indptr[stop])
        weight, degree = edge_weight[span], np.diff(indptr[first : stop + 1])
        if weight.size:
            full = degree > 0
            starts = (indptr[first:stop] - indptr[first])[full]
            scale = _scales(np.maximum.reduceat(weight, starts), degree[full])
            units = _units(weight, np.repeat(scale, degree[full]))
            prefix[span] = _sums(units, starts, degree[full])
    return prefix


def appended_prefix_sums(
    indptr: np.ndarray,
    edge_weight: np.ndarray,
    prefix: np.ndarray,
    added: np.ndarray,
    at: np.ndarray,
    counts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The prefix sums of edges that are added to a graph with these `indptr`, `edge_weight` and
    `prefix`, whose own stay what they are.

    The added edges have the weights `added` float32 `[n]`, row by row, `counts` int64 `[N]` in
    each, and are inserted before the graph's edges number `at` int64 `[n]`. Returns their sums
    int64 `[n]`, and int64 `[m]`: the rows whose sums must be made again, because the power of
    two of the row changes or because an edge is not added at its end.
    """
    if added.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    degree = np.diff(indptr)
    full, rows = degree > 0, np.flatnonzero(counts)
    heaviest = np.zeros(degree.size, np.float32)
    if edge_weight.size:
        heaviest[full] = np.maximum.reduceat(edge_weight, indptr[:-1][full])
    counts, degree, heaviest = counts[rows], degree[rows], heaviest[rows]
    ends = np.cumsum(counts)
    most = np.maximum(heaviest, np.maximum.reduceat(added, ends - counts))
    scale = _scales(most, degree + counts)
    stale = (degree > 0) & (_scales(heaviest, np.maximum(degree, 1)) != scale)
    stale |= at[ends - counts] < indptr[rows + 1]
    totals = np.zeros(rows.size, np.int64)
    totals[degree > 0] = prefix[indptr[rows + 1][degree > 0] - 1]
    sums = _sums(_units(added, np.repeat(scale, counts)), ends - counts, counts)
    return sums + np.repeat(totals, counts), rows[stale]


def _scales(heaviest: np.ndarray, degree: np.ndarray) -> np.ndarray:
    """int64 `[n]`: the exponent of the unit of each row, which has that many edges, at least
    one, and this largest weight. It also counts the 24 bits of a mantissa."""
    largest = np.where(heaviest > 0, np.frexp(heaviest)[1], np.int32(-1000))
    room = _TOTAL_BITS - 24 - np.ceil(np.log2(degree)).astype(np.int64)  # exact below 2**31
    return largest - room


def _units(weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """int64 `[E]`: the weights in the units of their rows."""
    mantissa, exponent = np.frexp(weight)  # weight = mantissa * 2**exponent, exactly
    units = (mantissa * np.float32(2**24)).astype(np.int64)
    shift = np.where(units > 0, exponent, np.int32(-1000)) - scale
    return np.where(
        shift >= 0,
        units << np.clip(shift, 0, 62),
        np.maximum(units >> np.clip(-shift, 0, 62), units > 0),
    )


def _sums(units: np.ndarray, starts: np.ndarray, degree: np.ndarray) -> np.ndarray:
    """int64 `[E]`: the sums within each row up to each edge. No row is empty."""
    total = np.cumsum(units, dtype=np.uint64)  # may wrap around; the differences stay right
    before = np.repeat(total[starts] - units[starts].astype(np.uint64), degree)
    return (total - before).astype(np.int64)
