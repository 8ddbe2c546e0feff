"""The times of edges: `Graph.edge_time`, ascending among the edges of one type in each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph.checks import integers
from jgs.graph.rows import row_chunks


def check_times(edge_time: Any, num_edges: int) -> np.ndarray:
    """`edge_time` as int64 `[E]`; raises `InputError`."""
    times = integers("edge_time", edge_time, np.int64)
    if times.size != num_edges:
        raise InputError(
            "edge_time must have one entry for every edge",
            f"{times.size} entries, {num_edges} edges",
            "Give each edge's time, as an integer in a unit of your choice.",
        )
    return times


def check_ascending(times: np.ndarray, types: np.ndarray | None, indptr: np.ndarray) -> None:
    """Raises `InputError` unless the `times` `[E]` of the edges of each row, or of each type in
    it if there are `types`, ascend."""
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        falls = 1 + np.flatnonzero(times[begin + 1 : end] < times[begin : end - 1]) + begin
        row = np.searchsorted(indptr, falls, side="right") - 1
        inside = indptr[row] < falls
        if types is not None:
            inside &= types[falls] == types[falls - 1]
        if inside.any():
            at, node = int(falls[np.argmax(inside)]), int(row[np.argmax(inside)])
            raise InputError(
                "the edges of each row, or of each type in it, must be sorted by edge_time",
                f"{times[at]} after {times[at - 1]} in the row of node {node}",
                "Make the graph with Graph.from_edges(..., edge_time=...), which sorts them.",
            )
