"""No message from the future: random multigraphs, all draws under cutoffs, at every hop."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from jgs import Graph
from jgs.sampling import Capacity, Links, Neighbors, Seeds

N, E, B, WINDOW = 6, 20, 5, 3
# (sampler, whether plain JAX draws). `test_eligible.py`, `test_by_relation.py` and
# `test_distribution.py` compare plain JAX with the kernel for all of these.
UNTYPED, TYPED = (2, 2), ({"*": 2},) * 2
DRAWS = [
    (Neighbors(UNTYPED), False),
    (Neighbors(UNTYPED, window=WINDOW), True),
    (Neighbors(TYPED, window=WINDOW), False),
    (Neighbors(TYPED, replace=True), False),
    (Neighbors(UNTYPED, weighted=True), False),
    (Neighbors(TYPED, weighted=True), False),
    (Neighbors(UNTYPED, latest=True), False),
    (Neighbors(TYPED, latest=True), True),
    (Neighbors(UNTYPED, half_life=2, window=WINDOW, replace=True), True),
    (Neighbors(TYPED, half_life=1), False),
]
CAPACITY = Capacity((60, 400), (60, 460))
node, time = st.integers(0, N - 1), st.integers(-4, 4)
edges = st.lists(st.tuples(node, node, time), min_size=E, max_size=E)
seeds = st.lists(st.tuples(st.integers(0, N), time), min_size=B, max_size=B)
holes = st.sets(st.integers(0, E - 1), max_size=6)


def graph_of(edges, typed, born=None):
    src, dst, times = np.array(edges).T
    weight = 1 + src.astype(np.float32)
    if not typed:
        return Graph.from_edges(src, dst, N, weight, edge_time=times, node_time=born)
    halves = {("a", "x", "a"): slice(0, E // 2), ("a", "y", "a"): slice(E // 2, E)}
    return Graph.from_relations(
        {"a": N},
        {r: (src[s], dst[s]) for r, s in halves.items()},
        {r: weight[s] for r, s in halves.items()},
        edge_time={r: times[s] for r, s in halves.items()},
    )


def padded(found):
    return np.array([*sorted(found), *[E] * (6 - len(found))], np.int64)


def assert_causal(graph, batch, seeds, excluded, sampler):
    """Each edge is in the history of its seed, and all that a fanout of 2 allows is drawn."""
    assert not batch.overflow
    times, (sources, rows) = np.asarray(graph.edge_time), graph.edge_index()
    kinds = np.asarray(graph.edge_type) if sampler.by_relation else np.zeros(E, int)
    nodes, cutoff = batch.nodes, batch.cutoff
    pairs = list(zip(nodes.tolist(), cutoff.tolist(), strict=True))
    own, count = int(batch.blocks[-1].num_targets), int(batch.blocks[0].num_sources)
    assert pairs[:own] == [seed if seed[0] < N else (N, 0) for seed in seeds][:own]
    assert all(node == N for node, _ in seeds[own:])
    assert len({*pairs[own:count]}) == count - own
    assert {*pairs[count:]} <= {(N, 0)}
    for block in batch.blocks:
        for t in range(int(block.num_targets)):
            row = slice(block.indptr[t], block.indptr[t + 1])
            drawn, source = block.edge_id[row], block.indices[row]
            assert (cutoff[source] == cutoff[t]).all()
            np.testing.assert_array_equal(sources[drawn], nodes[source])
            known = (rows == nodes[t]) & (times < cutoff[t])
            if sampler.window is not None:
                known &= times >= cutoff[t] - sampler.window
            known[list(excluded)] = False
            assert known[drawn].all()
            for kind in (0, 1):
                of, mine = np.flatnonzero(known & (kinds == kind)), drawn[kinds[drawn] == kind]
                if sampler.replace:
                    assert len(mine) == 2 * (len(of) > 0)
                else:
                    assert len({*mine.tolist()}) == len(mine) == min(len(of), 2)
                if sampler.latest:
                    np.testing.assert_array_equal(mine, of[-2:])


@pytest.mark.parametrize(("sampler", "plain"), DRAWS, ids=repr)
def test_no_edge_at_or_after_its_cutoff(sampler, plain, implemented):
    implemented(not plain)
    sampler = dataclasses.replace(sampler, edge_ids=True)
    draw = jax.jit(functools.partial(sampler.sample, capacity=CAPACITY))

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(edges, seeds, holes)
    def run(edges, seeds, holes):
        graph, (nodes, cutoffs) = graph_of(edges, sampler.by_relation), zip(*seeds, strict=True)
        of = Seeds(np.array(nodes), np.array(cutoffs), padded(holes))
        batch = jax.device_get(draw(jax.random.key(1), graph, sampler.init(graph), of))
        assert_causal(graph, batch, seeds, holes, sampler)

    run()


def test_filtered_negatives_of_links_at_their_times():
    """Negatives exist before their link's cutoff, and links after it change nothing at all."""
    sampler = Neighbors((2, 2), edge_ids=True)
    stage = Links(3, sides="dst", filtered=True, tries=40)

    @jax.jit
    def draw(key, graph, src, dst, time):
        with jax.enable_x64(True):
            made, items = stage(key, graph, {"src": src, "dst": dst, "time": time})
        return made, items, sampler.sample(key, graph, (), made, CAPACITY)

    def drawn(edges, born, links):
        graph = stage.prepare(graph_of(edges, False, born))
        with jax.enable_x64(True):
            return graph, *jax.device_get(draw(jax.random.key(2), graph, *links))

    births = st.lists(time, min_size=N, max_size=N)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(edges, st.lists(st.integers(0, E - 1), min_size=3, max_size=3), edges, births)
    def run(edges, chosen, other, born):
        edges = [(s, d, max(t, born[s], born[d])) for s, d, t in edges]
        links = np.array(edges)[chosen].T
        src, _, time = links
        graph, made, items, batch = drawn(edges, born, links)
        own = list(zip(made.nodes.tolist(), made.time.tolist(), strict=True))
        assert_causal(graph, batch, own, set(), sampler)
        for i in range(3):
            assert (made.time[items["rows"][i]] == time[i]).all()
            for row in items["negative_rows"][i][items["negative_mask"][i]]:
                assert made.time[row] == time[i]
                assert born[made.nodes[row]] < time[i]
                assert (src[i], made.nodes[row], time[i]) not in edges
        last = time.max()
        pairs = zip(edges, other, strict=True)
        changed = [a if a[2] <= last else b[:2] + a[2:] for a, b in pairs]
        _, again, same, _ = drawn(changed, [b if b <= last else 4 for b in born], links)
        np.testing.assert_array_equal(made.nodes, again.nodes)
        np.testing.assert_array_equal(items["negative_mask"], same["negative_mask"])

    run()


def test_negatives_are_uniform_among_nodes_that_exist():
    """Also in a typed graph, whose nodes of a type come in any order of their times."""
    born = {"a": [5, 0, 9, 2, 7], "b": [3, 1, 8, 4, 2, 6]}
    edges = {("a", "to", "b"): ([0], [0])}
    graph = Graph.from_relations({"a": 5, "b": 6}, edges, node_time=born)
    stage = Links(20_000, sides="dst")
    graph = stage.prepare(graph)
    with jax.enable_x64(True):
        items = {"src": np.array([0]), "dst": np.array([5]), "time": np.array([6])}
        seeds, made = jax.device_get(jax.jit(stage)(jax.random.key(0), graph, items))
    mask = made["negative_mask"][0]
    counts = np.bincount(seeds.nodes[made["negative_rows"][0][mask]], minlength=12)
    assert counts[[*range(6), 7, 10, 11]].sum() == 0  # others' type, the link's own, unborn
    assert np.abs(counts[[6, 8, 9]] - mask.sum() / 3).max() < 5 * np.sqrt(mask.sum() / 3)
    np.testing.assert_allclose(np.exp(made["negative_log_prob"][0]), 1 / 4, rtol=1e-5)


KEY = jax.random.key(0)


def test_elapsed():
    """It is the cutoff of an edge's target less its time, also in a super-batch."""
    rng = np.random.default_rng(0)
    ends, times = rng.integers(0, 50, (2, 900)), rng.integers(0, 99, 900)
    graph = Graph.from_edges(*ends, 50, edge_time=times)
    seeds = Seeds(rng.integers(0, 50, (2, 20)), rng.integers(20, 99, (2, 20)))
    sampler, keys = Neighbors((6, 3), edges=("elapsed", "time")), jax.random.split(KEY)
    sample = jax.jit(lambda graph, seeds: sampler.sample(keys, graph, (), seeds, None))
    batches = jax.device_get(sample(graph, seeds))
    for i in range(2):
        batch = jax.tree.map(lambda a, i=i: a[i], batches)
        for block in batch.blocks:
            count = int(block.num_edges)
            assert count > 90
            target = np.repeat(np.arange(block.target_capacity), np.diff(block.indptr))
            own = batch.cutoff[target] - block.edge_time[:count]
            elapsed = block.edge_columns["elapsed"]
            np.testing.assert_array_equal(elapsed[:count], own.astype(np.float32))
            assert own.min() > 0
            assert not elapsed[count:].any()
    refused("counted from the cutoffs", sampler.sample, KEY, graph, (), [3], None)


def test_the_first_and_last_of_all_times():
    """`elapsed` may need 64 bits; `inclusive` lets in the ties of a cutoff."""
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    far = Graph.from_edges([0, 1, 2], [3, 3, 3], 4, edge_time=[least + 1, 5, most - 1])
    found = {}
    for inclusive in (False, True):
        of = Seeds([3, 3, 3], [5, most - 1, most], inclusive=inclusive)
        batch = Neighbors((-1,), edges=("elapsed",)).sample(KEY, far, (), of, None)
        block = batch.blocks[0]
        found[inclusive] = np.diff(block.indptr)[:3].tolist()
        (last,) = block.edge_columns["elapsed"][block.indptr[2] : block.indptr[2] + 1]
        assert last == np.float32(2.0**64 - 2)
    assert found == {False: [1, 2, 3], True: [2, 3, 3]}
