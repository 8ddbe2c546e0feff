"""Matrix programs draw as in the graph without the edges that seeds exclude."""

import dataclasses
from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_eligible import EDGES, SMALL, number, state_of

from jgs import Graph
from jgs.graph import Extras
from jgs.sampling import ASGCN, GCNBS, PASS, VRGCN, FastGCN, GraphShape, Ladies, Thanos
from jgs.sampling.matrix import MatrixSampler
from jgs.sampling.seeds import Seeds


@dataclasses.dataclass(frozen=True)
class OfAll(MatrixSampler):
    """A program that draws for all nodes, by a bias that is computed once."""

    def layer(self, A, frontier, k):
        return A.individual_sample(k, A.built().values)


PROGRAMS = [
    OfAll((2, 3), edge_ids=True),
    Ladies((2, 3), edge_ids=True),
    FastGCN((2, 3), edge_ids=True),
    ASGCN((2, 3), edge_ids=True),
    GCNBS((2, 3)),
    Thanos((2, 3)),
    PASS((2, 3), width=2, edge_ids=True),
    VRGCN((2, 3), widths=(2, 2), edge_ids=True),
]


@cache
def program_of(sampler):
    return jax.jit(sampler.sample, static_argnums=4)


@pytest.mark.parametrize("sampler", PROGRAMS, ids=repr)
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.tuples(number, number), min_size=EDGES, max_size=EDGES),
    st.sets(st.integers(0, EDGES - 1), min_size=5, max_size=5),
    st.lists(st.integers(0, SMALL), min_size=3, max_size=3),
    st.integers(0, 5),
)
def test_programs_draw_as_in_the_graph_without_the_edges(
    same_bits, sampler, edges, excluded, seeds, key
):
    """Random multigraphs, with self-loops, parallel edges and rows that are excluded whole. It
    fails if a slice keeps an excluded edge, and if VRGCN's history passes along one."""
    whole, holes = Graph.from_edges(*np.array(edges).T, SMALL), np.array(sorted(excluded))
    features = np.arange(2 * SMALL, dtype=np.float32).reshape(SMALL, 2) - 3
    kept = np.setdiff1d(np.arange(EDGES), holes)
    target = np.repeat(np.arange(SMALL), np.asarray(whole.degrees()))
    part = Graph.from_edges(np.asarray(whole.indices)[kept], target[kept], SMALL)
    whole, part = (graph.with_node_columns(features=features) for graph in (whole, part))
    room = sampler.bound(GraphShape(SMALL, EDGES), len(seeds))

    def sample(graph, edges, excluded=None):
        state = state_of(sampler, graph, edges, EDGES)
        given = Seeds(np.int32(seeds), excluded=excluded)
        return program_of(sampler)(jax.random.key(key), graph, state, given, room)

    batch = sample(whole, slice(None), holes)
    for block in batch.blocks:
        ids = np.asarray(block.edge_id)[: int(block.num_edges)]
        assert not np.isin(ids, holes).any()
    if isinstance(sampler, FastGCN | OfAll):  # they draw by all edges
        return
    other = sample(part, kept)
    ids = np.r_[kept, np.full(len(holes), EDGES)]
    blocks = [
        dataclasses.replace(block, edge_id=ids[np.asarray(block.edge_id)])
        for block in other.blocks
    ]
    same_bits(
        dataclasses.replace(batch, extras=Extras()),
        dataclasses.replace(other, blocks=tuple(blocks)),
    )
