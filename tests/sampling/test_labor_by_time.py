"""`Labor` under cutoffs: within each cutoff it is LABOR on the graph of the eligible edges."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases, rarely
from hypothesis import given, settings
from test_causal import B, E, N, edges, graph_of, holes, padded, seeds

from jgs import Graph, InputError
from jgs.sampling import Capacity, Labor, Seeds, worst_case

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
ROOM = Capacity((100, 2000), (100, 200))
SAMPLERS = [
    Labor((2, 2)),
    Labor((2, -1), window=3),
    Labor((2, 1), period=4, layer_dependency=True),
    Labor((1, 2), 1, window=4),
    Labor((2, 1), -1),
    Labor(({"*": 2}, {"*": 1, "y": -1})),
    Labor(({"*": 1}, {"*": 1}), 2, window=3),
]


def full(sampler):
    return replace(sampler, edge_ids=True, edge_weights=True, unbiased=sampler.importance == 0)


@pytest.mark.parametrize("sampler", rarely(SAMPLERS, 0, 2, 4, 6), ids=repr)
def test_no_edge_at_or_after_its_cutoff(sampler, alike):
    sampler = full(sampler)
    words = np.arange(3, 5, dtype=np.uint32)
    if sampler.period > 1:
        words = np.arange(1, 6, dtype=np.uint32) << 28

    def draw(words, graph, seeds):
        return sampler.sample(words, graph, (), seeds, ROOM)

    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(edges, seeds, holes)
    def run(edges, seeds, holes):
        graph, (nodes, cutoffs) = graph_of(edges, sampler.by_relation), zip(*seeds, strict=True)
        of = Seeds(np.array(nodes, np.int32), np.array(cutoffs), padded(holes))
        batch = alike(draw, words, graph, of, threads=(2,))
        assert_eligible(graph, batch, holes, sampler)
        real = np.array(nodes) < N
        np.testing.assert_array_equal(batch.nodes[:B][real], np.array(nodes)[real])
        np.testing.assert_array_equal(batch.cutoff[:B][real], np.array(cutoffs)[real])

    run()


def assert_eligible(graph, batch, excluded, sampler):
    """Each edge is in the history of its target, and none of a whole row is missing."""
    assert not batch.overflow
    times, (sources, rows) = np.asarray(graph.edge_time), graph.edge_index()
    nodes, cutoff = batch.nodes, batch.cutoff
    for fanout, block in zip(sampler.fanouts[::-1], batch.blocks, strict=True):
        for t in range(int(block.num_targets)):
            at = slice(block.indptr[t], block.indptr[t + 1])
            drawn, source = block.edge_id[at], block.indices[at]
            np.testing.assert_array_equal(sources[drawn], nodes[source])
            np.testing.assert_array_equal(cutoff[source], cutoff[t])
            known = (rows == nodes[t]) & (times < cutoff[t])
            known[list(excluded)] = False
            if sampler.window is not None:
                known &= times >= cutoff[t] - sampler.window
            assert known[drawn].all()
            if fanout == -1 or (not sampler.by_relation and known.sum() <= fanout):
                assert len({*drawn.tolist()}) == known.sum()


@pytest.mark.parametrize(("importance", "period"), [(0, 3), (1, 1), (-1, 3)])
def test_within_a_cutoff_it_is_labor_on_the_eligible_graph(importance, period):
    """To the bit, and no cutoff decides another's rows: so the laws of `test_labor.py` hold."""
    rng, num_nodes = np.random.default_rng(1), 80
    src, dst, time = (rng.integers(*of, 1500) for of in ((0, 20), (0, 80), (-4, 4)))
    whole = Graph.from_edges(src, dst, num_nodes, edge_time=time)
    past = np.flatnonzero(np.asarray(whole.edge_time) < 0)
    part = Graph.from_edges(*whole.edge_index()[:, past], num_nodes)
    sampler = Labor((4,), importance, period=period, edge_ids=True, edge_weights=True)
    room, nodes = Capacity((1500,), (400,)), np.arange(80, dtype=np.int32)
    words = rng.integers(0, 2**32, 2 if period == 1 else 5, np.uint32)
    pairs = [words[i : i + 2] for i in range(0, words.size - 1, 2)]
    folded = [jax.random.key_data(jax.random.fold_in(jnp.asarray(p), 0)) for p in pairs]
    folded = np.concatenate([*folded, words[4:]])
    draw = jax.jit(sampler.sample, static_argnums=4)

    def edges_of(batch, number):
        block = jax.device_get(batch.blocks[0])
        assert not batch.overflow
        return [
            (number[block.edge_id[b:e]].tolist(), block.edge_weight[b:e].tolist())
            for b, e in zip(block.indptr[:-1], block.indptr[1:], strict=True)
        ]

    every = np.arange(1500)
    timed = edges_of(draw(words, whole, (), Seeds(nodes, nodes * 0), room), every)
    plain = edges_of(draw(folded, part, (), nodes, room), past[np.asarray(part.edge_order)])
    assert timed == plain
    assert 200 < sum(len(ids) for ids, _ in timed) < len(past)
    cutoffs = rng.integers(-3, 4, 80)
    cutoffs[:30] = 0
    mixed = edges_of(draw(words, whole, (), Seeds(nodes, cutoffs), room), every)
    for cutoff in range(-3, 4):
        own = np.where(cutoffs == cutoff, nodes, num_nodes).astype(np.int32)
        alone = edges_of(draw(words, whole, (), Seeds(own, nodes * 0 + cutoff), room), every)
        assert all(mixed[v] == alone[v] for v in np.flatnonzero(cutoffs == cutoff))
    assert mixed[:30] != timed[:30] or importance == 0


LONG = [Labor((5, 3)), Labor((4, 3), 1, period=5, window=400), Labor((6,), -1)]


@cases("sampler", *rarely(LONG, 0), ids=repr)
def test_kernel_is_plain_with_rows_of_hundreds(sampler, alike, make_graph):
    """Rows of many chunks of candidates. Seeds share cutoffs, and some cutoffs are extreme."""
    made, rng = make_graph(900, 20_000), np.random.default_rng(2)
    time = np.sort(rng.integers(-500, 500, 20_000))
    graph = Graph.from_edges(*made.edge_index(), 900, edge_time=rng.permutation(time))
    seeds = np.r_[np.arange(40), rng.integers(0, 901, 40), 3, 3].astype(np.int32)
    cutoffs = rng.choice([-100, 0, 250, 499], 82)
    cutoffs[0], cutoffs[1] = MOST, LEAST
    sampler = full(sampler)
    words = np.arange(2 if sampler.period == 1 else 5, dtype=np.uint32) << 29
    room = Capacity((8000, 20_000)[: sampler.num_hops], (2400, 3600)[: sampler.num_hops])

    def draw(words, graph, seeds):
        return sampler.sample(words, graph, (), seeds, room)

    assert not alike(draw, words, graph, Seeds(seeds, cutoffs), optimised=True).overflow


def test_what_is_refused_and_shown():
    assert "window=3" in repr(Labor((2,), window=3))
    graph = graph_of([(0, 1, 2)] * E, False)
    timed = Seeds(np.array([1], np.int32), np.array([3]))
    with pytest.raises(InputError, match="sorted by time"):
        Labor((2,)).sample(jax.random.key(0), graph_of([(0, 1, 2)] * E, True), (), timed, None)
    batch = Labor((-1,), edges=("elapsed",)).sample(jax.random.key(0), graph, (), timed, None)
    assert batch.blocks[0].edge_columns["elapsed"][:E].tolist() == [1.0] * E
    assert worst_case(graph, 1, Labor((3,))).edges[0] >= 20
