"""What a graph's structure says before training: degrees, isolated nodes, edges listed twice or
in one direction only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jgs.graph import Graph


class EdgeFacts(NamedTuple):
    """Counts over all edges of a graph.

    Fields:
      in_degree, out_degree: `mean`, `median` and `max` over all nodes.
      isolated: the nodes that are no end of an edge, but perhaps of self-loops.
      self_loops: edges from a node to itself.
      duplicates: edges whose ends, relation and time, if there are some, an earlier edge has.
      both_ways: edges, not counting self-loops, whose reverse is an edge too.
      one_way: the other edges that are no self-loops.
    """

    in_degree: dict[str, float]
    out_degree: dict[str, float]
    isolated: int
    self_loops: int
    duplicates: int
    both_ways: int
    one_way: int


def edge_facts(graph: Graph) -> EdgeFacts:
    """The facts of a graph, by two sorts of all its edges."""
    count = graph.num_nodes
    src = np.asarray(graph.indices).astype(np.int64)
    inward = np.asarray(graph.degrees()).astype(np.int64)
    dst = np.repeat(np.arange(count, dtype=np.int64), inward)
    outward = np.bincount(src, minlength=count)
    loops = src == dst
    own = np.bincount(src[loops], minlength=count)
    # A row of the graph is the edges into one node, so `forward` is nearly sorted.
    forward = np.sort((dst * count + src)[~loops])
    back = np.sort((src * count + dst)[~loops])
    found = np.searchsorted(back, forward)
    paired = int((back[np.minimum(found, back.size - 1)] == forward).sum()) if back.size else 0
    return EdgeFacts(
        _degrees(inward),
        _degrees(outward),
        int((inward + outward == 2 * own).sum()),
        int(loops.sum()),
        _duplicates(graph, dst * count + src),
        paired,
        forward.size - paired,
    )


def _degrees(degrees: np.ndarray) -> dict[str, float]:
    if not degrees.size:
        return {"mean": 0.0, "median": 0.0, "max": 0}
    mean, median = float(degrees.mean()), float(np.median(degrees))
    return {"mean": round(mean, 4), "median": median, "max": int(degrees.max())}


def _duplicates(graph: Graph, pairs: np.ndarray) -> int:
    keys = [pairs]
    if graph.edge_type is not None:
        keys.append(np.asarray(graph.edge_type))
    if graph.edge_time is not None:
        keys.append(np.asarray(graph.edge_time))
    order = np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(pairs, kind="stable")
    same = np.ones(max(0, pairs.size - 1), bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    return int(same.sum())


def rows_alike(features: Any) -> int | None:
    """How many rows of a dense matrix `[n, F]` are equal to an earlier row; None where it is
    sparse, typed, or has no column."""
    if not hasattr(features, "dtype") or getattr(features, "ndim", 0) != 2:
        return None
    rows = np.asarray(features)
    if not rows.shape[1]:
        return None
    # Two sums of the bits with odd multipliers stand for a row: 128 bits, in chunks.
    bits = np.uint32 if rows.dtype == np.float32 else np.uint16
    with np.errstate(over="ignore"):
        odd = np.random.Generator(np.random.Philox(0)).integers(
            0, 2**63, (rows.shape[1], 2), dtype=np.uint64
        ) * np.uint64(2) + np.uint64(1)
        marks = np.empty((len(rows), 2), np.uint64)
        step = max(1, (1 << 22) // rows.shape[1])
        for at in range(0, len(rows), step):
            piece = np.ascontiguousarray(rows[at : at + step] + 0).view(bits)
            marks[at : at + step] = piece.astype(np.uint64) @ odd
    order = np.lexsort((marks[:, 1], marks[:, 0]))
    return int((marks[order][1:] == marks[order][:-1]).all(axis=1).sum())
