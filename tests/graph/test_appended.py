"""`Graph.with_edges` gives the graph of all edges together, and refuses what is earlier."""

import jax
import numpy as np
import pytest

from jgs import Graph, InputError, kernels
from jgs.graph.appended import inserted

N, E = 30, 400
RNG = np.random.default_rng(0)
SRC, DST = RNG.integers(0, N, (2, E))
TIME = np.sort(RNG.integers(0, 60, E))
WEIGHT = RNG.choice([0, 1e-3, 1, 500.0], E).astype(np.float32)
BORN = np.full(N, 99)
np.minimum.at(BORN, np.r_[SRC, DST], np.r_[TIME, TIME])  # nodes exist from their first edge on
COLUMNS = {"price": RNG.normal(size=(E, 2)), "code": RNG.integers(0, 9, E)}
OPTIONS = {
    "plain": {},
    "weights": {"edge_weight": WEIGHT},
    "columns": {"edge_columns": COLUMNS},
    "nodes": {"node_time": BORN},
}


def part_of(value, some):
    return {n: a[some] for n, a in value.items()} if isinstance(value, dict) else value[some]


def assert_equal(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("with_kernels", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_appended_graph_is_that_of_all_edges(name, with_kernels, monkeypatch):
    """In several steps, one of them empty, with ties between steps and new nodes in two."""
    monkeypatch.setattr(kernels, "available", lambda: with_kernels)
    options = OPTIONS[name]
    of_edges = {n: v for n, v in options.items() if n != "node_time"}
    steps = [(0, 200, 20), (200, 200, 20), (200, 211, N), (211, 399, N), (399, E, N)]
    known = np.maximum(SRC, DST)
    first = known[:200] < 20
    keep = np.r_[np.flatnonzero(first), np.arange(200, E)]
    src, dst, time, born = SRC[keep], DST[keep], TIME[keep], BORN
    shift = 200 - int(first.sum())
    graph, at = None, 0
    for begin, end, nodes in steps:
        some = slice(max(begin - shift, 0), end - shift)
        own = {n: part_of(part_of(v, keep), some) for n, v in of_edges.items()}
        if "node_time" in options:
            own["node_time"] = born[at:nodes] if graph is None or nodes > at else None
        edges = (src[some], dst[some])
        if graph is None:
            graph = Graph.from_edges(*edges, nodes, edge_time=time[some], **own)
        else:
            graph = graph.with_edges(*edges, time[some], num_nodes=nodes, **own)
        at = nodes
    whole = {n: part_of(v, keep) for n, v in of_edges.items()}
    if "node_time" in options:
        whole["node_time"] = BORN
    made = Graph.from_edges(src, dst, N, edge_time=time, **whole)
    assert_equal(graph, made)


def test_a_relation_gets_later_edges():
    relations = [("a", "x", "b"), ("b", "y", "b"), ("a", "z", "b")]
    edges = {r: tuple(RNG.integers(0, 4, (2, 90))) for r in relations}
    times = {r: np.sort(RNG.integers(0, 9, 90)) for r in relations}
    sizes = {"a": 5, "b": 4}
    graph = Graph.from_relations(
        sizes,
        {r: (s[:50], d[:50]) for r, (s, d) in edges.items()},
        edge_time={r: np.minimum(t[:50], 3) for r, t in times.items()},
    )
    late = {r: np.maximum(t[50:], 3 + i * 6) for i, (r, t) in enumerate(times.items())}
    for r in relations:
        graph = graph.with_edges(*(end[50:] for end in edges[r]), late[r], relation=r[1])
    made = Graph.from_relations(
        sizes,
        edges,
        edge_time={r: np.r_[np.minimum(t[:50], 3), late[r]] for r, t in times.items()},
    )
    for name in ("indptr", "indices", "edge_type", "edge_time"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(made, name), strict=True)


def test_many_chunks_of_insertions():
    array = np.arange(300_000).reshape(-1, 2)
    at = np.sort(RNG.integers(0, len(array) + 1, 200_000))
    added = -np.arange(400_000).reshape(-1, 2)
    np.testing.assert_array_equal(
        inserted(array, at, added), np.insert(array, at, added, axis=0)
    )


def test_what_is_refused_in_one_line():
    graph = Graph.from_edges(SRC, DST, N, edge_time=TIME)
    last = int(TIME[-1])
    weighted = Graph.from_edges(SRC, DST, N, WEIGHT, edge_time=TIME)
    born = Graph.from_edges(SRC, DST, N, edge_time=TIME, node_time=BORN)
    columns = Graph.from_edges(SRC, DST, N, edge_time=TIME, edge_columns=COLUMNS)
    typed = Graph.from_relations(
        {"a": 3}, {("a", "to", "a"): ([0], [1])}, edge_time={("a", "to", "a"): [4]}
    )
    for said, call in {
        "must ascend; got 1 after 99 at position 1": lambda: graph.with_edges(
            [0, 1], [1, 2], [99, 1]
        ),
        f"not be earlier than the graph's latest, at {last}": lambda: graph.with_edges(
            [0], [1], [3]
        ),
        "must have times": lambda: Graph.from_edges(SRC, DST, N).with_edges([0], [1], [3]),
        "src must be node ids": lambda: graph.with_edges([N], [1], [99]),
        "at least the graph's 30": lambda: graph.with_edges([0], [1], [99], num_nodes=3),
        "must have weights": lambda: weighted.with_edges([0], [1], [99]),
        "graph's columns, code, price": lambda: columns.with_edges([0], [1], [99]),
        "times of the new nodes": lambda: born.with_edges([0], [1], [99], num_nodes=N + 1),
        "must have one; got none": lambda: typed.with_edges([0], [1], [99]),
        "edge_time must be integers": lambda: graph.with_edges([0], [1], [99.5]),
        "one entry for every edge": lambda: graph.with_edges([0], [1], [99, 100]),
    }.items():
        with pytest.raises(InputError, match=said) as caught:
            call()
        assert "\n" not in str(caught.value)
