"""`Saint`: which nodes it draws, how often, and which graphs it takes."""

import jax
import numpy as np
import pytest
from scipy import stats

import jgs
from jgs import InputError, kernels
from jgs.sampling import Saint
from jgs.sampling.capacity import GraphShape

KERNELS = kernels.available()
KEYS = 4000
P_VALUE = 1e-4  # keys are fixed: a correct version always passes
# Node 5 has no edges, 4 no in-edges, 3 no out-edges. 1 -> 0 is repeated, 2 -> 2 is a loop.
EDGES = np.array([(1, 0), (1, 0), (2, 0), (2, 2), (4, 2), (0, 1), (2, 3), (0, 3), (4, 3)])
N = 6
GRAPH = jgs.Graph.from_edges(*EDGES.T, N)
IN, OUT = (np.bincount(ends, minlength=N) for ends in EDGES.T[::-1])


def draw(sampler, graph=GRAPH, keys=KEYS, room=None):
    """The subgraphs' nodes `[keys, room]`, and their counts."""
    state = sampler.node_state(graph)
    room = sampler.most_nodes(GraphShape.of(graph)) if room is None else room

    @jax.jit
    def nodes(key_data, graph, state):
        with jax.enable_x64(True):
            return sampler.draw_nodes(key_data, graph, state, room)

    key_data = jax.random.key_data(jax.random.split(jax.random.key(5), keys))
    return map(np.asarray, nodes(key_data, graph, state))


def assert_follows(counts, weights):
    expected = weights / weights.sum() * counts.sum()
    assert (counts[expected == 0] == 0).all()
    p = stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue
    assert p > P_VALUE, f"p={p}, expected {expected}, actual {counts}"


def column_norms():
    return np.bincount(EDGES[:, 0], 1.0 / IN[EDGES[:, 1]] ** 2, N)


@pytest.mark.parametrize(("mode", "weights"), [("node", column_norms()), ("degree", IN)])
def test_one_node_in_proportion_to_its_weight(mode, weights):
    nodes, count = draw(Saint(mode, 1))
    assert nodes.shape == (KEYS, 1)
    assert (count == 1).all()
    assert_follows(np.bincount(nodes[:, 0], minlength=N), weights)


def test_one_edge_in_proportion_to_one_over_its_ends_degrees():
    nodes, count = draw(Saint("edge", 1))
    weight = 1 / IN[EDGES[:, 1]] + 1 / OUT[EDGES[:, 0]]
    expected, counts = np.zeros((N, N)), np.zeros((N, N), int)
    ends = np.sort(EDGES, axis=1)
    np.add.at(expected, tuple(ends.T), weight)  # 0 -> 1 and 1 -> 0 have the same ends
    single = nodes[:, 1] == N
    np.testing.assert_array_equal(count, np.where(single, 1, 2))
    np.add.at(counts, (nodes[:, 0], np.where(single, nodes[:, 0], nodes[:, 1])), 1)
    assert_follows(counts.ravel(), expected.ravel())


def test_the_edges_of_a_hub_are_drawn_evenly_to_the_last():
    """GraphSAINT itself, with float32 sums, never draws 80 % of 124 million edges."""
    degree = 40_000  # many runs of 64 edges, the last one not full
    source = np.arange(1, degree + 1)
    graph = jgs.Graph.from_edges(source, np.zeros_like(source), degree + 1)
    nodes, count = draw(Saint("edge", 200), graph, keys=200)
    found = np.concatenate([row[1:n] for row, n in zip(nodes, count, strict=True)])
    assert stats.chisquare(np.bincount((found - 1) // 1000, minlength=40)).pvalue > P_VALUE
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
    assert_follows(counts.ravel(), expected.ravel())


@pytest.mark.parametrize(
    "sampler", [Saint("node", 9), Saint("degree", 9), Saint("edge", 9), Saint("walk", 9, 3)]
)
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


def test_plain_and_kernel_draw_the_same(make_graph, implemented):
    graph = make_graph(300, 4000)
    samplers = [Saint("node", 50), Saint("degree", 50), Saint("edge", 50), Saint("walk", 20, 3)]
    implemented(False)
    plain = [list(draw(sampler, graph, keys=3)) for sampler in samplers]
    for threads in (1, 4) if KERNELS else ():
        implemented(True, threads)
        for sampler, expected in zip(samplers, plain, strict=True):
            for mine, theirs in zip(draw(sampler, graph, keys=3), expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)


def test_nodes_that_hubs_alone_hear_keep_their_weight():
    """The weight 1 / d**2 is far below the other weights, but the node can still be drawn."""
    hub = 50_000
    source = np.arange(1, hub + 1)
    graph = jgs.Graph.from_edges(np.r_[source, 0], np.r_[source * 0, 1], hub + 1)
    prefix = np.asarray(Saint("node", 1).node_state(graph))
    unit = np.diff(prefix, prepend=0).astype(float)
    np.testing.assert_allclose(unit[1:] / unit[0], 1 / hub**2, rtol=1e-6)


@pytest.mark.parametrize("mode", ["node", "edge"])
def test_the_coefficients_are_one_over_the_probabilities(mode):
    """Coefficients of GraphSAINT's pre-sampling against those that the draws' weights imply."""
    chance, budget = column_norms(), 2
    if mode == "edge":
        weight = 1 / IN[EDGES[:, 1]] + 1 / OUT[EDGES[:, 0]]
        chance = np.array([weight[(node == EDGES).any(axis=1)].sum() for node in range(N)])
        chance /= weight.sum()
    else:
        chance /= chance.sum()
    inside = 1 - (1 - chance) ** budget
    state = Saint(mode, budget, norm_error=0.05).init(GRAPH)
    drawn = np.ceil(N / 0.05**2 / inside.sum())  # about so many subgraphs
    estimate = 1 / np.asarray(state.coefficients.nodes)[inside > 0]
    inside = inside[inside > 0]
    off = np.abs(estimate - inside) / np.sqrt(inside * (1 - inside) / drawn + 1e-12)
    assert (off < 5).all(), (estimate, inside)


def test_graphs_without_edges_and_of_one_node():
    empty = jgs.Graph.from_edges([], [], 4)
    for mode in ("node", "degree", "edge"):
        with pytest.raises(InputError, match="needs a graph with edges"):
            Saint(mode, 3).node_state(empty)
    nodes, count = draw(Saint("walk", 3, length=2), empty, keys=20)
    assert ((count >= 1) & (count <= 3)).all()  # only the roots
    one = jgs.Graph.from_edges([0], [0], 1)
    for sampler in (Saint("node", 3), Saint("edge", 3), Saint("walk", 3, length=2)):
        nodes, count = draw(sampler, one, keys=2)
        assert nodes.tolist() == [[0], [0]]
        assert count.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        (("nodes", 5), "mode must be one of"),
        (("node", 0), "budget must be an int"),
        (("walk", 5), "length must be an int"),
        (("edge", 5, 2), "a length goes with"),
        (("walk", 2**20, 2**12), "fewer than 2"),
    ],
)
def test_wrong_fields(fields, rule):
    with pytest.raises(InputError, match=rule):
        Saint(*fields)
