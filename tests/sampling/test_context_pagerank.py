"""`ByPageRank`: scores beside a dense solution, what every context keeps, and equal bits."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from jgs import Graph, kernels
from jgs.graph import as_device
from jgs.sampling import Context, Seeds
from jgs.sampling.contexts import pagerank
from jgs.sampling.contexts.pagerank import ByPageRank, page_rank
from jgs.settings import exact_integers

N, E, B = 7, 30, 9
RELATIONS = [("a", name, "a") for name in ("buys", "likes", "sees")]
ANY = {"buys": 0, ("a", "likes", "a"): 3, "*": 1}
HOLES = 3  # excluded edges


def graph_of(seed, num_nodes=N, num_edges=E, typed=True):
    """Parallel edges, self-loops, ties, nodes without edges into or out of them."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, num_nodes - 1, (2, num_edges))
    dst = np.where(rng.random(num_edges) < 0.3, dst // 3, dst)  # few nodes have many
    time, kind = rng.integers(0, 4, num_edges), rng.integers(0, 3, num_edges)
    if not typed:
        return Graph.from_edges(src, dst, num_nodes, edge_time=time)
    parts = [kind == i for i in range(3)]
    edges = {r: (src[p], dst[p]) for r, p in zip(RELATIONS, parts, strict=True)}
    times = {r: time[p] for r, p in zip(RELATIONS, parts, strict=True)}
    return Graph.from_relations({"a": num_nodes}, edges, edge_time=times)


def columns_of(graph):
    """Source, target, type and time of each edge."""
    types = np.zeros(graph.num_edges, int) if graph.edge_type is None else graph.edge_type
    return *graph.edge_index(), np.asarray(types), np.asarray(graph.edge_time)


def eligible_weights(graph, way, cutoff=None, excluded=()):
    """Each edge's weight, 0 for one that is not eligible."""
    *_, types, time = columns_of(graph)
    weight = np.ones(3)
    if way.weights is not None:
        weight = np.array([0, 3, 1])
        assert way.weights == pagerank.RelationWeights(ANY)
    weight = weight[types]
    weight[np.asarray(excluded, int)[np.asarray(excluded) < graph.num_edges]] = 0
    return np.where(time < (np.inf if cutoff is None else cutoff), weight, 0)


def dense_page_rank(graph, way, seed, weight):
    """float64 `[N]`, by the linear system of how often the walk is at each node."""
    source, target, *_ = columns_of(graph)
    goes = np.zeros((graph.num_nodes,) * 2)
    np.add.at(goes, (target, source), weight)
    total = goes.sum(1, keepdims=True)
    goes = np.divide(goes, total, out=np.zeros_like(goes), where=total > 0)
    begin = np.arange(graph.num_nodes) == seed
    visits = np.linalg.solve(np.eye(len(goes)) - (1 - way.restart) * goes.T, begin)
    return visits * np.where(total[:, 0] > 0, way.restart, 1)


@cache
def program(way, size):
    def find(graph, seeds):
        with exact_integers():
            found = way.find(jnp.zeros(2, jnp.uint32), graph, (), seeds, size)
            return found, pagerank._found(graph, seeds, way, size)[1]

    return find


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("weights", [None, ANY])
@pytest.mark.parametrize("epsilon", [1e-9, 0.01])
def test_scores_beside_the_dense_solution(epsilon, weights, plain):
    """To 1e-6 for a small epsilon, and for any within what the docstring allows."""
    graph, cutoffs = graph_of(3, 40, 200), np.array([4, 3, 2, 2, 1, 9, 0, 4])
    seeds = np.array([0, 5, 1, 0, 2, 39, 7, 40], np.int32)
    excluded, way = np.array([2, 3, 50, 90]), ByPageRank(0.2, epsilon, weights)
    with kernels.plain(plain):
        nodes, scores = page_rank(way, graph, Seeds(seeds, cutoffs, excluded), 40)
    reached = 0
    for seed, cutoff, row, found in zip(seeds, cutoffs, nodes, np.asarray(scores), strict=True):
        if seed == 40:
            assert not found.any()
            assert (row == 40).all()
            continue
        weight = eligible_weights(graph, way, cutoff, excluded)
        exact = dense_page_rank(graph, way, seed, weight)
        scored = np.zeros(41)
        scored[row] = found
        missing = exact - scored[:40]
        allowed = epsilon * (np.count_nonzero(weight) + 40)
        assert (missing > -1e-8).all()
        assert missing.max() < min(allowed, 1) + 1e-8
        assert epsilon > 1e-8 or missing.max() < 1e-6
        reached += np.count_nonzero(found)
    assert reached > 60


def test_no_mass_is_lost_and_a_hub_keeps_what_it_does_not_push():
    graph = graph_of(3, 40, 130)
    with exact_integers():
        row, weight = graph.edge_index()[1], jnp.ones(130, jnp.int64)
        for epsilon in (1e-9, 1e-3, 0.04):
            way = ByPageRank(0.3, epsilon)
            masses = pagerank._pushed(graph, jnp.array(row), weight, jnp.int32(0), way)
            assert int(masses.stopped.sum() + masses.left.sum()) == 2**62
            assert (masses.left >= 0).all()
    star = Graph.from_edges([0, *range(2, 50)], [1, *[0] * 48], 50)
    nodes, scores = page_rank(ByPageRank(0.5, 0.1), star, [1], 4)
    assert nodes.tolist() == [[1, 0, 50, 50]]
    assert scores.tolist() == [[0.5, 0.25, 0, 0]]


def check_context(graph, weight, seed, tokens, size):
    """The order of a context's tokens (node, hop, parent, edge, score), and that each was
    reached along an eligible edge, the last of those alike."""
    source, target, types, _ = columns_of(graph)
    real = [t for t in tokens if t[0] < N]
    assert tokens[len(real) :] == [(N, 0, N, E, 0)] * (size - len(real))
    if seed == N:
        assert not real
        return
    assert real[0][:4] == (seed, 0, N, E)
    order = [(-score, hop, node) for node, hop, _, _, score in real[1:]]
    assert order == sorted(order)
    hops = {node: hop for node, hop, *_ in real}
    assert len(hops) == len(real)
    for node, hop, parent, edge, score in real[1:]:
        assert (source[edge], target[edge]) == (node, parent)
        alike = (source == node) & (target == parent) & (types == types[edge]) & (weight > 0)
        assert edge == np.flatnonzero(alike)[-1]
        assert hops.get(parent, hop - 1) == hop - 1
        assert score > 0


WAYS = [ByPageRank(0.1, 1e-6), ByPageRank(0.15, 1e-4, ANY), ByPageRank(0.5, 0.02)]


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize("timed", [True, False])
def test_kernel_is_plain_and_contexts_keep_their_laws(timed, way, alike, same_bits):
    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(st.integers(0, 1000), st.booleans())
    def check(number, typed):
        typed = typed or way.weights is not None
        graph, rng = graph_of(number, typed=typed), np.random.default_rng(number)
        excluded = np.sort(rng.choice(E + 1, HOLES, replace=False))
        cutoffs = rng.integers(0, 6, B) if timed else None
        seeds = Seeds(np.int32(rng.integers(0, N + 1, B)), cutoffs, excluded)
        found, scores = alike(program(way, N + 2), graph, seeds, threads=(1, 2, 4))
        smaller, _ = jax.jit(program(way, 3))(graph, seeds)
        same_bits(jax.device_get(smaller), jax.tree.map(lambda a: a[:, :3], found))
        for i, seed in enumerate(seeds.nodes):
            tokens = list(zip(*(a[i].tolist() for a in (*found, scores)), strict=True))
            cutoff = None if cutoffs is None else cutoffs[i]
            weight = eligible_weights(graph, way, cutoff, excluded)
            check_context(graph, weight, seed, tokens, N + 2)

    check()


def test_the_edge_is_that_which_carried_most_then_of_the_smaller_parent_then_the_last():
    """Of the seed's neighbours 1, 2 and 3 in the first round; 3 has fewer neighbours."""
    ends = [(1, 0), (2, 0), (3, 0), (4, 1), (4, 1), (5, 1), (4, 2), (5, 2), (6, 2), (6, 3)]
    source, target = np.array(ends).T
    time = np.array([0, 0, 0, 3, 1, 0, 0, 0, 0, 0])
    graph = Graph.from_edges(source, target, 7, edge_time=time)
    found, _ = program(ByPageRank(), 8)(graph, Seeds(np.int32([0]), [9]))
    edges = dict(zip(found.nodes[0].tolist(), found.edge[0].tolist(), strict=True))
    del edges[0], edges[7]
    target, time = np.array(graph.edge_index()[1]), np.array(graph.edge_time)
    ends = {node: (target[edge], time[edge]) for node, edge in edges.items()}
    assert ends == {1: (0, 0), 2: (0, 0), 3: (0, 0), 4: (1, 3), 5: (1, 0), 6: (3, 0)}


def test_contexts_of_a_super_batch_whatever_the_keys(same_bits):
    graph, sampler = graph_of(5), Context(6, ByPageRank(weights=ANY))
    nodes, cutoffs = np.arange(8).reshape(2, 4) % (N + 1), np.arange(8).reshape(2, 4)
    keys = jax.random.split(jax.random.key(1))
    drawn = sampler.sample(keys, graph, sampler.init(graph), Seeds(nodes, cutoffs))
    for i in range(2):
        seeds = Seeds(nodes[i], cutoffs[i])
        found, _ = page_rank(sampler.way, graph, seeds, 6)
        np.testing.assert_array_equal(drawn.nodes[i], found.reshape(-1))
        one = sampler.sample(keys[1 - i], graph, (), seeds)
        same_bits(jax.tree.map(lambda a, i=i: a[i], drawn.tokens), one.tokens)


def test_tiny_graphs_and_repeated_seeds():
    for graph in (Graph([0, 0, 0], []), Graph([0, 1, 1], [0])):
        nodes, scores = page_rank(ByPageRank(), graph, [0, 1, 2, 0], 3)
        assert nodes.tolist() == [[0, 2, 2], [1, 2, 2], [2, 2, 2], [0, 2, 2]]
        np.testing.assert_allclose(scores[:, 0], [1, 1, 0, 1], atol=2e-4)
    lone = Graph.from_edges([], [], 2, edge_time=np.zeros(0, int))
    found, _ = program(ByPageRank(), 2)(lone, Seeds(np.int32([1]), [5]))
    assert [a.tolist() for a in found] == [[[1, 2]], [[0, 0]], [[2, 2]], [[0, 0]]]


def test_wrong_fields_and_damaged_arrays_are_one_line():
    for fields, says in (
        ({"restart": 0.001}, "restart must be a number from 0.01 to 1; got 0.001"),
        ({"restart": True}, "restart must be a number"),
        ({"epsilon": 0}, "epsilon must be a number from 1e-09 to 1; got 0"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"weights": "buys=1"}, "weights must be a dict"),
        ({"weights": {"buys": 0.5}}, "ints from 0 to 65535*0.5*Give their proportions"),
        ({"weights": {"buys": 2**16}}, "ints from 0 to 65535"),
        ({"weights": {"buys": True}}, "ints from 0 to 65535"),
        ({"weights": {"buys": 0}}, "not all 0"),
        ({"weights": {}}, "not all 0"),
    ):
        refused(says, ByPageRank, **fields)
    graph, way = graph_of(0), ByPageRank(weights={"sold": 1})
    refused("sold", way.init, graph)
    refused("graph with relations*for a graph without", way.init, graph_of(0, typed=False))
    assert repr(ByPageRank(weights=ANY)).startswith("ByPageRank(restart=0.15, epsilon=0.0001")
    if not kernels.available():
        return
    offsets, heads = np.array(graph.indptr), np.array(graph.indices)
    for fields in (
        {"indptr": np.where(offsets > 0, offsets + 9, 0)},
        {"indices": heads + N},
        {"indptr": offsets[::-1].copy()},
        {"indices": heads - N},
    ):
        damaged = graph._with(**{k: as_device(v) for k, v in fields.items()})
        with pytest.raises(Exception, match="the graph's arrays must be valid"):
            page_rank(ByPageRank(), damaged, np.arange(N), 3)
    draw = jax.jit(partial(page_rank, ByPageRank(), graph, size=3))
    for seeds, says in (
        (jnp.array([N + 1]), "seeds must be node ids"),
        (Seeds(jnp.array([0]), excluded=jnp.array([4, 1])), "excluded edges must be positions"),
    ):
        with pytest.raises(Exception, match=says):
            jax.block_until_ready(draw(seeds))
