"""Draws by relation: the law of each relation, and equality of the kernel and plain JAX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jgs.kernels
from jgs import Graph, InputError
from jgs.sampling import Capacity, Neighbors, Seeds, plan_capacity
from jgs.sampling.fanouts import ByRelation

P_VALUE = 1e-4  # keys are fixed: a correct version always passes
RELATIONS = ("cites", "writes", "holds", "rare")


def graph_of(num=(60, 90, 30), edges=900, weighted=False, timed=False, seed=0):
    """Three node types and four relations of very different size, with a hub, copies of edges,
    nodes without edges, and a relation without any."""
    rng = np.random.default_rng(seed)
    counts = dict(zip(("paper", "author", "shelf"), num, strict=True))
    relations = {
        ("paper", "cites", "paper"): edges,
        ("author", "writes", "paper"): edges // 2,
        ("shelf", "holds", "paper"): edges // 3,
        ("paper", "rare", "author"): 0,
        ("paper", "rev_writes", "author"): edges // 4,
    }
    pairs, columns = {}, {}
    for (a, name, b), n in relations.items():
        dst = np.minimum(rng.geometric(0.06, n) - 1, counts[b] - 8)  # the last have none
        pairs[a, name, b] = rng.integers(0, counts[a], n), np.maximum(dst, 0)
        columns[a, name, b] = n
    options = {}
    if weighted:
        options["edge_weight"] = {
            r: rng.choice([0, 0.5, 1, 4], n).astype(np.float32) for r, n in columns.items()
        }
    if timed:
        options["edge_time"] = {r: rng.integers(0, 50, n) for r, n in columns.items()}
    return Graph.from_relations(counts, pairs, **options)


def sampled(sampler, graph, seeds, capacity, threads=None, state=(), key=1):
    """The batch by the kernel with so many threads, or with None by plain JAX."""
    with pytest.MonkeyPatch.context() as patch:
        if threads is None:
            patch.setattr(jgs.kernels, "available", lambda: False)
        else:
            patch.setattr(jgs.kernels, "NUM_THREADS", threads)
        jax.clear_caches()
        return sampler.sample(jax.random.key(key), graph, state, seeds, capacity)


def assert_equal(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), strict=True)


CASES = {
    "two hops": ({"fanouts": ({"cites": 3, "writes": 1}, {"*": 2, "holds": 5})}, {}),
    "all of one": ({"fanouts": ({"cites": -1, "rev_writes": 4, "writes": 2}, 4)}, {}),
    "whole rows first": ({"fanouts": (6, {"*": 2})}, {}),
    "replace": ({"fanouts": ({"*": 3, "cites": -1},) * 2, "replace": True}, {}),
    "weighted": ({"fanouts": ({"*": 3}, {"*": -1}), "weighted": True}, {"weighted": True}),
    "weighted replace": (
        {"fanouts": ({"*": 3, "writes": 40},), "weighted": True, "replace": True},
        {"weighted": True},
    ),
    "times": ({"fanouts": ({"*": 3}, {"*": 4}), "window": 30}, {"timed": True}),
    "latest": ({"fanouts": ({"*": 3}, {"*": -1, "cites": 2}), "latest": True}, {"timed": True}),
    "weighted times": (
        {"fanouts": ({"*": 2},) * 2, "weighted": True},
        {"weighted": True, "timed": True},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("holes", [False, True])
def test_the_kernel_draws_what_plain_jax_draws(case, holes):
    """At 1, 2 and 4 threads, with the index that `init` makes and without it, with excluded
    edges and without, types and weights too."""
    fields, made = CASES[case]
    graph = graph_of(**made)
    columns = ("type", "id") if case == "two hops" else ("type",)
    sampler = Neighbors(edges=columns, edge_weights="weighted" in made, **fields)
    rng = np.random.default_rng(3)
    nodes = np.r_[rng.choice(180, 90, replace=False), 180, 0, 0, 180].astype(np.int32)
    excluded = None
    if holes:
        excluded = np.unique(rng.integers(0, graph.num_edges, 300))
        excluded = np.r_[excluded, [graph.num_edges] * 3]
    time = rng.choice([5, 20, 60], nodes.size) if "timed" in made else None
    seeds = Seeds(nodes, time, excluded)
    capacity = Capacity((4000, 9000)[: sampler.num_hops], (600, 700)[: sampler.num_hops])
    expected = sampled(sampler, graph, seeds, capacity)
    assert not expected.overflow
    assert all(block.num_edges > 20 for block in expected.blocks)
    state = sampler.init(graph)
    for threads, index in ((1, state), (2, ()), (4, state)):
        assert_equal(sampled(sampler, graph, seeds, capacity, threads, index), expected)


def test_full_fanouts_give_the_typed_edges_one_by_one():
    graph = graph_of()
    for fanout in ({"*": -1}, {name: -1 for name in ("cites", "holds")}):
        sampler = Neighbors((fanout,), edges=("type", "id"))
        batch = sampler.sample(
            jax.random.key(0), graph, sampler.init(graph), np.arange(180), None
        )
        block = batch.blocks[0]
        n = int(block.num_edges)
        types, ids = np.asarray(block.edge_type), np.asarray(block.edge_id)
        wanted = [graph.schema.relation(r) for r in fanout if r != "*"] or range(5)
        real = np.flatnonzero(np.isin(np.asarray(graph.edge_type), list(wanted)))
        np.testing.assert_array_equal(ids[:n], real)
        np.testing.assert_array_equal(types[:n], np.asarray(graph.edge_type)[real])
        sources = np.asarray(batch.nodes)[np.asarray(block.indices)[:n]]
        np.testing.assert_array_equal(sources, np.asarray(graph.indices)[real])
        rows = np.repeat(np.arange(180), np.diff(block.indptr))
        np.testing.assert_array_equal(rows, np.searchsorted(graph.indptr, real, "right") - 1)


@pytest.mark.parametrize("replace", [False, True])
def test_every_edge_of_a_relation_is_as_likely_as_the_others(replace):
    """A chi-square test for each relation into one node, over many keys; and the draws of two
    relations are independent. It fails if a relation draws with the key of another."""
    degrees = {"cites": 23, "writes": 7, "holds": 41}
    fanouts = {"cites": 4, "writes": 3, "holds": 6}
    counts = {"a": 50}
    pairs = {("a", name, "a"): (np.arange(d), np.zeros(d, int)) for name, d in degrees.items()}
    graph = Graph.from_relations(counts, pairs)
    sampler = Neighbors((fanouts,), replace=replace, edges=("id",))
    state, trials = sampler.init(graph), 4000

    @jax.jit
    @jax.vmap
    def draw(key):
        return (
            sampler.sample(key, graph, state, jnp.zeros(1, jnp.int32), None).blocks[0].edge_id
        )

    ids = np.asarray(draw(jax.random.split(jax.random.key(7), trials)))
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
        table = np.zeros((3, 3))
        np.add.at(table, (firsts[a], firsts[b]), 1)
        assert stats.chi2_contingency(table).pvalue > P_VALUE


def test_a_node_draws_the_same_whatever_the_other_seeds_and_relations_are():
    graph = graph_of()
    alone = Neighbors(({"cites": 3},), edges=("id",))
    together = Neighbors(({"*": 2, "cites": 3},), edges=("id", "type"))

    def cited(sampler, seeds):
        batch = sampler.sample(jax.random.key(5), graph, (), np.array(seeds), None)
        block = batch.blocks[0]
        indptr, ids = np.asarray(block.indptr), np.asarray(block.edge_id)
        kept = {}
        for row, seed in enumerate(seeds):
            of_row = ids[indptr[row] : indptr[row + 1]]
            kept[seed] = of_row[np.asarray(graph.edge_type)[of_row] == 0].tolist()
        return kept

    one = cited(alone, [4, 9, 2])
    assert any(one.values())
    for sampler, seeds in ((alone, [2, 30, 9, 4]), (together, [9, 4, 70, 2])):
        other = cited(sampler, seeds)
        assert {seed: other[seed] for seed in one} == one


def test_capacities_are_planned_and_super_batches_equal_their_batches():
    graph = graph_of()
    sampler = Neighbors(({"*": 2}, {"*": 3, "cites": 1}), edges=("type",))
    state = sampler.init(graph)
    capacity = plan_capacity(graph, 16, sampler, seeds=np.arange(60))
    seeds = np.arange(48, dtype=np.int32).reshape(3, 16)
    keys = jax.random.key_data(jax.random.split(jax.random.key(2), 3))
    bound = sampler.bound(jgs.sampling.capacity.GraphShape.of(graph), 16)
    assert bound.edges[0] == 16 * 10
    assert all(a <= b for a, b in zip(capacity.edges, bound.edges, strict=True))
    batches = jax.jit(functools.partial(sampler.sample_separately, capacity=bound))(
        keys, graph, state, seeds
    )
    for key, of_batch, batch in zip(keys, seeds, batches, strict=True):
        alone = sampler.sample(jax.random.wrap_key_data(key), graph, state, of_batch, bound)
        assert_equal(alone, batch)


def test_a_star_has_no_total_where_the_relations_are_not_known():
    assert [ByRelation({"*": 3}).total(n) for n in (0, 1, 4)] == [-1, 3, 12]
    assert [ByRelation({"*": 3, "cites": 5}).total(n) for n in (0, 1, 4)] == [-1, 5, 14]
    assert [ByRelation({"cites": 5}).total(n) for n in (0, 4)] == [5, 5]
    degree = np.array([0, 2, 50])
    assert Neighbors(({"*": 3},)).expected_draws(0, degree).tolist() == [0, 2, 50]


def test_a_sampler_is_known_by_its_fanouts():
    one = Neighbors(({"writes": 5, "cites": 10}, 3))
    other = Neighbors(({"cites": 10, "writes": 5}, 3))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)
    assert one == Neighbors(("writes=5,cites=10", 3))
    assert Neighbors(("author:writes:paper=-1,*=2",)).fanouts == (
        {("author", "writes", "paper"): -1, "*": 2},
    )
    assert one != Neighbors(({"cites": 10}, 3))
    assert isinstance(one.fanouts[0], ByRelation)
    assert "{'cites': 10, 'writes': 5}" in repr(one)


@pytest.mark.parametrize(
    ("fanouts", "says"),
    [
        (({"cited": 3},), "a relation must be one of .*cites.*got 'cited'"),
        (({"cites": 0},), "positive 32-bit ints"),
        (("cites=two",), "written as writes=5,cites=10"),
        (("cites",), "written as writes=5,cites=10"),
        (({},), "positive 32-bit ints"),
        (({("author", "cites", "paper"): 2},), "a relation must be one of"),
    ],
)
def test_fanouts_of_no_relation_are_refused(fanouts, says):
    with pytest.raises(InputError, match=says):
        Neighbors(fanouts).init(graph_of())


def test_fanouts_by_relation_need_a_graph_with_relations():
    graph = Graph.from_edges([0, 1], [1, 2], 3)
    with pytest.raises(InputError, match="a graph with relations"):
        Neighbors(({"cites": 3},)).sample(jax.random.key(0), graph, (), np.array([1]), None)
    state = Neighbors(({"cites": 3},)).init(graph_of())
    with pytest.raises(InputError, match="what init returned for this graph"):
        Neighbors(({"*": 3},)).sample(
            jax.random.key(0), graph_of((50, 80, 20)), state, np.array([1]), None
        )
