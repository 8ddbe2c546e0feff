"""`Shadow`: the nodes of its scopes, and exactly the edges among these nodes."""

import jax
import numpy as np
import pytest

import jgs
from jgs import InputError, kernels
from jgs.sampling import (
    GCNBS,
    Capacity,
    Labor,
    Neighbors,
    PinSage,
    Saint,
    Shadow,
    Subgraph,
    worst_case,
)

N, E = 60, 240
KEY = jax.random.key(2)
SEEDS = np.array([7, 50, 3, N, 21, 7], np.int32)  # one seed is padding, one is repeated


@pytest.fixture
def graph(make_graph):
    return make_graph(N, E)


def draw(sampler, graph, seeds=SEEDS, capacity=None):
    capacity = worst_case(graph, len(seeds), sampler) if capacity is None else capacity
    with kernels.this_host_only():  # test_protocol.py tests the plain twins
        sample = jax.jit(sampler.sample, static_argnums=4)
        return sample(KEY, graph, sampler.init(graph), seeds, capacity)


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
    indptr, nodes = np.asarray(block.indptr), np.asarray(batch.nodes)
    some = slice(indptr[first], indptr[stop])
    local = np.asarray(block.indices)[some]
    assert ((first <= local) & (local < stop)).all()
    ids = np.asarray(block.edge_id)
    edges = [ids[indptr[t] : indptr[t + 1]].tolist() for t in range(first, stop)]
    return nodes[first:stop], edges


def test_at_full_fanout_it_is_what_the_neighbourhood_induces(graph):
    sampler = Shadow((-1, -1), edge_ids=True, edge_weights=True)
    batch = draw(sampler, graph)
    assert not batch.overflow
    nodes, edges = rows_of(batch)
    real = SEEDS < N
    np.testing.assert_array_equal(nodes[: len(SEEDS)][real], SEEDS[real])
    assert batch.seed_rows is None
    assert {int(v) for v in nodes if v < N} == within(graph, SEEDS[real], 2)
    # Plus one for padding, one for the repetition.
    assert nodes.size == len(within(graph, SEEDS[real], 2)) + 2
    assert [row for row, v in zip(edges, nodes, strict=True) if v < N] == induced(
        graph, nodes[nodes < N]
    )
    (block,) = batch.blocks
    ids, count = np.asarray(block.edge_id), int(block.num_edges)
    weight = np.asarray(graph.edge_weight)[ids[:count]]
    np.testing.assert_array_equal(np.asarray(block.edge_weight)[:count], weight)


@pytest.mark.parametrize(
    "scope", [(-1, -1), (3, 2), Labor((3, 2)), PinSage((5,), 20, 4)], ids=repr
)
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


def test_ranks_draw_the_disjoint_graphs_of_one(graph):
    sampler = Shadow((3, 2), disjoint=True, edge_ids=True)
    nodes, edges = rows_of(draw(sampler, graph))
    halves = [rows_of(draw(sampler, graph, SEEDS[i : i + 3])) for i in (0, 3)]
    np.testing.assert_array_equal(nodes, np.concatenate([half[0] for half in halves]))
    assert edges == [row for half in halves for row in half[1]]


def test_ppr_finds_the_nodes_of_largest_rank(graph):
    """Against PageRank by power iteration: the drawn nodes are nearly those of highest rank."""
    k, restart, seed = 8, 0.15, 7
    sampler = Shadow.ppr(k, num_walks=2000, length=40, edge_ids=True)
    assert sampler == Shadow(PinSage((k,), 2000, 40, restart), edge_ids=True)
    nodes, edges = rows_of(draw(sampler, graph, np.array([seed])))
    degree = np.asarray(graph.degrees())
    step = np.zeros((N, N))  # from a node to one of its in-neighbours
    row = np.repeat(np.arange(N), degree)
    np.add.at(step, (row, np.asarray(graph.indices)), 1 / degree[row])
    rank = here = np.eye(N)[seed]
    for _ in range(40):
        here = (1 - restart) * here @ step
        rank = rank + here
    rank[seed] = 0
    best = np.sort(rank)[-k:]
    assert nodes[0] == seed
    assert nodes.size == k + 1
    assert rank[nodes[1:]].sum() > 0.95 * best.sum()
    assert edges == induced(graph, nodes)


def test_each_stage_says_what_it_needs(graph):
    sampler = Shadow((3, 2), disjoint=True)
    edges, sources = np.asarray(draw(sampler, graph).needed).tolist()
    sources[2] = max(sources)
    assert not draw(sampler, graph, capacity=Capacity(tuple(edges), tuple(sources))).overflow
    for entry in range(3):
        tight = list(edges)
        tight[entry] -= 1
        short = draw(sampler, graph, capacity=Capacity(tuple(tight), tuple(sources)))
        assert short.overflow
        assert (np.asarray(short.nodes) == N).all()
        assert short.needed[0, entry] == edges[entry]
        assert int(short.blocks[0].num_edges) == int(short.blocks[0].num_targets) == 0


@pytest.mark.parametrize(
    "scope", [GCNBS((3,)), Saint("node", 5), Neighbors((3,), relabel_inputs=False)], ids=repr
)
def test_scopes_that_are_none(scope):
    with pytest.raises(InputError, match="scope"):
        Shadow(scope)


def test_any_sampler_with_seeds_is_a_scope(graph):
    merged = Shadow(Subgraph(20), edge_ids=True)
    nodes, edges = rows_of(draw(merged, graph, SEEDS[:3]))
    assert edges == induced(graph, nodes)
    with pytest.raises(InputError, match="one-dimensional"):
        merged.sample(KEY, graph, merged.init(graph), SEEDS.reshape(2, 3), None)
    with pytest.raises(InputError, match="edge weights"):
        Shadow((3,), edge_weights=True).init(graph.unweighted())
    lonely = jgs.Graph.from_edges([], [], 3)
    nodes, edges = rows_of(draw(Shadow((2,), edge_ids=True), lonely, np.array([1, 2])))
    assert (nodes.tolist(), edges) == ([1, 2], [[], []])
