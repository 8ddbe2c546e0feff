"""A cutoff a seed: `Neighbors` on messages between students, `collegemsg`."""

import jax
import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.sampling import Neighbors, Seeds, plan_capacity

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def messages(data_folder):
    with np.load(data_folder / "collegemsg.npz") as file:
        return file["edge_index"].astype(np.int64), file["edge_time"], int(file["num_nodes"])


@pytest.fixture(scope="module")
def graph(messages):
    (src, dst), time, num_nodes = messages
    return Graph.from_edges(src, dst, num_nodes, edge_time=time)


def drawn(batch):
    """For each hop, input side first: the target's place, the edge and the source's place."""
    for block in batch.blocks:
        count = int(block.num_edges)
        target = np.repeat(np.arange(block.target_capacity), np.diff(block.indptr))
        yield target, np.asarray(block.edge_id)[:count], np.asarray(block.indices)[:count]


@pytest.mark.parametrize("options", [{}, {"window": 86_400}, {"latest": True}], ids=str)
def test_no_edge_at_or_after_its_cutoff(graph, messages, options):
    """Seeds are the ends of real messages at their own times, so ties are everywhere. The test
    fails if `count_less` in eligible.py, or the kernel's search, lets a tie in."""
    (src, dst), time, _ = messages
    some = np.random.default_rng(1).choice(len(time), 300, replace=False)
    seeds = Seeds(np.r_[src[some], dst[some]], np.r_[time[some], time[some]])
    sampler = Neighbors((8, 4, 3), edge_ids=True, edges=("time",), **options)
    batch = jax.jit(sampler.sample, static_argnums=4)(KEY, graph, (), seeds, None)
    assert not batch.overflow
    times, cutoff = np.asarray(graph.edge_time), np.asarray(batch.cutoff)
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    nodes, total = np.asarray(batch.nodes), 0
    assert len({*zip(nodes.tolist(), cutoff.tolist(), strict=True)}) < 40_000
    for (target, edge, source), block in zip(drawn(batch), batch.blocks, strict=True):
        total += edge.size
        assert (times[edge] < cutoff[target]).all()
        assert (times[edge] >= cutoff[target] - options.get("window", 2**62)).all()
        np.testing.assert_array_equal(cutoff[source], cutoff[target])
        np.testing.assert_array_equal(nodes[source], indices[edge])
        np.testing.assert_array_equal(np.asarray(block.edge_time)[: edge.size], times[edge])
        # Fanouts are full wherever there are enough eligible edges.
        fanout = int(np.diff(block.indptr).max())
        for t in range(int(block.num_targets)):
            row = times[indptr[nodes[t]] : indptr[nodes[t] + 1]]
            since = cutoff[t] - options.get("window", 2**62)
            known = np.flatnonzero((row < cutoff[t]) & (row >= since))
            mine = edge[target == t] - indptr[nodes[t]]
            assert len(set(mine.tolist())) == mine.size == min(known.size, fanout)
            if options.get("latest"):
                np.testing.assert_array_equal(mine, known[max(known.size - fanout, 0) :])
    assert total > 2_000


def test_two_cutoffs_of_one_node_have_two_samples(graph):
    hub = int(np.argmax(np.asarray(graph.degrees())))
    row = slice(int(graph.indptr[hub]), int(graph.indptr[hub + 1]))
    early, late = np.asarray(graph.edge_time)[row][[5, -1]].tolist()
    seeds = Seeds([hub, hub, hub], [early, late, early])
    sampler = Neighbors((-1, 2), edge_ids=True)
    batch = sampler.sample(KEY, graph, (), seeds, None)
    counts = np.diff(np.asarray(batch.blocks[-1].indptr))[:3]
    assert counts[0] == counts[2] <= 5
    assert counts[1] > 20
    pairs = list(zip(batch.nodes.tolist(), np.asarray(batch.cutoff).tolist(), strict=True))
    known = [pair for pair in pairs[3 : int(batch.blocks[0].num_sources)] if pair[0] != hub]
    assert len(set(known)) == len(known)
    assert len({node for node, _ in known}) < len(known)  # some are there under both cutoffs
    alone = sampler.sample(KEY, graph, (), Seeds([hub], [early]), None)
    first = np.asarray(alone.blocks[-1].edge_id)[: counts[0]]
    np.testing.assert_array_equal(first, np.asarray(batch.blocks[-1].edge_id)[: counts[0]])


def test_draws_among_eligible_edges_are_uniform(graph):
    """10 % of a hub's edges are before the cutoff; each is drawn equally often."""
    hub = int(np.argmax(np.asarray(graph.degrees())))
    first = int(graph.indptr[hub])
    row = np.asarray(graph.edge_time)[first : int(graph.indptr[hub + 1])]
    cutoff = int(row[row.size // 10])
    known = int((row < cutoff).sum())
    assert known > 20
    sampler, seeds = Neighbors((5,), edge_ids=True), Seeds([hub], [cutoff])
    capacity = plan_capacity(graph, 1, sampler, seeds=[hub], trials=1)
    keys = jax.random.split(KEY, 4_000)
    one = jax.jit(jax.vmap(lambda k: sampler.sample(k, graph, (), seeds, capacity)))
    ids = np.asarray(one(keys).blocks[0].edge_id)[:, :5] - first
    counts = np.bincount(ids.reshape(-1), minlength=known)
    assert counts.size == known
    expected = ids.size / known
    chi = ((counts - expected) ** 2 / expected).sum() * (known - 1) / (known - 5)
    assert chi < known + 5 * np.sqrt(2 * known), (chi, known, counts, expected)


def test_elapsed_and_inclusive(graph, messages):
    """`elapsed` is the cutoff of an edge's target less its time, also in a super-batch and
    where the difference needs 64 bits; `inclusive` lets in the ties of a cutoff."""
    (src, _), time, _ = messages
    seeds = Seeds(src[-40:].reshape(2, 20), time[-40:].reshape(2, 20))
    sampler = Neighbors((6, 3), edges=("elapsed", "time"))
    keys = jax.random.split(KEY, 2)
    batch = sampler.sample(keys, graph, (), seeds, None)
    for i in range(2):
        for block in jax.tree.map(lambda a, i=i: a[i], batch).blocks:
            count = int(block.num_edges)
            target = np.repeat(np.arange(block.target_capacity), np.diff(block.indptr))
            own = np.asarray(batch.cutoff)[i][target] - np.asarray(block.edge_time)[:count]
            elapsed = np.asarray(block.edge_columns["elapsed"])
            np.testing.assert_array_equal(elapsed[:count], own.astype(np.float32))
            assert own.min() > 0
            assert not elapsed[count:].any()

    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    far = Graph.from_edges([0, 1, 2], [3, 3, 3], 4, edge_time=[least, 5, most - 1])
    found = {}
    for inclusive in (False, True):
        of = Seeds([3, 3, 3], [5, most - 1, most], inclusive=inclusive)
        batch = Neighbors((-1,), edges=("elapsed",)).sample(KEY, far, (), of, None)
        block = batch.blocks[0]
        found[inclusive] = np.diff(block.indptr)[:3].tolist()
        (last,) = block.edge_columns["elapsed"][block.indptr[2] : block.indptr[2] + 1]
        assert last == np.float32(2.0**64 - 1)
    assert found == {False: [1, 2, 3], True: [2, 3, 3]}
    with pytest.raises(InputError, match="counted from the cutoffs"):
        sampler.sample(KEY, graph, (), [3], None)
