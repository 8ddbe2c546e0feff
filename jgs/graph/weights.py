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

from jgs.errors import InputError
from jgs.graph.checks import as_array, refuse_where, refuse_words
from jgs.graph.rows import row_chunks

_TOTAL_BITS = 62


def check_weights(edge_weight: Any, num_edges: int) -> np.ndarray:
    """`edge_weight` as float32 `[num_edges]`. Raises `InputError` unless every weight is finite
    and not negative, and none that is positive rounds to 0 in float32."""
    array = as_array("edge_weight", edge_weight, "a float array")
    refuse_words("edge_weight", array)
    if array.shape != (num_edges,) or array.dtype.kind not in "fiub":
        raise InputError(
            f"edge_weight must be a float array of shape [{num_edges}], one an edge",
            f"{array.dtype}{list(array.shape)}",
            "Give one weight for every edge, in the order of the edges.",
        )
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
        prefix[span] = _rows(indptr[first : stop + 1] - indptr[first], edge_weight[span])
    return prefix


def _rows(indptr: np.ndarray, weight: np.ndarray) -> np.ndarray:
    if weight.size == 0:
        return np.empty(0, np.int64)
    degree = np.diff(indptr)
    full = degree > 0
    starts, degree = indptr[:-1][full], degree[full]
    mantissa, exponent = np.frexp(weight)  # weight = mantissa * 2**exponent, exactly
    units = (mantissa * np.float32(2**24)).astype(np.int64)
    exponent = np.where(units > 0, exponent, np.int32(-1000))
    largest = np.maximum.reduceat(exponent, starts)
    room = _TOTAL_BITS - 24 - np.ceil(np.log2(degree)).astype(np.int64)  # exact below 2**31
    shift = exponent.astype(np.int64) - np.repeat(largest - room, degree)
    units = np.where(
        shift >= 0,
        units << np.clip(shift, 0, 62),
        np.maximum(units >> np.clip(-shift, 0, 62), units > 0),
    )
    total = np.cumsum(units, dtype=np.uint64)  # may wrap around; the differences stay right
    before = np.repeat(total[starts] - units[starts].astype(np.uint64), degree)
    return (total - before).astype(np.int64)
