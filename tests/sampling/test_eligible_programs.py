"""Matrix programs draw as in the graph without the edges that seeds exclude."""

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
    Ladies,
    Thanos,
)
from jgs.sampling.base import Adaptive
from jgs.sampling.matrix import MatrixSampler
from jgs.sampling.seeds import Seeds

N, E, HOLES = 4, 14, 5
node = st.integers(0, N - 1)


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
        room = sampler.bound(GraphShape(N, E), seeds.nodes.size)
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
        made = rng.normal(size=E if of_edge else first.shape).astype(np.float32)
        return made[kept] if of_edge else made

    return jax.tree.map(learned, begin)


@pytest.mark.parametrize("sampler", rarely(PROGRAMS, 1, 4, 6), ids=repr)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(node, node), min_size=E, max_size=E),
    st.sets(st.integers(0, E - 1), min_size=HOLES, max_size=HOLES),
    st.lists(st.integers(0, N), min_size=3, max_size=3),
    st.integers(0, 5),
)
def test_programs_draw_as_in_the_graph_without_the_edges(sampler, edges, excluded, seeds, key):
    """It fails if an excluded edge is kept, is counted, or moves what is learned."""
    weight = np.float32(1 + np.arange(E) % 3)
    whole, holes = Graph.from_edges(*np.array(edges).T, N, weight), np.array(sorted(excluded))
    features = np.arange(2 * N, dtype=np.float32).reshape(N, 2) - 3
    kept = np.setdiff1d(np.arange(E), holes)
    part = Graph.from_edges(*whole.edge_index()[:, kept], N, whole.edge_weight[kept])

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
    ids = np.r_[kept, np.full(HOLES, E)]
    blocks = tuple(dataclasses.replace(b, edge_id=ids[b.edge_id]) for b in other.blocks)
    batch = dataclasses.replace(batch, extras=Extras())
    other = dataclasses.replace(other, blocks=blocks)
    jax.tree.map(np.testing.assert_array_equal, batch, other)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-8), gradient, same)
