"""`Frontier` and `Saint`: their distributions, edge cases, and kernels against plain JAX."""

from collections import Counter, defaultdict

import jax
import numpy as np
import pytest
from cases import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows_law import assert_as_often

import jgs
from jgs import Graph
from jgs.sampling import Frontier, Saint
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


KEYS = 4000
# Node 5 has no edges, 4 no in-edges, 3 no out-edges. 1 -> 0 is repeated, 2 -> 2 is a loop.
EDGES = np.array([(1, 0), (1, 0), (2, 0), (2, 2), (4, 2), (0, 1), (2, 3), (0, 3), (4, 3)])
N = 6
GRAPH = jgs.Graph.from_edges(*EDGES.T, N)
IN, OUT = (np.bincount(ends, minlength=N) for ends in EDGES.T[::-1])


def draw(sampler, graph=GRAPH, keys=KEYS, room=None, run=lambda f, *args: jax.jit(f)(*args)):
    """The subgraphs' nodes `[keys, room]`, and their counts."""
    state = sampler.node_state(graph)
    room = sampler.most_nodes(GraphShape.of(graph)) if room is None else room

    def nodes(key_data, graph, state):
        with jax.enable_x64(True):
            return sampler.draw_nodes(key_data, graph, state, room)

    key_data = jax.random.key_data(jax.random.split(jax.random.key(5), keys))
    return map(np.asarray, run(nodes, key_data, graph, state))


def column_norms():
    return np.bincount(EDGES[:, 0], 1.0 / IN[EDGES[:, 1]] ** 2, N)


@pytest.mark.parametrize(("mode", "weights"), [("node", column_norms()), ("degree", IN)])
def test_one_node_in_proportion_to_its_weight(mode, weights):
    nodes, count = draw(Saint(mode, 1))
    assert nodes.shape == (KEYS, 1)
    assert (count == 1).all()
    assert_as_often(np.bincount(nodes[:, 0], minlength=N), weights)


def test_one_edge_in_proportion_to_one_over_its_ends_degrees():
    nodes, count = draw(Saint("edge", 1))
    weight = 1 / IN[EDGES[:, 1]] + 1 / OUT[EDGES[:, 0]]
    expected, counts = np.zeros((N, N)), np.zeros((N, N), int)
    ends = np.sort(EDGES, axis=1)
    np.add.at(expected, tuple(ends.T), weight)  # 0 -> 1 and 1 -> 0 have the same ends
    single = nodes[:, 1] == N
    np.testing.assert_array_equal(count, np.where(single, 1, 2))
    np.add.at(counts, (nodes[:, 0], np.where(single, nodes[:, 0], nodes[:, 1])), 1)
    assert_as_often(counts, expected)


def test_the_edges_of_a_hub_are_drawn_evenly_to_the_last():
    """GraphSAINT itself, with float32 sums, never draws 80 % of 124 million edges."""
    degree = 40_000  # many runs of 64 edges, the last one not full
    source = np.arange(1, degree + 1)
    graph = jgs.Graph.from_edges(source, np.zeros_like(source), degree + 1)
    nodes, count = draw(Saint("edge", 200), graph, keys=200)
    found = np.concatenate([row[1:n] for row, n in zip(nodes, count, strict=True)])
    assert_as_often(np.bincount((found - 1) // 1000, minlength=40), np.ones(40))
    last = jgs.Graph.from_edges(np.r_[source, degree + 1], np.r_[source * 0, 1], degree + 2)
    nodes, _ = draw(Saint("edge", 40_000), last, keys=1)
    assert {0, 1, degree + 1} <= set(nodes[0].tolist())  # the last edge, and its ends


def test_walks_go_along_in_edges_from_all_nodes_alike():
    nodes, count = draw(Saint("walk", 1, length=1))
    expected, counts = np.zeros((N, N)), np.zeros((N, N), int)
    for source, target in EDGES:
        expected[min(source, target), max(source, target)] += 1 / IN[target]
    for node in np.flatnonzero(IN == 0):
        expected[node, node] += 1  # the walk cannot leave the node
    single = count == 1
    np.add.at(counts, (nodes[:, 0], np.where(single, nodes[:, 0], nodes[:, 1])), 1)
    assert_as_often(counts, expected)


@cases("sampler", Saint("node", 9), Saint("degree", 9), Saint("edge", 9), Saint("walk", 9, 3))
def test_a_subgraph_is_a_set_of_nodes(sampler):
    """The budget exceeds the number of nodes, and the room exceeds the true count."""
    nodes, count = draw(sampler, keys=50, room=N + 3)
    assert sampler.most_nodes(GraphShape.of(GRAPH)) == N
    for row, n in zip(nodes, count, strict=True):
        assert (np.diff(row[:n]) > 0).all()
        assert (row[n:] == N).all()
        assert (row[:n] < N).all()
    narrow, same = draw(sampler, keys=50, room=2)
    # The count is true even where the nodes do not fit.
    np.testing.assert_array_equal(same, count)
    assert narrow.shape == (50, 2)


@cases(
    "sampler", Saint("node", 50), Saint("degree", 50), Saint("edge", 50), Saint("walk", 20, 3)
)
def test_plain_and_kernel_draw_the_same(sampler, make_graph, alike):
    draw(sampler, make_graph(300, 4000), keys=3, run=alike)


def test_nodes_that_hubs_alone_hear_keep_their_weight():
    """The weight 1 / d**2 is far below the other weights, but the node can still be drawn."""
    hub = 50_000
    source = np.arange(1, hub + 1)
    graph = jgs.Graph.from_edges(np.r_[source, 0], np.r_[source * 0, 1], hub + 1)
    prefix = np.asarray(Saint("node", 1).node_state(graph))
    unit = np.diff(prefix, prepend=0).astype(float)
    np.testing.assert_allclose(unit[1:] / unit[0], 1 / hub**2, rtol=1e-6)
