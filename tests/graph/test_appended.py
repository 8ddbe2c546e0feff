"""`Graph.with_edges` gives the graph of all edges together, and refuses what is earlier."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from jgs import Graph, kernels
from jgs.graph.changed import inserted
from jgs.graph.weights import weight_prefix_sums

N, E = 30, 400
RNG = np.random.default_rng(0)
SRC, DST = RNG.integers(0, N, (2, E))
TIME = np.sort(RNG.integers(0, 60, E))
WEIGHT = RNG.choice([0, 1e-3, 1, 500.0], E).astype(np.float32)
BORN = np.full(N, 99)
np.minimum.at(BORN, np.r_[SRC, DST], np.r_[TIME, TIME])  # nodes exist from their first edge on
COLUMNS = {"price": RNG.normal(size=(E, 2)), "code": RNG.integers(0, 9, E)}


@st.composite
def growing(draw):
    """Steps of a graph: its size then, the new edges and the times of the new nodes."""
    steps, size, now = [], draw(st.integers(0, 4)), draw(st.integers(-5, 5))
    for _ in range(draw(st.integers(1, 4))):
        num = draw(st.integers(0, 12)) if size else 0
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        new = size - (steps[-1][0] if steps else 0)
        time = now + np.sort(rng.integers(0, 3, num))
        now = int(time.max(initial=now))
        weight = np.float32(2.0) ** rng.integers(-150, 127, num) * rng.integers(0, 2, num)
        ends, column = rng.integers(0, max(size, 1), (2, num)), rng.normal(size=(num, 2))
        own = weight.astype(np.float32), column, rng.integers(-9, 12, new)
        steps.append((size, *ends, time, *own))
        size += draw(st.integers(0, 3))
    return steps


@given(growing(), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_a_graph_that_grows_is_that_of_all_edges(same_bits, steps, weighted, born, by_kernels):
    """Also where nodes are born after their edges' times, which raises those."""
    graph, seen = None, []
    for step in steps:
        size, src, dst, time, weight, column, new = step
        options = {"edge_columns": {"c": column}}
        options |= {"edge_weight": weight} if weighted else {}
        options |= {"node_time": new} if born else {}
        known = [] if graph is None else np.asarray(graph.edge_time)
        latest = np.max(known, initial=-(2**63))  # births may have raised it
        step = (*step[:3], np.maximum(time, latest.astype(int)), *step[4:])
        seen.append(step)
        if graph is None:
            graph = Graph.from_edges(src, dst, size, edge_time=time, **options)
            continue
        with pytest.MonkeyPatch.context() as patch:
            if not by_kernels:
                patch.setattr(kernels, "available", lambda: False)
            graph = graph.with_edges(src, dst, step[3], num_nodes=size, **options)
    fields = list(zip(*seen, strict=True))[1:]
    src, dst, time, weight, column, new = map(np.concatenate, fields)
    options = {"edge_weight": weight} if weighted else {}
    options |= {"node_time": new} if born else {}
    options["edge_columns"] = {"c": column}
    made = Graph.from_edges(src, dst, steps[-1][0], edge_time=time, **options)
    same_bits(graph, made)


def test_history_stays_and_orders_do_not_meet(tmp_path, same_bits):
    """A part of a saved graph gets edges: it does not change, nor what was before them."""
    graph = Graph.from_edges(SRC, DST, N, WEIGHT, edge_time=TIME)
    graph.save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g").edge_subgraph(np.arange(E) % 3 > 0)
    before = jax.tree.map(lambda a: np.array(a), opened)
    more = opened.with_edges([1, 2], [2, 2], [60, 60], edge_weight=[1, 1], num_nodes=N + 5)
    same_bits(jax.tree.map(np.asarray, opened), before)
    after = more.edge_subgraph(np.asarray(more.edge_time) < 60).subgraph(np.arange(N))
    same_bits(jax.tree.map(np.asarray, after), before)
    assert int(np.max(opened.edge_order)) > opened.num_edges  # new edges must not begin there
    order = np.asarray(more.edge_order)
    assert np.unique(order).size == order.size
    new = np.flatnonzero(np.asarray(more.edge_time) == 60)
    assert np.diff(order[new]).tolist() == [1]
    assert np.asarray(more.indices)[new].tolist() == [1, 2]


@pytest.mark.parametrize("weighted", [False, True])
def test_relations_of_the_same_days_get_edges(weighted, same_bits):
    """Each call is of a relation and its reverse, whose times are those of the call before."""
    relation, reverse, sizes = ("a", "x", "b"), ("b", "rev_x", "a"), {"a": 5, "b": 4}
    src, dst = RNG.integers(0, 5, 90), RNG.integers(0, 4, 90)
    time = np.sort(RNG.integers(0, 9, 90))
    weight = WEIGHT[:90]

    def built(stop):
        own = {"edge_weight": {relation: weight[:stop]}} if weighted else {}
        edges, times = {relation: (src[:stop], dst[:stop])}, {relation: time[:stop]}
        return Graph.from_relations(sizes, edges, edge_time=times, both_ways=True, **own)

    graph = built(30)
    given_ends = np.c_[np.r_[src[:30], dst[:30] + 5], np.r_[dst[:30] + 5, src[:30]]]
    for some in (slice(30, 70), slice(70, 90)):
        for one, ends in ((relation, (src, dst)), (reverse, (dst, src))):
            a, b = (end[some] for end in ends)
            own = {"edge_weight": weight[some]} if weighted else {}
            graph = graph.with_edges(a, b, time[some], relation=one[1], **own)
            shift = (0, 5) if one == relation else (5, 0)
            given_ends = np.r_[given_ends, np.c_[a + shift[0], b + shift[1]]]
    made = built(90)
    same_bits(graph._with(edge_order=None), made._with(edge_order=None))
    np.testing.assert_array_equal(graph.edge_index().T, given_ends[graph.edge_order])
    early = [time[-1] - 1]
    refused("the relation's latest, at", graph.with_edges, [0], [0], early, relation="x")


def test_a_relation_gets_edges_amid_rows(same_bits):
    """Rows have edges of other relations after those that are appended, of other weights."""
    relations = [("a", "x", "b"), ("b", "y", "b"), ("a", "z", "b")]
    edges = {r: tuple(RNG.integers(0, 4, (2, 90))) for r in relations}
    times = {r: np.sort(RNG.integers(0, 9, 90)) for r in relations}
    weights = {r: 2.0 ** RNG.integers(0, 3, 90) for r in relations}

    def built(stop):
        part = {r: (s[:stop], d[:stop]) for r, (s, d) in edges.items()}
        own = {r: w[:stop] for r, w in weights.items()}
        time = {r: t[:stop] for r, t in times.items()}
        return Graph.from_relations({"a": 5, "b": 4}, part, own, edge_time=time)

    graph = built(86)
    for r in relations:
        ends, own = (end[86:] for end in edges[r]), weights[r][86:]
        graph = graph.with_edges(*ends, times[r][86:], relation=r, edge_weight=own)
    same_bits(graph._with(edge_order=None), built(90)._with(edge_order=None))


def test_insertions_of_many_chunks_and_of_empty_rows():
    array = np.arange(300_000).reshape(-1, 2)
    at = np.sort(RNG.integers(0, len(array) + 1, 200_000))
    added = -np.arange(400_000).reshape(-1, 2)
    found = inserted(array, at, added)
    np.testing.assert_array_equal(found, np.insert(array, at, added, axis=0))
    assert inserted(np.zeros((3, 0)), np.array([1, 3]), np.zeros((2, 0))).shape == (5, 0)


def test_what_is_refused_in_one_line():
    def made(**options):
        return Graph.from_edges(SRC, DST, N, **({"edge_time": TIME} | options))

    plain, weighted, born = made(), made(edge_weight=WEIGHT), made(node_time=BORN)
    columns, last = made(edge_columns=COLUMNS), int(TIME[-1])
    small = Graph.from_edges([0], [0], 1, edge_columns={"c": np.int8([3])}, edge_time=[1])
    numbers = Graph([0, 1, 2], [0, 1], edge_type=[0, 1], edge_time=[3, 4])
    relation = ("a", "to", "a")
    edges, times = {relation: ([0], [1])}, {"edge_time": {relation: [4]}}
    typed = Graph.from_relations({"a": 3}, edges, **times)
    none = np.array(["NaT"], "datetime64[s]")

    def priced(price):
        return {"edge_columns": {"price": price, "code": [1]}}

    like = "'price' must be like the graph's, float64[1, 2]; got float64"
    for graph, edge, options, said in (
        (plain, ([0, 1], [1, 2], [99, 1]), {}, "must ascend; got 1 after 99 at position 1"),
        (plain, ([0], [1], [3]), {}, f"earlier than the graph's latest, at {last}"),
        (made(edge_time=None), ([0], [1], [3]), {}, "must have times"),
        (plain, ([N], [1], [99]), {}, "src must be node ids"),
        (plain, ([0], [1], [99]), {"num_nodes": 3}, "at least the graph's 30"),
        (weighted, ([0], [1], [99]), {}, "must have edge_weight"),
        (columns, ([0], [1], [99]), {}, "graph's columns, code, price"),
        (born, ([0], [1], [99]), {"num_nodes": N + 1}, "times of new nodes must be given"),
        (typed, ([0], [1], [99]), {}, "must have one; got none"),
        (numbers, ([0], [1], [9]), {}, "graph with edge_type must have a schema"),
        (columns, ([0], [1], [99]), priced([[3.5, 4, 5]]), like + "[1, 3]"),
        (columns, ([0], [1], [99]), priced([[1j, 2]]), "'price' must *; got complex128"),
        (small, ([0], [0], [9]), {"edge_columns": {"c": [3.5]}}, "int8*; got float64"),
        (small, ([0], [0], [9]), {"edge_columns": {"c": [300]}}, "int8; got 300 at edge 0"),
        (plain, ([0], [1], [99]), {"relation": "x"}, "must be for a graph with relations"),
        (plain, ([0], [1], [99]), {"node_time": [3]}, "times of new nodes must be given"),
        (plain, ([0], [1], [2**63 - 1]), {}, "time must be below"),
        (plain, ([0], [1], none), {}, "none may be missing; got NaT at position 0"),
        (plain, ([0], [1], [99.5]), {}, "time must be integers"),
        (plain, ([0], [1], [99, 100]), {}, "one entry for every edge"),
    ):
        refused(said, graph.with_edges, *edge, **options)


def test_rows_of_weights_are_made_again_only_where_their_unit_changes(monkeypatch):
    """65 edges are another power of two than 64; a larger weight is another exponent."""
    src, dst = np.zeros(64 + 64 + 60, int), np.repeat([0, 1, 2], [64, 64, 60])
    graph = Graph.from_edges(src, dst, 3, np.ones(src.size), edge_time=src)
    seen = []

    def made(indptr, weight):
        seen.append(np.diff(indptr).tolist())
        return weight_prefix_sums(indptr, weight)

    monkeypatch.setattr("jgs.graph.changed.weight_prefix_sums", made)
    for row, weight, again in ((2, 1.5, []), (2, 0, []), (0, 1, [[65]]), (2, 2, [[63]])):
        seen.clear()
        graph = graph.with_edges([1], [row], [1], edge_weight=[weight])
        assert seen == again
        whole = weight_prefix_sums(np.asarray(graph.indptr), np.asarray(graph.edge_weight))
        np.testing.assert_array_equal(graph.edge_weight_prefix, whole)
