"""`Labor`: how often it draws neighbours, by relation too, its estimates, plain JAX."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases, rarely
from rows_law import P_VALUE, assert_mean
from scipy import stats
from test_by_relation import graph_of

import jgs
from jgs import Graph
from jgs.sampling import Capacity, Labor, Neighbors, Seeds, worst_case
from jgs.sampling.algorithms.labor_plain import NumberKeys


def fan(*degrees: int, width: int = 0) -> tuple[Graph, np.ndarray]:
    """Target `i` has the in-neighbours `0..degrees[i]`. The ids of the targets come second."""
    width = max(width, *degrees)
    src = np.concatenate([np.arange(d) for d in degrees])
    targets = width + np.arange(len(degrees))
    return Graph.from_edges(src, np.repeat(targets, degrees), width + len(degrees)), targets


def drawn_often(sampler, graph, seeds, num_keys, seed=0) -> jgs.MiniBatch:
    """`seeds` sampled with each of many keys, in arrays with a leading axis."""
    keys = jax.random.split(jax.random.key(seed), num_keys)
    capacity = worst_case(graph, len(seeds), sampler)
    many = np.tile(np.asarray(seeds, np.int32), (num_keys, 1))
    batch = jax.device_get(sampler.sample(keys, graph, (), many, capacity))
    assert not batch.overflow.any()
    return batch


def edge_counts(batch: jgs.MiniBatch, num_edges: int) -> np.ndarray:
    return np.bincount(batch.blocks[-1].edge_id.ravel(), minlength=num_edges + 1)[:num_edges]


def assert_binomial(counts: np.ndarray, num: int, chance: np.ndarray | float) -> None:
    """Chi-square of independent binomial counts, each of `num` trials."""
    expected = num * np.broadcast_to(chance, counts.shape)
    deviation = (counts - expected) ** 2 / (expected * (1 - expected / num))
    p = stats.chi2.sf(deviation.sum(), counts.size)
    assert P_VALUE < p < 1 - P_VALUE, f"p={p}, expected {expected}, actual {counts}"


BOTH_FORMS = [
    (Labor((5, 3), edge_weights=True, unbiased=True), 2),
    (Labor((5, -1), period=8, relabel_inputs=False, edge_weights=True), 5),
    (Labor((4, 3), 1, True, 8, edge_weights=True, unbiased=True), 5),
    (Labor((40, 3), -1, edge_weights=True), 2),
]


@cases("sampler, width", *rarely(BOTH_FORMS, 0, 1, 3), ids=str)
def test_kernel_is_plain(sampler, width, alike, same_bits, make_graph):
    """Batches in one call and alone; seeds padded and repeated; one batch overflows."""
    sampler, graph = replace(sampler, edge_ids=True), make_graph(5000, 200_000)
    rng = np.random.default_rng(1)
    seeds = rng.integers(0, 5001, (3, 300)).astype(np.int32)
    seeds[0, 200:] = 5000
    seeds[1] = np.arange(300)  # the hubs
    keys = rng.integers(0, 2**32, (3, width), dtype=np.uint32)
    capacity = Capacity((12_000, 60_000), (6000, 9000))

    def draw(keys, graph, seeds):
        return sampler.sample(keys, graph, (), seeds, capacity)

    plain = alike(draw, keys, graph, seeds, optimised=True)
    alone = jax.jit(draw)
    for i in range(3):
        same_bits(alone(keys[i], graph, seeds[i]), jax.tree.map(lambda a, i=i: a[i], plain))
    assert not plain.overflow[0]
    assert (plain.needed[plain.overflow] > 0).any(axis=(1, 2)).all()


def test_each_neighbour_is_drawn_with_probability_k_of_d():
    """Rows of five kinds: small, a hub, as long as the fanout, one shorter, and empty."""
    degrees, num = (7, 2000, 3, 2, 0), 3000
    graph, targets = fan(*degrees)
    batch = drawn_often(Labor((3,), edge_ids=True), graph, targets, num)
    small, hub, rest = np.split(edge_counts(batch, graph.num_edges), [7, 2007])
    assert_binomial(small, num, 3 / 7)
    assert_binomial(hub, num, 3 / 2000)
    assert (rest == num).all()
    drawn = np.diff(batch.blocks[-1].indptr, axis=1)
    assert abs(drawn[:, 0].mean() - 3) < 4 * np.sqrt(3 * 4 / 7 / num)
    assert abs(drawn[:, 1].mean() - 3) < 4 * np.sqrt(3 / num)
    assert (drawn[:, 2:] == [3, 2, 0]).all()


def test_targets_share_the_numbers_of_their_neighbours(neighbors_of):
    graph, targets = fan(40, 40, 80)
    sampler = Labor((6,))
    for key in range(20):
        batch = sampler.sample(jax.random.key(key), graph, (), targets, None)
        first, second, wide = neighbors_of(batch)[0].values()
        assert first == second
        # The same numbers against a lower threshold.
        assert {u for u in wide if u < 40} <= {*first}


def test_estimates_of_the_mean():
    """The plain mean is nearly right, `unbiased` exactly, over many keys, also for LABOR-i."""
    graph, targets = fan(10, 30, 3, 60, width=60)
    x = jnp.asarray(np.random.default_rng(0).gamma(1.0, size=(graph.num_nodes, 1)), jnp.float32)
    truth = [float(x[:d].mean()) for d in (10, 30, 3, 60)]
    num = 2000

    def means(batch):
        block, rows = batch.blocks[-1], jnp.take(x, batch.nodes, axis=0, mode="fill")
        return jgs.ops.aggregate(block, rows, "mean")[:4, 0]

    for importance in (0, 2):
        for unbiased in (False, True):
            sampler = Labor((5,), importance, edge_weights=True, unbiased=unbiased)
            batch = drawn_often(sampler, graph, targets, num)
            assert_mean(jax.lax.map(means, batch), truth, slack=0 if unbiased else 0.05)
            if not unbiased:
                ptr, weight = batch.blocks[-1].indptr, batch.blocks[-1].edge_weight
                for i, t in np.ndindex(100, 4):  # a row's weights add up to their number
                    row = weight[i, ptr[i, t] : ptr[i, t + 1]]
                    np.testing.assert_allclose(row.sum(), row.size, rtol=1e-3)


def test_labor_i_draws_no_fewer_edges_and_fewer_nodes(make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(40)
    fanout = np.minimum(np.diff(np.asarray(graph.indptr))[:40], 4).sum()
    edges, nodes = {}, {}
    for importance in (0, 1, -1):
        block = drawn_often(Labor((4,), importance), graph, seeds, 100).blocks[-1]
        edges[importance] = np.asarray(block.num_edges).mean()
        nodes[importance] = np.asarray(block.num_sources).mean()
    assert abs(edges[0] - fanout) < 0.05 * fanout
    assert edges[1] > 0.98 * fanout
    assert edges[-1] > 0.98 * fanout
    assert nodes[-1] <= nodes[1] <= nodes[0]


def test_labor_i_keeps_the_variance():
    """Every target's `sum(1 / p)` is `d**2 / k`, which the weights show where all are drawn."""
    graph, targets = fan(12, 20, 40, 3)
    sampler = Labor((4,), 3, edge_ids=True, edge_weights=True, unbiased=True)
    batch = drawn_often(sampler, graph, targets, 4000)
    block, inverse = batch.blocks[-1], np.zeros(graph.num_edges)
    for i in range(4000):
        for t, degree in enumerate((12, 20, 40, 3)):
            row = slice(*block.indptr[i, t : t + 2])
            number = max(row.stop - row.start, 1)
            inverse[block.edge_id[i, row]] = block.edge_weight[i, row] * degree / number
    parts = np.split(inverse, [12, 32, 72])
    for part, degree in zip(parts, (12, 20, 40), strict=False):
        assert (part >= 1 - 1e-5).all()
        np.testing.assert_allclose(part.sum(), degree**2 / 4, rtol=1e-3)
    np.testing.assert_allclose(parts[3], 1)
    assert_binomial(edge_counts(batch, 75)[:72], 4000, 1 / (inverse[:72] + 1e-9))


def test_dependent_batches_change_a_part_of_the_numbers_a_step():
    num, period, key, steps = 20_000, 5, np.array([3, 4], np.uint32), np.arange(12)
    independent = (of.step_keys(key, steps) for of in (Labor((2,)), Neighbors((2,))))
    np.testing.assert_array_equal(*independent)
    key_data = Labor((2,), period=period).step_keys(key, steps)
    assert (key_data.dtype, key_data.shape) == (np.uint32, (12, 5))
    with jax.enable_x64(True):
        node, of_hop = jnp.arange(num, dtype=jnp.int32), jnp.asarray(key_data)
        numbers = np.asarray(jax.vmap(lambda w: NumberKeys.of(w, 0).numbers(node))(of_hop))
    for each in numbers:  # the numbers are uniform at every step
        counts = np.bincount((each >> np.uint64(58)).astype(int), minlength=64)
        assert stats.chisquare(counts).pvalue > P_VALUE
    changed = (numbers[1:] != numbers[:-1]).sum(1)
    assert_binomial(changed, num, 1 / period)
    assert (numbers[0] != numbers[5]).all()  # after a period every number has changed
    assert abs(np.corrcoef(numbers[0].astype(float), numbers[5].astype(float))[0, 1]) < 0.03


GRAPH = graph_of(edges=3000)  # 60 papers, 90 authors, 30 shelves
RELATION_KEY = jax.random.key(1)
N, TYPE = GRAPH.num_nodes, np.asarray(GRAPH.edge_type)
INDICES, TARGET = GRAPH.edge_index()
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
def test_by_relation_the_kernel_is_plain(sampler, excluded, alike, same_bits):
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
    block = sampler.sample(RELATION_KEY, GRAPH, sampler.init(GRAPH), seeds, None).blocks[0]
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
    other = Labor((3,), **options).sample(RELATION_KEY, split, (), seeds, None).blocks[0]
    ids = np.asarray(other.edge_id)[: int(other.num_edges)]
    order = np.asarray(split.edge_order)  # row i of the split graph was this edge
    of_runs = np.split(edges[order[ids]], np.asarray(other.indptr)[1 : len(runs)])
    for run, own in zip(runs.tolist(), of_runs, strict=True):
        assert found[tuple(run)] == own.tolist()
    weights = [np.asarray(b.edge_weight)[: ids.size] for b in (block, other)]
    np.testing.assert_array_equal(*weights)
    assert block.num_edges == other.num_edges
