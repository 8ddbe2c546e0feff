"""Draws among the edges that cutoffs, windows and holes leave: as in a graph of these alone."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely
from hypothesis import given, settings
from hypothesis import strategies as st

from jgs import Graph
from jgs.graph import Extras
from jgs.sampling import (
    ASGCN,
    GCNBS,
    PASS,
    VRGCN,
    FastGCN,
    Feedback,
    GraphShape,
    Labor,
    Ladies,
    Neighbors,
    PinSage,
    Shadow,
    Subgraph,
    Thanos,
    Walk,
    worst_case,
)
from jgs.sampling.base import Adaptive
from jgs.sampling.matrix import MatrixSampler
from jgs.sampling.seeds import Seeds

# A hub, a row with holes at its begin and within, one whose edges but one are excluded, one
# whose edges are all excluded, one without holes, and one without edges.
DEGREES = (400, 6, 5, 4, 5, 0)
HOLES = ((0, 1, 2, 170, 180, 399), (0, 3), (0, 1, 3, 4), (0, 1, 2, 3), (), ())
N, OFFSETS = len(DEGREES), np.r_[0, np.cumsum(DEGREES)]
NODES, E = np.arange(N, dtype=np.int32), int(OFFSETS[-1])
EXCLUDED = np.concatenate([OFFSETS[v] + np.int64(HOLES[v]) for v in range(N)] + [[E, E]])
# Eighty edges of the hub, and two of the other rows, have the same time.
TIME = np.concatenate([np.arange(d) // (80 if d == 400 else 2) - 5 for d in DEGREES])


def graph_of(edges=slice(None)):
    """The graph, or some of its edges, with parallel ones, self-loops and weights of 0."""
    rng = np.random.default_rng(5)
    source, weight = rng.integers(0, N, E), rng.integers(0, 4, E).astype(np.float32)
    weight[OFFSETS[2] + 2] = 1
    columns = source, np.repeat(NODES, DEGREES), weight, TIME
    source, target, weight, time = (a[edges] for a in columns)
    return Graph.from_edges(source, target, N, weight, edge_time=time)


def eligible_edges(cutoff=None, window=None):
    edges = np.setdiff1d(np.arange(E), EXCLUDED)
    if cutoff is not None:
        edges = edges[TIME[edges] < cutoff]
    if window is not None:
        edges = edges[TIME[edges] >= cutoff - window]
    return edges


TURNS = 20  # of three batches: few draws show a weight that is counted in the wrong place
EVERYWHERE = [  # and the cutoff of all seeds: that of some edges, or beyond all
    (Neighbors((3, 2, -1)), None),
    (Neighbors((3,), weighted=True, window=2), -1),
    (Neighbors((2,), replace=True, window=2), -2),
    (Neighbors((2,), replace=True, weighted=True), None),
    (Neighbors((2, -1), latest=True), -2),
    (Labor((3, 2)), -2),
    (Labor((3,), window=2), -1),
    (Labor((3, 2), importance=1), None),
    (PinSage((3, 2), 5, 3), None),
    (Shadow((3, 2)), None),
    (Shadow((3, 2), disjoint=True), None),
    (Subgraph(3), None),
    (Walk(6, window=2), -2),
    (Walk(6, weighted=True, restart=0.2), None),
    (Walk(6, weighted=True), -1),
    (Walk(6, latest=3), -2),
]


@pytest.mark.parametrize(("sampler", "cutoff"), rarely(EVERYWHERE, 3, 7, 10, 13), ids=repr)
def test_draws_are_those_in_a_graph_of_the_eligible_edges(sampler, cutoff, alike, same_bits):
    """It fails if a hole, its weight or a tie counts. A subgraph needs room for holes too."""
    kept = eligible_edges(cutoff, getattr(sampler, "window", None))
    whole, part = graph_of(), graph_of(kept)
    keys = jax.random.split(jax.random.key(0), 3 * TURNS)
    nodes = np.tile(np.int32([[*NODES[:5], N], np.roll(NODES, 3), NODES[::-1]]), (TURNS, 1))
    time = None if cutoff is None else np.full(nodes.shape, cutoff)
    room = None if isinstance(sampler, Walk) else worst_case(whole, N, sampler)

    def draw(keys, graph, state, seeds):
        return jax.vmap(lambda k, s: sampler.sample(k, graph, state, s, room))(keys, seeds)

    seeds = Seeds(nodes, time, np.tile(EXCLUDED, (3 * TURNS, 1)))
    args = keys, whole, sampler.init(whole), seeds
    if isinstance(sampler, Neighbors | Walk):
        found = alike(draw, *args, threads=(2,))
    else:
        found = jax.device_get(jax.jit(draw)(*args))
    same = jax.device_get(jax.jit(draw)(keys, part, sampler.init(part), Seeds(nodes, time)))
    if isinstance(sampler, Shadow | Subgraph):
        found, same = (dataclasses.replace(batch, needed=None) for batch in (found, same))
    same_bits(found, same)


def test_fastgcn_estimates_the_mean_over_the_edges_that_are_left():
    """It draws all nodes, so each eligible edge has the weight 1 in its row's mean."""
    sampler, graph = FastGCN((N,), edge_ids=True), graph_of()
    seeds = Seeds(NODES, excluded=EXCLUDED)
    batch = sampler.sample(jax.random.key(0), graph, sampler.init(graph), seeds, None)
    block, kept = jax.device_get(batch.blocks[0]), eligible_edges()
    np.testing.assert_array_equal(block.edge_id[: kept.size], kept)
    np.testing.assert_array_equal(block.indptr, np.searchsorted(kept, OFFSETS))
    np.testing.assert_allclose(block.edge_weight[: kept.size], 1, rtol=1e-6)


SMALL, FEW, GONE = 4, 14, 5
node = st.integers(0, SMALL - 1)


class OfAll(MatrixSampler):
    """A program that draws for all nodes, by a bias that is computed once."""

    def layer(self, A, frontier, k):
        return A.individual_sample(k, A.built().values)


PROGRAMS = [
    OfAll((2, 3), edge_ids=True),
    Ladies((2, 3), edge_ids=True),
    Ladies((2, 3), weighted=True, normalize=False, edge_ids=True),
    FastGCN((3,), edge_ids=True),
    ASGCN((3,), edge_ids=True),
    GCNBS((3,)),
    Thanos((3,)),
    PASS((3,), width=2, edge_ids=True),
    VRGCN((3,), widths=(2,), edge_ids=True),
]


@cache
def program_of(sampler):
    """The batch, and what a sampler's `update` descends, for a random feedback."""

    def program(key, graph, state, seeds):
        room = sampler.bound(GraphShape(SMALL, FEW), seeds.nodes.size)
        batch, gradient = sampler.sample(key, graph, state, seeds, room), None
        if isinstance(sampler, ASGCN | PASS):
            rng, sizes = np.random.default_rng(8), ("source_capacity", "target_capacity")
            rows = ([getattr(block, size) for block in batch.blocks] for size in sizes)
            made = (tuple(jnp.float32(rng.normal(size=(n, 3))) for n in of) for of in rows)
            gradient = sampler.gradient(state[0], batch, Feedback(*made), graph)
        return batch, gradient

    return jax.jit(program)


def state_of(sampler, graph, kept):
    """The state for the edges `kept` of a graph; its learned numbers are random."""
    rng, begin = np.random.default_rng(6), sampler.init(graph)
    if not isinstance(sampler, Adaptive):
        return begin

    def learned(first):
        if not np.issubdtype(first.dtype, np.floating):
            return first
        of_edge = first.shape == (graph.num_edges,)
        made = rng.normal(size=FEW if of_edge else first.shape).astype(np.float32)
        return made[kept] if of_edge else made

    return jax.tree.map(learned, begin)


@pytest.mark.parametrize("sampler", rarely(PROGRAMS, 1, 4, 6), ids=repr)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(node, node), min_size=FEW, max_size=FEW),
    st.sets(st.integers(0, FEW - 1), min_size=GONE, max_size=GONE),
    st.lists(st.integers(0, SMALL), min_size=3, max_size=3),
    st.integers(0, 5),
)
def test_programs_draw_as_in_the_graph_without_the_edges(sampler, edges, excluded, seeds, key):
    """It fails if an excluded edge is kept, is counted, or moves what is learned."""
    weight = np.float32(1 + np.arange(FEW) % 3)
    whole, holes = (
        Graph.from_edges(*np.array(edges).T, SMALL, weight),
        np.array(sorted(excluded)),
    )
    features = np.arange(2 * SMALL, dtype=np.float32).reshape(SMALL, 2) - 3
    kept = np.setdiff1d(np.arange(FEW), holes)
    part = Graph.from_edges(*whole.edge_index()[:, kept], SMALL, whole.edge_weight[kept])

    def sample(graph, edges, excluded=None):
        graph = graph.with_node_columns(features=features)
        given = Seeds(np.int32(seeds), excluded=excluded)
        state = state_of(sampler, graph, edges)
        return jax.device_get(program_of(sampler)(jax.random.key(key), graph, state, given))

    batch, gradient = sample(whole, slice(None), holes)
    for block in batch.blocks:
        assert not np.isin(block.edge_id[: block.num_edges], holes).any()
    if isinstance(sampler, FastGCN | OfAll):  # they draw by all edges
        return
    other, same = sample(part, kept)
    ids = np.r_[kept, np.full(GONE, FEW)]
    blocks = tuple(dataclasses.replace(b, edge_id=ids[b.edge_id]) for b in other.blocks)
    batch = dataclasses.replace(batch, extras=Extras())
    other = dataclasses.replace(other, blocks=blocks)
    jax.tree.map(np.testing.assert_array_equal, batch, other)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-8), gradient, same)
