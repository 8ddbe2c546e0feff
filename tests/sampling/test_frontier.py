"""`Frontier`: its distribution, its edge cases, and its kernel against plain JAX."""

import math
from collections import Counter, defaultdict
from functools import cache, partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jgs import Graph, InputError, kernels
from jgs.sampling import Frontier
from jgs.sampling.algorithms.subgraphs.frontier import draw_kernel, draw_plain
from jgs.sampling.capacity import GraphShape

RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)
needs_kernels = pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")


def keys(num, seed=0):
    return jax.random.key_data(jax.random.split(jax.random.key(seed), num))


def node_sets(sampler, graph, num=20, seed=0):
    """The sets of nodes of `num` subgraphs. The subgraphs' format is checked too."""
    room = sampler.most_nodes(GraphShape.of(graph)) + 1
    with jax.enable_x64(True):
        draw = jax.jit(lambda key_data, graph: sampler.draw_nodes(key_data, graph, (), room))
        nodes, count = map(np.asarray, draw(keys(num, seed), graph))
    assert nodes.dtype == count.dtype == np.int32
    assert (count < room).all()
    for row, n in zip(nodes, count, strict=True):
        assert (np.diff(row[:n]) > 0).all()
        assert row[0] >= 0
        assert (row[n:] == graph.num_nodes).all()
    return [tuple(row[:n].tolist()) for row, n in zip(nodes, count, strict=True)]


# Node 0 has a loop and parallel edges, node 4 no in-edges, node 5 no edges.
SMALL = Graph.from_edges(
    [0, 1, 1, 1, 2, 3, 0, 0, 0, 4, 2, 1, 4],
    [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 3, 2, 3],
    6,
)


def law(graph, m, budget, degree_cap):
    """The probability of every set of nodes: Algorithm 2, summed over all its courses."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices).tolist()
    rows = [indices[indptr[v] : indptr[v + 1]] for v in range(graph.num_nodes)]
    weight = [min(len(row), degree_cap) for row in rows]
    # State: the frontier in ascending order, and the nodes so far.
    now = {((), frozenset()): 1.0}
    for _ in range(m):
        then = defaultdict(float)
        for (frontier, met), p in now.items():
            for v in range(graph.num_nodes):
                then[tuple(sorted((*frontier, v))), met | {v}] += p / graph.num_nodes
        now = then
    for _ in range(budget - m):
        then = defaultdict(float)
        for (frontier, met), p in now.items():
            total = sum(weight[v] for v in frontier)
            if total == 0:
                then[frontier, met] += p
            for i, v in enumerate(frontier):
                for u in rows[v]:
                    rest = tuple(sorted((*frontier[:i], u, *frontier[i + 1 :])))
                    then[rest, met | {v}] += p * weight[v] / total / len(rows[v])
        now = then
    sets = defaultdict(float)
    for (_, met), p in now.items():
        sets[tuple(sorted(met))] += p
    return sets


@pytest.mark.parametrize(
    ("m", "budget", "degree_cap", "enlargement"),
    [
        (2, 5, 100, 1),  # cleaned up before almost every pop
        (2, 5, 3, 1.3),
        (3, 7, 2, 1.5),
        (1, 14, 1, 1000),  # cleaned up only after eight dead entries
    ],
)
def test_nodes_are_popped_in_proportion_to_their_capped_degree(
    m, budget, degree_cap, enlargement
):
    num, sampler = 20_000, Frontier(m, budget, enlargement, degree_cap)
    expected = law(SMALL, m, budget, degree_cap)
    assert math.isclose(sum(expected.values()), 1)
    found = Counter(node_sets(sampler, SMALL, num, seed=m))
    assert found.keys() <= expected.keys()
    often = [nodes for nodes, p in expected.items() if num * p > 8]
    means, counts = [num * expected[s] for s in often], [found[s] for s in often]
    means, counts = [*means, num - sum(means)], [*counts, num - sum(counts)]
    if means[-1] < 1:  # rare outcomes are counted as one
        assert counts.pop() < 10
        means = np.array(means[:-1]) * sum(counts) / sum(means[:-1])
    assert len(counts) > 4
    _, p = stats.chisquare(counts, means)
    assert p > 1e-4, f"p={p}, expected {means}, actual {counts}"


def test_graphs_of_one_node_of_isolated_ones_and_smaller_than_the_frontier():
    bare, loop = Graph([0, 0], []), Graph([0, 3], [0, 0, 0])
    for graph in (bare, loop):
        assert set(node_sets(Frontier(3, 9), graph)) == {(0,)}
    isolated = Graph(np.zeros(101, int), [])
    assert node_sets(Frontier(7, 500), isolated) == node_sets(Frontier(7, 7), isolated)
    assert max(map(len, node_sets(Frontier(7, 500), isolated))) == 7
    assert set(node_sets(Frontier(200, 230), SMALL)) == {tuple(range(6))}
    # All edges go to 0, which is a dead end, so each slot is popped at most once.
    star = Graph.from_edges(np.zeros(50, int), np.arange(1, 51), 51)
    for nodes in node_sets(Frontier(4, 1000, degree_cap=1), star):
        assert 1 <= len(nodes) <= 4
    # One walker in a ring: the first node popped is the node where it began.
    ring = Graph.from_edges(np.arange(50), (np.arange(50) + 1) % 50, 50)
    assert {len(nodes) for nodes in node_sets(Frontier(1, 33), ring)} == {32}
    with pytest.raises(InputError, match="a graph with nodes; got none"):
        Frontier().init(Graph([0], []))


def test_a_subgraph_depends_on_its_key_alone():
    every = node_sets(Frontier(2, 9), SMALL, 7)
    assert len(set(every)) > 1
    sampler, key_data = Frontier(2, 9), keys(7)
    with jax.enable_x64(True):
        for at in (0, 6):
            nodes, count = sampler.draw_nodes(key_data[at : at + 1], SMALL, (), 9)
            assert tuple(nodes[0, : count[0]].tolist()) == every[at]
            few, same = sampler.draw_nodes(key_data[at : at + 1], SMALL, (), 1)
            assert (few.shape, same.tolist()) == ((1, 1), count.tolist())


# Both rules of cleaning up: a table that has grown too long, and eight dead entries in a row.
CASES = (Frontier(40, 170, 1.5), Frontier(3, 90, 100, 2))


@cache
def program(draw, sampler, threads):
    def run(key_data, graph):
        before, kernels.NUM_THREADS = kernels.NUM_THREADS, threads  # read while tracing
        try:
            return draw(key_data, graph, sampler, 20)
        finally:
            kernels.NUM_THREADS = before

    return jax.jit(run)


@needs_kernels
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_kernel_is_plain(data):
    """The kernel draws as plain JAX does, for every graph and thread count. Graphs with equally
    many edges share programs."""
    num_edges = data.draw(st.sampled_from([0, 40]))
    node = st.integers(0, data.draw(st.integers(1, 23)))
    ends = [data.draw(st.lists(node, min_size=num_edges, max_size=num_edges)) for _ in "st"]
    graph, key_data = Graph.from_edges(*ends, 24), keys(5, data.draw(st.integers(0, 2**31)))
    with jax.enable_x64(True):
        for sampler in CASES:
            plain = program(draw_plain, sampler, 0)(key_data, graph)
            for threads in (1, 2, 4):
                kernel = program(draw_kernel, sampler, threads)(key_data, graph)
                for mine, same in zip(kernel, plain, strict=True):
                    np.testing.assert_array_equal(mine, same)


@needs_kernels
def test_kernel_is_plain_at_large_sizes(make_graph):
    """Many cleanups, several blocks of random bits, and several digits of the sort."""
    graph, key_data = make_graph(5000, 60_000), keys(3)
    sampler = Frontier(300, 2000, 1.25)
    found = []
    with jax.enable_x64(True):
        for draw in (draw_plain, draw_kernel):
            found.append(jax.jit(partial(draw, sampler=sampler, room=2000))(key_data, graph))
    (plain, counts), (kernel, same) = found
    np.testing.assert_array_equal(kernel, plain)
    np.testing.assert_array_equal(same, counts)
    assert (counts > 700).all()


@needs_kernels
def test_a_damaged_graph_is_refused(make_graph):
    graph = make_graph(500, 6000)
    indptr, arrays = np.array(graph.indptr), {"indices": np.array(graph.indices)}
    damaged = [Graph.from_edge_arrays(indptr, {"indices": arrays["indices"] + 498})]
    damaged.append(Graph.from_edge_arrays(indptr, {"indices": arrays["indices"] - 499}))
    for value in (7000, -9, 2**40):
        wrong = indptr.copy()
        wrong[1:-1] = value
        damaged.append(Graph.from_edge_arrays(wrong, arrays))
    with jax.enable_x64(True):
        for one in damaged:
            draw = jax.jit(partial(draw_kernel, sampler=Frontier(100, 400), room=400))
            with pytest.raises(RUNTIME_ERRORS, match="damaged"):
                jax.block_until_ready(draw(keys(3), one))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"m": 0}, "m must be an int of at least 1; got 0"),
        (
            {"m": 10, "budget": 9},
            "budget must be at least m, and below 2**31; got budget=9, m=10",
        ),
        ({"budget": 2**31}, "below 2**31"),
        ({"degree_cap": 0}, "degree_cap must be an int of at least 1; got 0"),
        ({"degree_cap": 2.5}, "got 2.5"),
        ({"enlargement": 0.9}, "enlargement must be at least 1; got 0.9"),
        ({"enlargement": math.nan}, "got nan"),
        ({"enlargement": math.inf}, "must be below 2**31"),
        ({"enlargement": "2"}, "got '2'"),
        ({"degree_cap": 2**21}, "enlargement must be below 2**31; got 1000 * 2097152 * 2.0"),
    ],
)
def test_wrong_fields_are_refused_in_one_line(fields, says):
    with pytest.raises(InputError) as error:
        Frontier(**fields)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
