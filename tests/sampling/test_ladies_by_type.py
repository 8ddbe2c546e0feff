"""LADIES by node type: what it draws, what its weights estimate, and which edges it keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused
from rows_law import assert_included, assert_mean, inclusion

from jgs import Graph, InputError, Schema
from jgs.sampling import GraphShape, Ladies, worst_case
from jgs.sampling.matrix import Matrix
from jgs.sampling.seeds import Seeds

KEY = jax.random.key(5)
AUTHORS, PAPERS, N = 10, 12, 24  # ids 0 to 9, 10 to 21; two venues, 22 and 23
RNG = np.random.default_rng(0)
WRITES = RNG.integers(0, AUTHORS, 30), RNG.integers(0, PAPERS, 30)
CITES = RNG.integers(0, PAPERS, 40), RNG.integers(0, PAPERS, 40)
WRITES[1][:5] = CITES[1][:6] = 0  # paper 0, the node 10, has more neighbours than others
RELATIONS = {
    ("author", "writes", "paper"): WRITES,
    ("paper", "cites", "paper"): CITES,
    ("venue", "prints", "paper"): (np.arange(PAPERS) % 2, np.arange(PAPERS)),
}
COUNTS = {"author": AUTHORS, "paper": PAPERS, "venue": 2}
WEIGHTS = {r: RNG.uniform(0.5, 2, src.size) for r, (src, _) in RELATIONS.items()}
GRAPH = Graph.from_relations(COUNTS, RELATIONS, WEIGHTS)
SEEDS = np.array([14, 10, N, 11, 12], np.int32)
(INDICES, TARGET), TYPE = GRAPH.edge_index(), np.asarray(GRAPH.edge_type)
TYPES = {"author": np.arange(N) < 10, "paper": (np.arange(N) // 10 > 0) & (np.arange(N) < 22)}
EXCLUDED = np.r_[np.flatnonzero(TARGET == 10)[[0, 3, 7]], np.full(2, GRAPH.num_edges)]


def mean_weights(weighted, excluded=()):
    """float64 `[E]`: `P[u, v] = 1 / d_{v,r}` of each edge, by counting; 0 where excluded."""
    kept = ~np.isin(np.arange(GRAPH.num_edges), excluded)
    pairs = zip(TARGET, TYPE, strict=True)
    number = [(kept & (v == TARGET) & (r == TYPE)).sum() for v, r in pairs]
    weight = np.asarray(GRAPH.edge_weight) if weighted else 1.0
    return np.where(kept, weight / np.maximum(number, 1), 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_nodes_of_each_type_are_drawn_by_themselves(weighted):
    """By the sum of P[u, v]**2 over the edges into the frontier that are not excluded."""
    sampler = Ladies(({"author": 2, "paper": 3},), weighted=weighted)
    into = np.isin(TARGET, SEEDS)
    square = np.where(into, mean_weights(weighted, EXCLUDED) ** 2, 0)
    bias = np.bincount(INDICES, square, N)
    expected = sum(
        np.where(own, inclusion(np.where(own, bias, 0), k), 0)
        for own, k in ((TYPES["author"], 2), (TYPES["paper"], 3))
    )
    seeds = Seeds(jnp.asarray(SEEDS), excluded=jnp.asarray(EXCLUDED))

    def draw(key):
        batch = sampler.sample(key, GRAPH, (), seeds, None)
        block = batch.blocks[0]
        real = np.arange(block.edge_capacity) < block.num_edges
        node = jnp.where(real, batch.nodes.at[block.indices].get(mode="clip"), N)
        return jnp.zeros(N, bool).at[node].set(True, mode="drop")

    assert_included(draw, expected, 6000)


@pytest.mark.parametrize("normalize", [False, True])
def test_means_by_relation_are_unbiased(normalize):
    """Excluded edges are left out. Normalised weights keep constants."""
    sampler = Ladies((2,), normalize=normalize, by_type=True, edges=("type",))
    x = np.float32(RNG.normal(size=N))
    seeds = Seeds(jnp.asarray(SEEDS), excluded=jnp.asarray(EXCLUDED))

    def means(key):
        block = (batch := sampler.sample(key, GRAPH, (), seeds, None)).blocks[0]
        real = np.arange(block.edge_capacity) < block.num_edges
        row = jnp.searchsorted(block.indptr, np.arange(block.edge_capacity), side="right") - 1
        run = jnp.where(real, row * 3 + block.edge_type, 3 * SEEDS.size)
        own = jnp.asarray(x).at[batch.nodes.at[block.indices].get(mode="clip")].get(mode="clip")
        count, ones, total = (
            jnp.zeros(3 * SEEDS.size).at[run].add(a, mode="drop")
            for a in (1.0, block.edge_weight, block.edge_weight * own)
        )
        return jnp.stack([count, ones, total / jnp.maximum(count, 1)])

    keys = jax.random.split(KEY, 4000)
    count, ones, mean = np.asarray(jax.jit(jax.vmap(means))(keys)).swapaxes(0, 1)
    assert (count.min(axis=0)[np.arange(15) // 3 != 2] == 0).any()
    if normalize:
        np.testing.assert_allclose(ones, count, rtol=1e-5)
        return
    P, exact = mean_weights(False, EXCLUDED), np.zeros((SEEDS.size, 3))
    for row, v in enumerate(SEEDS):
        for r in range(3):
            run = (v == TARGET) & (r == TYPE)
            exact[row, r] = P[run] @ x[INDICES[run]]
    assert_mean(mean, exact.reshape(-1))


# The ids of "a" are 0, 1, 2, 4, 5, those of "b" are 3, 6, 7: each part has a range of both.
PARTS = Schema((("a", 5), ("b", 3)), (("a", "x", "b"), ("b", "y", "a")), ((3, 1), (2, 2)))
IS_B = np.isin(np.arange(8), [3, 6, 7])
EDGE = st.tuples(st.sampled_from([0, 1, 2, 4, 5]), st.sampled_from([3, 6, 7]), st.booleans())


def draw(graph, seeds):
    sampler = Ladies(({"a": 2, "b": 1}, {"b": 2}), edge_ids=True)
    return sampler.sample(KEY, graph, (), seeds, sampler.bound(GraphShape(8, 20), 3))


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    st.lists(EDGE, min_size=20, max_size=20),
    st.sets(st.integers(0, 19), min_size=4, max_size=4),
    st.lists(st.integers(0, 8), min_size=3, max_size=3),
)
def test_small_multigraphs(alike, edges, excluded, seeds):
    """All edges from the drawn nodes are kept, and as many of a type drawn as there are."""
    pairs = [(a, b) if forth else (b, a) for a, b, forth in edges]
    untyped = Graph.from_edges(*np.array(pairs).T, 8)
    indices, target = untyped.edge_index()
    graph = Graph(untyped.indptr, indices, edge_type=np.int16(IS_B[indices]), schema=PARTS)
    given = Seeds(np.int32(seeds), excluded=np.array(sorted(excluded)))
    batch = alike(draw, graph, given, threads=(2,), optimised=True)
    kept = np.setdiff1d(np.arange(20), sorted(excluded))
    nodes = batch.nodes
    for block, sizes in zip(batch.blocks[::-1], ((2, 1), (0, 2)), strict=True):
        frontier = nodes[: int(block.num_targets)]
        into = kept[np.isin(target[kept], frontier)]
        ids = block.edge_id[: block.num_edges]
        drawn, there = np.unique(indices[ids]), np.unique(indices[into])
        for own, k in zip((~IS_B, IS_B), sizes, strict=True):
            assert own[drawn].sum() == min(k, own[there].sum())
        assert sorted(set(ids.tolist())) == into[np.isin(indices[into], drawn)].tolist()


def test_columns_by_relation():
    sub = Matrix(GRAPH, key=KEY)[:, jnp.asarray(SEEDS)]
    runs = sub.mul(jnp.arange(5.0), axis=0).by_relation()
    kind = TYPE[None] == np.arange(3)[:, None]
    expected = [[(kind[r] & (v == TARGET)).sum() for r in range(3)] for v in SEEDS]
    np.testing.assert_array_equal(runs.count(axis=0).reshape(-1, 3), expected)
    assert runs.by_relation() is runs
    assert runs.shape == (N, 15)
    back = runs.joined()
    np.testing.assert_array_equal(back.values, sub.mul(jnp.arange(5.0), axis=0).values)
    np.testing.assert_array_equal(back.count(axis=0), sub.count(axis=0))
    np.testing.assert_array_equal(back.column(), SEEDS)
    block = runs.to_block()[0]
    np.testing.assert_array_equal(block.indptr, sub.to_block()[0].indptr)
    refused("selected from the columns of nodes", runs.individual_sample, 2)
    with pytest.raises(InputError, match="sliced before"):
        runs[:, jnp.asarray(SEEDS)]


def test_the_repr_and_the_bound():
    assert repr(Ladies((3, 3))) == "Ladies(sizes=(3, 3), weighted=False, normalize=True)"
    typed = Ladies(({"paper": 4, "author": 3}, 5))
    assert typed == Ladies(({"author": 3, "paper": 4}, 5), by_type=True)
    assert hash(typed) == hash(Ladies(({"author": 3, "paper": 4}, 5)))
    assert repr(typed).startswith("Ladies(sizes=({'author': 3, 'paper': 4}, 5), ")
    assert worst_case(GRAPH, 5, typed) == worst_case(GRAPH, 5, Ladies((3, 3)))


def test_large_sizes_take_all_edges():
    for normalize, weighted in ((True, False), (False, True)):
        options = {"normalize": normalize, "by_type": True, "edge_ids": True}
        sampler = Ladies(({"*": 30}, 30), weighted, **options)
        room = worst_case(GRAPH, SEEDS.size, sampler)
        batch = jax.jit(sampler.sample, static_argnums=4)(KEY, GRAPH, (), SEEDS, room)
        for block in batch.blocks:
            nodes = np.asarray(batch.nodes)[: int(block.num_targets)]
            ids = np.asarray(block.edge_id)[: int(block.num_edges)]
            assert sorted(ids) == np.flatnonzero(np.isin(TARGET, nodes)).tolist()
            expected = np.asarray(GRAPH.edge_weight)[ids] if weighted else 1
            np.testing.assert_allclose(block.edge_weight[: ids.size], expected, rtol=1e-6)
