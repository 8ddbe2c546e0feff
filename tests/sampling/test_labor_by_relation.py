"""`Labor` by relation: each target and relation draws as a target of its own."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from cases import cases, rarely
from test_by_relation import graph_of

from jgs import Graph
from jgs.sampling import Capacity, Labor, Seeds

GRAPH = graph_of(edges=3000)  # 60 papers, 90 authors, 30 shelves
KEY = jax.random.key(1)
N, TYPE = GRAPH.num_nodes, np.asarray(GRAPH.edge_type)
INDICES, TARGET = GRAPH.edge_index()
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


@pytest.mark.parametrize(("sampler", "excluded"), rarely(CASES, 1, 4), ids=repr)
def test_kernel_is_plain(sampler, excluded, alike, same_bits):
    """Of several batches and of one, with padded and repeated seeds, and excluded edges."""
    extras = {"edge_weights": True, "unbiased": not excluded, "edges": ("id", "type")}
    sampler, words = replace(sampler, **extras), 2 if sampler.period == 1 else 5
    nodes = np.stack([SEEDS, np.arange(74) % 60, np.full(74, N)]).astype(np.int32)
    keys = np.random.default_rng(1).integers(0, 2**32, (3, words), dtype=np.uint32)
    holes = np.stack([EXCLUDED, EXCLUDED, np.full_like(EXCLUDED, GRAPH.num_edges)])
    seeds = Seeds(nodes, None, holes if excluded else None)
    capacity = Capacity((4000, 9000)[: sampler.num_hops], (400, 600)[: sampler.num_hops])

    def draw(keys, graph, seeds):
        return sampler.sample(keys, graph, (), seeds, capacity)

    plain = alike(draw, keys, GRAPH, seeds, threads=(2,), optimised=sampler.importance != 0)
    one = jax.jit(draw)(keys[0], GRAPH, seeds.batch(0))
    same_bits(one, jax.tree.map(lambda a: a[0], plain))
    assert not plain.overflow[0]


def drawn(sampler, seeds):
    """For each target and relation the ids of the drawn edges, and the block."""
    block = sampler.sample(KEY, GRAPH, sampler.init(GRAPH), seeds, None).blocks[0]
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


@cases("options", {}, {"unbiased": True}, {"importance": 2}, {"importance": -1}, ids=str)
def test_each_target_and_relation_is_a_target_of_its_own(options):
    """It fails if importances are solved, or weights made, for a row as a whole."""
    runs = np.unique(np.stack([TARGET, TYPE], axis=1), axis=0)
    runs = runs[runs[:, 0] < 60]
    into = {tuple(run): N + i for i, run in enumerate(runs.tolist())}
    edges = np.flatnonzero(TARGET < 60)
    target = [into[TARGET[e], TYPE[e]] for e in edges]
    split = Graph.from_edges(INDICES[edges], target, N + len(runs))
    options = options | {"edge_ids": True, "edge_weights": True}
    sampler = Labor(({"*": 3},), edges=("type",), **options)
    found, block = drawn(sampler, np.arange(60, dtype=np.int32))
    seeds = N + np.arange(len(runs), dtype=np.int32)
    other = Labor((3,), **options).sample(KEY, split, (), seeds, None).blocks[0]
    ids = np.asarray(other.edge_id)[: int(other.num_edges)]
    order = np.asarray(split.edge_order)  # row i of the split graph was this edge
    of_runs = np.split(edges[order[ids]], np.asarray(other.indptr)[1 : len(runs)])
    for run, own in zip(runs.tolist(), of_runs, strict=True):
        assert found[tuple(run)] == own.tolist()
    weights = [np.asarray(b.edge_weight)[: ids.size] for b in (block, other)]
    np.testing.assert_array_equal(*weights)
    assert block.num_edges == other.num_edges
