"""`Labor` by relation: each target and relation draws as a target of its own; the kernel equals
plain JAX."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_by_relation import graph_of
from test_labor import KERNELS, PLAIN, needs_kernels, sample_by

from jgs import Graph, InputError
from jgs.sampling import Capacity, Labor, Seeds, plan_capacity
from jgs.sampling.algorithms.nodewise.labor_plain import NumberKeys

GRAPH = graph_of(edges=3000)  # 60 papers, 90 authors, 30 shelves
N, TYPE = GRAPH.num_nodes, np.asarray(GRAPH.edge_type)
INDICES = np.asarray(GRAPH.indices)
TARGET = np.repeat(np.arange(N), np.asarray(GRAPH.degrees()))
CITES, WRITES = (GRAPH.schema.relation(name) for name in ("cites", "writes"))
EXCLUDED = np.unique(np.random.default_rng(3).integers(0, GRAPH.num_edges, 300))
EXCLUDED = np.r_[EXCLUDED, [GRAPH.num_edges] * 3]
SEEDS = np.r_[np.random.default_rng(4).choice(N, 70, False), N, 0, 0, N].astype(np.int32)
CASES = [  # and whether edges are excluded
    (Labor(({"cites": 3, "writes": 1}, {"*": 2, "holds": 5})), True),
    (Labor(({"cites": -1, "rev_writes": 4, "writes": 2}, 4), period=8), False),
    (Labor((6, {"*": 2}), layer_dependency=True, relabel_inputs=False), True),
    (Labor(({"*": 3, "holds": -1}, {"*": 2, "cites": 4}), 1), True),
    (Labor(({"*": 2, "cites": 5},), -1, period=4), False),
]


@needs_kernels
@pytest.mark.parametrize(("sampler", "excluded"), CASES, ids=repr)
def test_kernel_is_plain(sampler, excluded, same_bits):
    """With 1, 2 and 4 threads, of several batches and of one, with excluded edges and without
    them. Seeds are padded and repeated."""
    extras = {"edge_weights": True, "unbiased": not excluded, "edges": ("id", "type")}
    sampler = dataclasses.replace(sampler, **extras)
    seeds = np.stack([SEEDS, np.arange(74) % 60, np.full(74, N)]).astype(np.int32)
    words = 2 if sampler.period == 1 else 5
    keys = np.random.default_rng(1).integers(0, 2**32, (3, words), dtype=np.uint32)
    hops, holes = sampler.num_hops, np.stack([EXCLUDED, EXCLUDED, EXCLUDED * 0 + EXCLUDED[-1]])
    capacity = Capacity((4000, 9000)[:hops], (400, 600)[:hops])
    args = (jnp.asarray(keys), GRAPH, (), Seeds(seeds, None, holes if excluded else None))
    plain = sample_by(PLAIN, sampler, *args, capacity)
    for implementation in KERNELS.values():
        same_bits(sample_by(implementation, sampler, *args, capacity), plain)
    alone = (keys[0], GRAPH, (), Seeds(seeds[0], None, holes[0] if excluded else None))
    same_bits(
        sample_by(KERNELS[2], sampler, *alone, capacity), jax.tree.map(lambda a: a[0], plain)
    )
    assert not plain.overflow[0]


def drawn(sampler, seeds, excluded=None, key=1):
    """For each target and relation the ids of the drawn edges, and the block."""
    block = sampler.sample(
        jax.random.key(key), GRAPH, sampler.init(GRAPH), Seeds(seeds, None, excluded), None
    ).blocks[0]
    count = int(block.num_edges)
    ids = np.asarray(block.edge_id)[:count]
    np.testing.assert_array_equal(np.asarray(block.edge_type)[:count], TYPE[ids])
    row = np.repeat(np.arange(len(seeds)), np.diff(block.indptr)[: len(seeds)])
    np.testing.assert_array_equal(np.lexsort((ids, TYPE[ids], row)), np.arange(count))
    return {
        (int(v), int(r)): ids[(row == i) & (TYPE[ids] == r)].tolist()
        for i, v in enumerate(seeds)
        for r in range(5)
    }, block


def test_a_target_takes_the_neighbours_whose_numbers_are_below_its_relations_limit():
    """`r_u < k / d`, in exact integers; the number is the node's for all relations. Excluded
    edges count nowhere."""
    fanouts = {"cites": 4, "writes": 2, "holds": -1}
    sampler = Labor((fanouts,), edges=("id", "type"))
    seeds, key = np.arange(60, dtype=np.int32), 1
    found, _ = drawn(sampler, seeds, EXCLUDED, key)
    with jax.enable_x64(True):
        words = jax.random.key_data(jax.random.key(key))
        numbers = np.asarray(NumberKeys.of(words, 0).numbers(jnp.arange(N, dtype=jnp.int32)))
    kept = ~np.isin(np.arange(GRAPH.num_edges), EXCLUDED)
    ks = {GRAPH.schema.relation(name): k for name, k in fanouts.items()}
    some = 0
    for (v, r), ids in found.items():
        run = np.flatnonzero((v == TARGET) & (r == TYPE) & kept)
        k = ks.get(r, 0)
        below = [
            k == -1 or int(numbers[INDICES[e]]) * run.size < k << 64 or run.size <= k
            for e in run
        ]
        assert ids == run[np.array(below, bool) & (k != 0)].tolist()
        some += 0 < len(ids) < run.size
    assert some > 50


@pytest.mark.parametrize("importance", [0, 2, -1])
def test_each_target_and_relation_is_a_target_of_its_own(importance):
    """A graph that has a node for each target and relation gives the same draws, by the draws
    of all relations. It fails if importances are solved for a row as a whole."""
    runs = np.unique(np.stack([TARGET, TYPE], axis=1), axis=0)
    runs = runs[runs[:, 0] < 60]
    into = {tuple(run): N + i for i, run in enumerate(runs.tolist())}
    edges = np.flatnonzero(TARGET < 60)
    target = [into[TARGET[e], TYPE[e]] for e in edges]
    split = Graph.from_edges(INDICES[edges], target, N + len(runs))
    options = {"importance": importance, "edge_ids": True, "edge_weights": True}
    sampler = Labor(({"*": 3},), edges=("type",), **options)
    found, block = drawn(sampler, np.arange(60, dtype=np.int32))
    seeds = N + np.arange(len(runs), dtype=np.int32)
    other = Labor((3,), **options).sample(jax.random.key(1), split, (), seeds, None).blocks[0]
    ids = np.asarray(other.edge_id)[: int(other.num_edges)]
    order = np.asarray(split.edge_order)  # row i of the split graph was this edge
    of_runs = np.split(edges[order[ids]], np.asarray(other.indptr)[1 : len(runs)])
    for run, own in zip(runs.tolist(), of_runs, strict=True):
        assert found[tuple(run)] == own.tolist()
    weights = [np.asarray(b.edge_weight)[: ids.size] for b in (block, other)]
    np.testing.assert_array_equal(*weights)
    assert block.num_edges == other.num_edges


@pytest.mark.parametrize("unbiased", [False, True])
def test_weights_estimate_the_mean_over_the_neighbours_by_each_relation(unbiased):
    """Horvitz and Thompson's estimate has the mean as its expectation; Hajek's weights sum to
    their number in each run. It fails for weights of the whole row."""
    sampler = Labor(({"*": 2},), edges=("type",), edge_weights=True, unbiased=unbiased)
    x = np.random.default_rng(0).normal(size=N)
    seeds = np.arange(3, dtype=np.int32)
    capacity = Capacity((600,), (200,))
    many = np.tile(seeds, (3000, 1))
    batch = sampler.sample(jax.random.split(jax.random.key(4), 3000), GRAPH, (), many, capacity)
    assert not np.asarray(batch.overflow).any()
    batch = jax.tree.map(np.asarray, batch)
    block, nodes = batch.blocks[0], batch.nodes
    total, count, weights = (np.zeros((3000, 3, 5)) for _ in range(3))
    for i in range(3000):
        num = int(block.num_edges[i])
        row = np.repeat(np.arange(3), np.diff(block.indptr[i]))
        at = row, block.edge_type[i, :num]
        weight = block.edge_weight[i, :num].astype(np.float64)
        np.add.at(total[i], at, weight * x[nodes[i, block.indices[i, :num]]])
        np.add.at(weights[i], at, weight)
        np.add.at(count[i], at, 1)
    if not unbiased:
        np.testing.assert_allclose(weights, count, rtol=1e-5)
        return
    mean = total / np.maximum(count, 1)
    exact = np.zeros((3, 5))
    for v in range(3):
        for r in np.unique(TYPE[v == TARGET]):
            exact[v, r] = x[INDICES[(v == TARGET) & (r == TYPE)]].mean()
    z = (mean.mean(0) - exact) / np.maximum(mean.std(0) / np.sqrt(3000), 1e-6)
    assert (np.abs(z) < 4.5).all(), z


def test_plans_reprs_and_refusals():
    one, other = Labor(({"cites": 3, "writes": 2}, 4)), Labor(({"writes": 2, "cites": 3}, 4))
    assert one == other
    assert repr(one) == repr(other)
    assert "{'cites': 3, 'writes': 2}" in repr(one)
    capacity = plan_capacity(GRAPH, 16, one, seeds=np.arange(60))
    batch = one.sample(jax.random.key(0), GRAPH, one.init(GRAPH), SEEDS[:16], capacity)
    assert batch.schema == GRAPH.schema
    with pytest.raises(InputError, match="a relation must be one of"):
        Labor(({"cited": 3},)).init(GRAPH)
    with pytest.raises(InputError, match="a graph with relations"):
        Labor(({"cites": 3},)).init(Graph.from_edges([0], [1], 2))
