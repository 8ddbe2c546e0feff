"""Draws by relation: the law of each relation, and equality of the kernel and plain JAX."""

import jax
import numpy as np
import pytest
from cases import rarely
from rows_law import P_VALUE, assert_independent
from scipy import stats

from jgs import Graph, kernels
from jgs.sampling import Capacity, Context, GraphShape, Neighbors, Seeds, Walk
from jgs.sampling.contexts import ByVisits
from jgs.sampling.fanouts import ByRelation

KEY = jax.random.key(1)


def graph_of(num=(60, 90, 30), edges=900, weighted=False, timed=False, seed=0):
    """Five relations of different sizes, one of them empty, with a hub and copies of edges."""
    rng = np.random.default_rng(seed)
    counts = dict(zip(("paper", "author", "shelf"), num, strict=True))
    sizes = {
        ("paper", "cites", "paper"): edges,
        ("author", "writes", "paper"): edges // 2,
        ("shelf", "holds", "paper"): edges // 3,
        ("paper", "rare", "author"): 0,
        ("paper", "rev_writes", "author"): edges // 4,
    }
    pairs, options = {}, {}
    for (a, name, b), n in sizes.items():
        dst = np.minimum(rng.geometric(0.06, n) - 1, counts[b] - 8)  # the last have none
        pairs[a, name, b] = rng.integers(0, counts[a], n), np.maximum(dst, 0)
    if weighted:
        choices = np.float32([0, 0.5, 1, 4])
        options["edge_weight"] = {r: rng.choice(choices, n) for r, n in sizes.items()}
    if timed:
        options["edge_time"] = {r: rng.integers(0, 50, n) for r, n in sizes.items()}
    return Graph.from_relations(counts, pairs, **options)


# (sampler, what the graph has, whether edges are excluded)
EQUAL = [
    (Neighbors((6, {"*": 2, "holds": 5}), edges=("type", "id")), (), False),
    (Neighbors(({"cites": -1, "rev_writes": 4, "writes": 2}, 4)), (), True),
    (Neighbors(({"*": 3, "cites": -1},), replace=True), (), True),
    (Neighbors(({"*": 3, "cites": -1},), weighted=True), ("weighted",), True),
    (Neighbors(({"*": 3, "writes": 40},), True, True, edge_weights=True), ("weighted",), False),
    (Neighbors(({"*": 3}, {"*": 4}), window=30), ("timed",), True),
    (Neighbors(({"*": -1, "cites": 2},), latest=True), ("timed",), False),
    (Neighbors(({"*": 2},), weighted=True), ("weighted", "timed"), True),
    # Kernels draw up to 8 edges of a run in another way than more.
    (Neighbors(({"*": 3, "cites": 12}, {"*": -1, "cites": 8}), window=45), ("timed",), False),
]


@pytest.mark.parametrize(("sampler", "has", "holes"), rarely(EQUAL, 0, 3, 6), ids=repr)
def test_the_kernel_draws_what_plain_jax_draws(sampler, has, holes, alike, same_bits):
    """With the index that `init` makes and without it."""
    graph = graph_of(**dict.fromkeys(has, True))
    rng = np.random.default_rng(3)
    nodes = np.r_[rng.choice(180, 90, replace=False), 180, 0, 0, 180].astype(np.int32)
    excluded = np.unique(rng.integers(0, graph.num_edges, 300))
    excluded = np.r_[excluded, [graph.num_edges] * 3] if holes else None
    seeds = Seeds(nodes, rng.choice([5, 20, 60], 94) if "timed" in has else None, excluded)
    capacity = Capacity((4000, 9000)[: sampler.num_hops], (600, 700)[: sampler.num_hops])

    def draw(state, graph, seeds):
        return sampler.sample(KEY, graph, state, seeds, capacity)

    found = alike(draw, sampler.init(graph), graph, seeds)
    same_bits(jax.device_get(jax.jit(draw)((), graph, seeds)), found)
    assert not found.overflow
    assert all(block.num_edges > 20 for block in found.blocks)


def test_full_fanouts_give_the_typed_edges_one_by_one():
    graph = graph_of()
    kinds, targets = np.asarray(graph.edge_type), graph.edge_index()[1]
    for fanout, wanted in (({"*": -1}, range(5)), ({"cites": -1, "holds": -1}, (0, 2))):
        sampler = Neighbors((fanout,), edges=("type", "id"))
        batch = sampler.sample(KEY, graph, sampler.init(graph), np.arange(180), None)
        (block,), real = batch.blocks, np.flatnonzero(np.isin(kinds, wanted))
        drawn = np.repeat(np.arange(180), np.diff(block.indptr))
        np.testing.assert_array_equal(drawn, targets[real])
        np.testing.assert_array_equal(block.edge_id[: real.size], real)
        np.testing.assert_array_equal(block.edge_type[: real.size], kinds[real])


@pytest.mark.parametrize("replace", [False, True])
def test_every_edge_of_a_relation_is_as_likely_as_the_others(replace):
    """And two relations are independent. It fails if one draws with the key of another."""
    degrees = {"cites": 23, "writes": 7, "holds": 41}
    fanouts = {"cites": 4, "writes": 3, "holds": 6}
    pairs = {("a", name, "a"): (np.arange(d), np.zeros(d, int)) for name, d in degrees.items()}
    graph = Graph.from_relations({"a": 50}, pairs)
    sampler, trials = Neighbors((fanouts,), replace=replace, edges=("id",)), 4000
    keys, seeds = jax.random.split(jax.random.key(7), trials), np.zeros((trials, 1), np.int32)
    batch = sampler.sample(keys, graph, sampler.init(graph), seeds, None)
    ids = np.asarray(batch.blocks[0].edge_id)
    start, column, firsts = 0, 0, []
    for name, degree in degrees.items():
        k = fanouts[name]
        drawn = ids[:, column : column + k] - start
        assert drawn.min() >= 0
        assert drawn.max() < degree
        if not replace:
            assert all(len(set(row)) == k for row in drawn.tolist())
        seen = np.bincount(drawn.reshape(-1), minlength=degree)
        # Without replacement counts vary less, which a smaller statistic shows.
        scale = 1 if replace else (degree - k) / (degree - 1)
        value = ((seen - trials * k / degree) ** 2 / (trials * k / degree)).sum() / scale
        assert P_VALUE < stats.chi2.sf(value, degree - 1) < 1 - P_VALUE, (name, value)
        of_first = degree if replace else degree - k + 1  # what the first draw is below
        firsts.append(drawn[:, 0] * 3 // of_first)
        start, column = start + degree, column + k
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert_independent(firsts[a], firsts[b])


def test_a_node_draws_the_same_whatever_the_other_seeds_and_relations_are(neighbors_of):
    graph = graph_of()
    alone, together = Neighbors(({"cites": 3},)), Neighbors(({"*": 2, "cites": 3},))

    def cited(sampler, seeds):  # papers are the first nodes
        rows = neighbors_of(sampler.sample(KEY, graph, (), np.array(seeds), None))[0]
        return {seed: [node for node in rows.get(seed, ()) if node < 60] for seed in seeds}

    one = cited(alone, [4, 9, 2])
    assert any(one.values())
    for sampler, seeds in ((alone, [2, 30, 9, 4]), (together, [9, 4, 70, 2])):
        other = cited(sampler, seeds)
        assert {seed: other[seed] for seed in one} == one


@pytest.mark.skipif(not kernels.available(), reason="plain JAX cannot fail")
def test_the_index_of_a_graph_with_other_edges_is_refused():
    """Edges that were appended would never be drawn."""
    graph, other = graph_of(timed=True), graph_of(timed=True, edges=800)
    seeds, fanouts = Seeds(np.arange(4), np.full(4, 40)), ({"*": 2},)
    ways = Context(4, fanouts), Context(4, ByVisits(3, 2))
    for sampler in (Neighbors(fanouts), Walk(3), *ways):
        state = sampler.init(other)
        with pytest.raises(jax.errors.JaxRuntimeError, match="what init returned"):
            jax.block_until_ready(sampler.sample(KEY, graph, state, seeds))


def test_bounds_count_each_relation():
    sampler = Neighbors(({"*": 2}, {"*": 3, "cites": 1}))
    assert sampler.bound(GraphShape.of(graph_of()), 16).edges[0] == 16 * 10
    # A star has no total where the relations are not known.
    assert [ByRelation({"*": 3, "cites": 5}).total(n) for n in (0, 1, 4)] == [-1, 5, 14]
    assert [ByRelation({"cites": 5}).total(n) for n in (0, 4)] == [5, 5]


def test_a_sampler_is_known_by_its_fanouts():
    one = Neighbors(({"writes": 5, "cites": 10}, 3))
    other = Neighbors(({"cites": 10, "writes": 5}, 3))
    assert one == other == Neighbors(("writes=5,cites=10", 3)) != Neighbors(({"cites": 10}, 3))
    assert (hash(one), repr(one)) == (hash(other), repr(other))
    triple = Neighbors(("author:writes:paper=-1,*=2",)).fanouts
    assert triple == ({("author", "writes", "paper"): -1, "*": 2},)
