"""`Shadow`: the nodes of its scopes, and exactly the edges among these nodes."""

import jax
import numpy as np
import pytest
from cases import cases

import jgs
from jgs import InputError
from jgs.sampling import Labor, PinSage, Shadow, Subgraph, worst_case

N, E = 60, 240
KEY = jax.random.key(2)
SEEDS = np.array([7, 50, 3, N, 21, 7], np.int32)  # one seed is padding, one is repeated


@pytest.fixture
def graph(make_graph):
    return make_graph(N, E)


def draw(sampler, graph, seeds=SEEDS, capacity=None):
    capacity = worst_case(graph, len(seeds), sampler) if capacity is None else capacity
    sample = jax.jit(sampler.sample, static_argnums=4)
    return jax.device_get(sample(KEY, graph, sampler.init(graph), seeds, capacity))


def induced(graph, nodes):
    """For each node in `nodes` the ids of its in-edges from `nodes`, ascending."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    rows = [np.arange(indptr[v], indptr[v + 1]) for v in nodes]
    return [row[np.isin(indices[row], nodes)].tolist() for row in rows]


def within(graph, seeds, hops):
    """The nodes that reach a seed in at most `hops` steps, by NumPy."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    known = set(seeds)
    for _ in range(hops):
        known |= {int(u) for v in known for u in indices[indptr[v] : indptr[v + 1]]}
    return known


def rows_of(batch, first=0, stop=None):
    """The nodes of some rows, and the edges into each; every source must be in these rows."""
    (block,), stop = batch.blocks, int(batch.blocks[0].num_targets) if stop is None else stop
    indptr = block.indptr
    local = block.indices[indptr[first] : indptr[stop]]
    assert ((first <= local) & (local < stop)).all()
    edges = [block.edge_id[indptr[t] : indptr[t + 1]].tolist() for t in range(first, stop)]
    return batch.nodes[first:stop], edges


def test_at_full_fanout_it_is_what_the_neighbourhood_induces(graph):
    sampler = Shadow((-1, -1), edge_ids=True, edge_weights=True)
    batch = draw(sampler, graph)
    assert not batch.overflow
    nodes, edges = rows_of(batch)
    real = SEEDS < N
    np.testing.assert_array_equal(nodes[: len(SEEDS)][real], SEEDS[real])
    assert {int(v) for v in nodes if v < N} == within(graph, SEEDS[real], 2)
    # Plus one for padding, one for the repetition.
    assert nodes.size == len(within(graph, SEEDS[real], 2)) + 2
    rows = [row for row, v in zip(edges, nodes, strict=True) if v < N]
    assert rows == induced(graph, nodes[nodes < N])
    (block,) = batch.blocks
    weight = np.asarray(graph.edge_weight)[block.edge_id[: block.num_edges]]
    np.testing.assert_array_equal(block.edge_weight[: block.num_edges], weight)


@cases("scope", (-1, -1), (3, 2), Labor((3, 2)), PinSage((5,), 20, 4), ids=repr)
def test_disjoint_graphs_lie_side_by_side(graph, scope):
    """Each graph is the one of its seed alone, which merging gives for that seed, too."""
    sampler = Shadow(scope, disjoint=True, edge_ids=True)
    batch = draw(sampler, graph)
    assert not batch.overflow
    assert sampler.by_node
    starts = np.asarray(batch.seed_rows)
    assert starts[SEEDS == N] >= batch.nodes.size  # padding has no row
    ends = np.r_[starts[1:], batch.blocks[0].num_targets]
    ends[2] = starts[4]  # the seed before padding ends where the seed after it begins
    merged = Shadow(scope, edge_ids=True)
    capacity = worst_case(graph, 1, merged)
    for seed, first, stop in zip(SEEDS, starts, ends, strict=True):
        if seed == N:
            continue
        nodes, edges = rows_of(batch, first, stop)
        assert nodes[0] == seed
        assert edges == induced(graph, nodes)
        alone, same = rows_of(draw(merged, graph, np.array([seed]), capacity=capacity))
        np.testing.assert_array_equal(nodes, alone)
        assert edges == same
        if scope == (-1, -1):
            assert set(nodes.tolist()) == within(graph, [seed], 2)
    assert int(batch.blocks[0].num_targets) == batch.needed[1, -1]
    order = np.random.default_rng(0).permutation(len(SEEDS))
    other = draw(sampler, graph, SEEDS[order])
    out = np.asarray(other.of_seeds(other.nodes[:, None] * 1.0))
    np.testing.assert_array_equal(out[:, 0], np.where(SEEDS[order] < N, SEEDS[order], 0))


def test_any_sampler_with_seeds_is_a_scope(graph):
    assert Shadow.ppr(8, num_walks=9, length=5) == Shadow(PinSage((8,), 9, 5, 0.15))
    merged = Shadow(Subgraph(20), edge_ids=True)
    nodes, edges = rows_of(draw(merged, graph, SEEDS[:3]))
    assert edges == induced(graph, nodes)
    with pytest.raises(InputError, match=r"must be \[B\]"):
        merged.sample(KEY, graph, merged.init(graph), SEEDS.reshape(2, 3), None)
    lonely = jgs.Graph.from_edges([], [], 3)
    nodes, edges = rows_of(draw(Shadow((2,), edge_ids=True), lonely, np.array([1, 2])))
    assert (nodes.tolist(), edges) == ([1, 2], [[], []])
