"""`Frontier`: its distribution, its edge cases, and its kernel against plain JAX."""

from collections import Counter, defaultdict

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows_law import assert_as_often

from jgs import Graph
from jgs.sampling import Frontier
from jgs.sampling.capacity import GraphShape


def keys(num, seed=0):
    return jax.random.key_data(jax.random.split(jax.random.key(seed), num))


def drawing(sampler, room):
    def draw(key_data, graph):
        with jax.enable_x64(True):
            return sampler.draw_nodes(key_data, graph, (), room)

    return draw


def node_sets(sampler, graph, num=20, seed=0):
    """The sets of nodes of `num` subgraphs, which have them in ascending order."""
    draw = drawing(sampler, sampler.most_nodes(GraphShape.of(graph)))
    nodes, counts = map(np.asarray, jax.jit(draw)(keys(num, seed), graph))
    found = [tuple(row[:n].tolist()) for row, n in zip(nodes, counts, strict=True)]
    assert all(list(each) == sorted({*each}) for each in found)
    return found


# Node 0 has a loop and parallel edges, node 4 no in-edges, node 5 no edges.
SOURCES, TARGETS = [0, 1, 1, 1, 2, 3, 0, 0, 0, 4, 2, 1, 4], [0] * 6 + [1] * 3 + [2, 3, 2, 3]
SMALL = Graph.from_edges(SOURCES, TARGETS, 6)


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
    "sampler",
    [
        Frontier(2, 5, 1, 100),  # cleaned up before almost every pop
        Frontier(2, 5, 1.3, 3),
        Frontier(3, 7, 1.5, 2),
        Frontier(1, 14, 1000, 1),  # cleaned up only after eight dead entries
    ],
    ids=repr,
)
def test_nodes_are_popped_in_proportion_to_their_capped_degree(sampler):
    num, expected = 20_000, law(SMALL, sampler.m, sampler.budget, sampler.degree_cap)
    found = Counter(node_sets(sampler, SMALL, num, seed=sampler.m))
    assert found.keys() <= expected.keys()
    rare = {nodes for nodes, p in expected.items() if num * p <= 8}
    kinds = [*([nodes] for nodes in expected.keys() - rare), rare]
    counts, chances = ([sum(of[s] for s in kind) for kind in kinds] for of in (found, expected))
    if num * chances[-1] < 1:
        assert counts.pop() < 10
        chances.pop()
    assert len(counts) > 4
    assert_as_often(counts, chances)


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


# Both rules of cleaning up: a table that has grown too long, and eight dead entries in a row.
CASES = [drawing(s, 20) for s in (Frontier(40, 170, 1.5), Frontier(3, 90, 100, 2))]


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_kernel_is_plain(alike, data):
    """For every graph. Graphs with equally many edges share programs."""
    num_edges = data.draw(st.sampled_from([0, 40]))
    node = st.integers(0, data.draw(st.integers(1, 23)))
    ends = [data.draw(st.lists(node, min_size=num_edges, max_size=num_edges)) for _ in "st"]
    graph, key_data = Graph.from_edges(*ends, 24), keys(5, data.draw(st.integers(0, 2**31)))
    for draw in CASES:
        alike(draw, key_data, graph)


def test_kernel_is_plain_at_large_sizes(make_graph, alike):
    """Many cleanups, several blocks of random bits, and several digits of the sort."""
    draw = drawing(Frontier(300, 2000, 1.25), 2000)
    _, counts = alike(draw, keys(3), make_graph(5000, 60_000), threads=(2,))
    assert (counts > 700).all()
