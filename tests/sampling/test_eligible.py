"""Draws among edges that a cutoff, a window and holes leave: as in a graph of these alone."""

import dataclasses

import jax
import numpy as np
import pytest
from cases import rarely

from jgs import Graph
from jgs.sampling import FastGCN, Labor, Neighbors, PinSage, Shadow, Subgraph, Walk, worst_case
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


@pytest.mark.parametrize(("sampler", "cutoff"), rarely(EVERYWHERE, 3, 6, 9, 12), ids=repr)
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
