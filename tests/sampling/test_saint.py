"""`Saint`: which nodes it draws, how often, and which graphs it takes."""

import jax
import numpy as np
import pytest
from cases import cases
from rows_law import assert_as_often

import jgs
from jgs.sampling import Saint
from jgs.sampling.capacity import GraphShape

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
