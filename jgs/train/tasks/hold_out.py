"""`hold_out`: the pairs of nodes for training, validation and test of link prediction."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.edges.random import as_key_data


class HeldOut(NamedTuple):
    """A graph without the test's links, and the pairs of nodes of each split.

    Fields:
      graph: the observed graph. It has no edge, in either direction, of the test's links. It
        has those of the training and validation links.
      train, val, test: int32 `[n, 2]`, first links and then equally many pairs that no edge
        joins. A pair of nodes is in at most one of the three.
    """

    graph: Graph
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def hold_out(graph: Graph, key: Any, test_share: float, val_share: float) -> HeldOut:
    """Deals links, and equally many pairs without an edge, to training, validation and test.

    A link is a pair of two distinct nodes of `graph` that an edge joins in either direction.
    The pairs without an edge are drawn uniformly from all of them. `key` decides the draws.

    Shares of `test_share` and `val_share`, at least one link each, go to the test and to
    validation, the rest to training. Raises `InputError` for a graph with fewer than 3 links,
    or with more links than pairs without an edge.
    """
    num_nodes = graph.num_nodes
    indptr, src = np.asarray(graph.indptr), np.asarray(graph.indices).astype(np.int64)
    dst = np.repeat(np.arange(num_nodes), np.diff(indptr))
    code = np.minimum(src, dst) * num_nodes + np.maximum(src, dst)
    links = np.unique(code[src != dst])
    if links.size < 3:
        raise InputError(
            "a graph to learn links from must have at least 3", links.size, "Add edges."
        )
    if (others := num_nodes * (num_nodes - 1) // 2 - links.size) < links.size:
        raise InputError(
            "a graph to learn links from must have as many pairs without an edge as links",
            f"{others} for {links.size} links",
            "Give a graph with fewer edges.",
        )
    chance = np.random.default_rng(np.asarray(as_key_data(key)).tolist())
    chosen = chance.permutation(links)
    none = _without_edge(chance, links, num_nodes)
    num_test, num_val = (max(1, int(s * links.size)) for s in (test_share, val_share))
    if num_test + num_val >= links.size:
        raise InputError(
            "some links must be left to train on",
            f"{num_test} and {num_val} held out of {links.size}",
            "Lower --test-share or --val-share.",
        )
    bounds = (0, num_test, num_test + num_val, links.size)
    test, val, train = (
        _pairs(np.concatenate([chosen[a:b], none[a:b]]), num_nodes) for a, b in pairwise(bounds)
    )
    kept = ~np.isin(code, chosen[:num_test]) | (src == dst)
    return HeldOut(graph.edge_subgraph(kept), train, val, test)


def is_link(pairs: np.ndarray) -> np.ndarray:
    """bool `[n]`: which of `pairs`, a split of `HeldOut`, are links."""
    return np.arange(len(pairs)) < len(pairs) // 2


def _without_edge(chance: np.random.Generator, links: np.ndarray, num_nodes: int) -> np.ndarray:
    """As many distinct pairs as `links`, coded alike, that are no links; in random order."""
    found = np.empty(0, np.int64)
    while found.size < links.size:
        ends = np.sort(chance.integers(0, num_nodes, (2 * links.size, 2)), axis=1)
        code = ends[ends[:, 0] < ends[:, 1]] @ np.array([num_nodes, 1])
        both = np.concatenate([found, code[~np.isin(code, links)]])
        _, first = np.unique(both, return_index=True)
        found = both[np.sort(first)]
    return found[: links.size]


def _pairs(code: np.ndarray, num_nodes: int) -> np.ndarray:
    return np.stack(np.divmod(code, num_nodes), axis=1).astype(np.int32)
