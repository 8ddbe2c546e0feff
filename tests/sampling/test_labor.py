"""`Labor`: how often it draws neighbours, its estimates, and one sample in each implementation.

The kernel draws where it is installed. A test shows that it equals plain JAX, bit for bit.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jgs
from jgs import Graph, InputError, kernels
from jgs.sampling import Capacity, Labor, Loader, plan_capacity, worst_case
from jgs.sampling.algorithms.nodewise import labor
from jgs.sampling.algorithms.nodewise.labor_plain import NumberKeys
from jgs.sampling.base import Sampler
from jgs.sampling.edges import hops

P_VALUE = 1e-4  # keys are fixed: a correct version always passes
KEY = jax.random.key(0)


def fan(*degrees: int, width: int = 0) -> tuple[Graph, np.ndarray]:
    """Target `i` has the in-neighbours `0..degrees[i]`. The ids of the targets come second."""
    width = max(width, *degrees)
    src = np.concatenate([np.arange(d) for d in degrees])
    targets = width + np.arange(len(degrees))
    return Graph.from_edges(src, np.repeat(targets, degrees), width + len(degrees)), targets


def rows_of(batch: jgs.MiniBatch) -> list[np.ndarray]:
    """For each target the ids of the nodes that it drew in the seeds' hop."""
    block, nodes = batch.blocks[-1], np.asarray(batch.nodes)
    drawn = nodes[np.asarray(block.indices)[: int(block.num_edges)]]
    return np.split(drawn, np.asarray(block.indptr)[1:-1])[: int(block.num_targets)]


def drawn_often(sampler, graph, seeds, num_keys, seed=0) -> jgs.MiniBatch:
    """`seeds` sampled with each of many keys, in arrays with a leading axis."""
    keys = jax.random.split(jax.random.key(seed), num_keys)
    capacity = worst_case(graph, len(seeds), sampler)
    many = np.tile(np.asarray(seeds, np.int32), (num_keys, 1))
    batch = sampler.sample(keys, graph, (), many, capacity)
    assert not np.asarray(batch.overflow).any()
    return batch


def edge_counts(batch: jgs.MiniBatch, num_edges: int) -> np.ndarray:
    return np.bincount(np.asarray(batch.blocks[-1].edge_id).ravel(), minlength=num_edges + 1)[
        :num_edges
    ]


def assert_binomial(counts: np.ndarray, num: int, chance: np.ndarray | float) -> None:
    """Chi-square of independent binomial counts, each of `num` trials."""
    expected = num * np.broadcast_to(chance, counts.shape)
    deviation = (counts - expected) ** 2 / (expected * (1 - expected / num))
    p = stats.chi2.sf(deviation.sum(), counts.size)
    assert P_VALUE < p < 1 - P_VALUE, f"p={p}, expected {expected}, actual {counts}"


def _kernel(num_threads: int):
    def sample(key_data, graph, seeds, spec):
        before, kernels.NUM_THREADS = kernels.NUM_THREADS, num_threads  # read while tracing
        try:
            return labor.sample_kernel(key_data, graph, seeds, spec)
        finally:
            kernels.NUM_THREADS = before

    return jax.jit(sample, static_argnames="spec")


PLAIN = jax.jit(labor.sample_plain, static_argnames="spec")
KERNELS = {threads: _kernel(threads) for threads in (1, 2, 4)}
needs_kernels = pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")


def sample_by(implementation, sampler: Labor, *args) -> jgs.MiniBatch:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hops, "_samples", lambda kernel, plain, *args: implementation(*args[:4]))
        return sampler.sample(*args)


@needs_kernels
@pytest.mark.parametrize(
    ("sampler", "width"),
    [
        (Labor((5, 3)), 2),
        (Labor((5, -1), period=8, relabel_inputs=False), 5),
        (Labor((4, 3), 1, layer_dependency=True, period=8), 5),
        (Labor((40, 3), -1), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("unbiased", [False, True])
def test_kernel_is_plain(sampler, width, unbiased, same_bits, make_graph):
    """Several batches in one call, and one alone. Seeds are padded and repeated, one batch
    overflows, and the number of threads varies."""
    extras = {"edge_ids": True, "edge_weights": True, "unbiased": unbiased}
    sampler = dataclasses.replace(sampler, **extras)
    graph, rng = make_graph(5000, 200_000), np.random.default_rng(1)
    seeds = rng.integers(0, 5001, (3, 300)).astype(np.int32)
    seeds[0, 200:] = 5000
    seeds[1] = np.arange(300)  # the hubs
    keys = rng.integers(0, 2**32, (3, width), dtype=np.uint32)
    capacity = Capacity((12_000, 60_000), (6000, 9000))
    args = (jnp.asarray(keys), graph, (), seeds, capacity)
    plain = sample_by(PLAIN, sampler, *args)
    for implementation in KERNELS.values():
        same_bits(sample_by(implementation, sampler, *args), plain)
    for i in range(3):
        one = sample_by(
            KERNELS[2], sampler, jnp.asarray(keys[i]), *args[1:3], seeds[i], capacity
        )
        same_bits(one, jax.tree.map(lambda a, i=i: a[i], plain))
    overflow = np.asarray(plain.overflow)
    assert not overflow[0]
    assert (np.asarray(plain.needed)[overflow] > 0).any(axis=(1, 2)).all()


def test_each_neighbour_is_drawn_with_probability_k_of_d():
    """Rows of five kinds: small, a hub, as long as the fanout, one shorter, and empty."""
    degrees, num = (7, 2000, 3, 2, 0), 3000
    graph, targets = fan(*degrees)
    batch = drawn_often(Labor((3,), edge_ids=True), graph, targets, num)
    small, hub, rest = np.split(edge_counts(batch, graph.num_edges), [7, 2007])
    assert_binomial(small, num, 3 / 7)
    assert_binomial(hub, num, 3 / 2000)
    assert (rest == num).all()
    drawn = np.diff(np.asarray(batch.blocks[-1].indptr), axis=1)
    assert abs(drawn[:, 0].mean() - 3) < 4 * np.sqrt(3 * 4 / 7 / num)
    assert abs(drawn[:, 1].mean() - 3) < 4 * np.sqrt(3 / num)
    assert (drawn[:, 2:] == [3, 2, 0]).all()


def test_targets_share_the_numbers_of_their_neighbours():
    graph, targets = fan(40, 40, 80)
    sampler = Labor((6,))
    for key in range(20):
        first, second, wide = rows_of(
            sampler.sample(jax.random.key(key), graph, (), targets, None)
        )
        assert first.tolist() == second.tolist()
        assert set(wide[wide < 40]) <= set(first)  # the same numbers against a lower threshold


def test_layers_share_them_if_asked():
    """One node draws from the same neighbours at both hops."""
    graph, (target,) = fan(40)
    loop = Graph.from_edges(
        np.append(np.asarray(graph.indices), target), np.full(41, target), graph.num_nodes
    )
    equal = []
    for dependent in (False, True):
        batch = drawn_often(
            Labor((8, 8), layer_dependency=dependent, edge_ids=True), loop, [target], 20
        )
        hops = [
            [
                np.asarray(block.edge_id)[i, : np.asarray(block.indptr)[i, 1]].tolist()
                for i in range(20)
            ]
            for block in batch.blocks
        ]
        equal.append(sum(a == b for a, b in zip(*hops, strict=True)))
    assert equal == [0, 20]


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
            estimates = np.asarray(jax.lax.map(means, batch), np.float64)
            error = estimates.mean(0) - truth
            deviation = estimates.std(0) / np.sqrt(num)
            if unbiased:
                assert (np.abs(error) <= 4.5 * deviation + 1e-6).all(), (error, deviation)
            else:
                assert (np.abs(error) <= 4.5 * deviation + 0.05).all(), (error, deviation)
                block = batch.blocks[-1]
                ptr, weight = np.asarray(block.indptr), np.asarray(block.edge_weight)
                for i in range(100):  # a row's weights add up to their number
                    for t in range(4):
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
    edge, weight = np.asarray(block.edge_id), np.asarray(block.edge_weight)
    ptr = np.asarray(block.indptr)
    for i in range(edge.shape[0]):
        for t, degree in enumerate((12, 20, 40, 3)):
            row = slice(ptr[i, t], ptr[i, t + 1])
            inverse[edge[i, row]] = weight[i, row] * degree / max(ptr[i, t + 1] - ptr[i, t], 1)
    parts = np.split(inverse, [12, 32, 72])
    for part, degree in zip(parts, (12, 20, 40), strict=False):
        assert (part >= 1 - 1e-5).all()
        np.testing.assert_allclose(part.sum(), degree**2 / 4, rtol=1e-3)
    np.testing.assert_allclose(parts[3], 1)
    assert_binomial(edge_counts(batch, 75)[:72], 4000, 1 / (inverse[:72] + 1e-9))


def _numbers(key_data: np.ndarray, num_nodes: int) -> np.ndarray:
    with jax.enable_x64(True):
        node = jnp.arange(num_nodes, dtype=jnp.int32)
        return np.asarray(
            jax.vmap(lambda w: NumberKeys.of(w, 0).numbers(node))(jnp.asarray(key_data))
        )


def test_dependent_batches_change_a_part_of_the_numbers_a_step():
    num, period = 20_000, 5
    key_data = Labor((2,), period=period).step_keys(np.array([3, 4], np.uint32), np.arange(12))
    assert (key_data.dtype, key_data.shape) == (np.uint32, (12, 5))
    numbers = _numbers(key_data, num)
    for each in numbers:  # the numbers are uniform at every step
        counts = np.bincount((each >> np.uint64(58)).astype(int), minlength=64)
        assert stats.chisquare(counts).pvalue > P_VALUE
    changed = (numbers[1:] != numbers[:-1]).sum(1)
    assert_binomial(changed, num, 1 / period)
    assert (numbers[0] != numbers[5]).all()  # after a period every number has changed
    assert abs(np.corrcoef(numbers[0].astype(float), numbers[5].astype(float))[0, 1]) < 0.03


def test_period_one_is_independent(same_bits, make_graph):
    graph, key_data = make_graph(300, 4000), np.array([3, 4], np.uint32)
    steps = np.arange(6)
    sampler = Labor((2, 2))
    same_bits(
        sampler.step_keys(key_data, steps),
        jgs.sampling.Neighbors((2,)).step_keys(key_data, steps),
    )
    batches = list(Loader(graph, np.arange(20), 8, sampler, key=KEY, shuffle=False))
    for step, batch in enumerate(batches):
        key = jax.random.fold_in(jax.random.fold_in(KEY, 0), 1 + step)
        rows = rows_of(sampler.sample(key, graph, (), batch.seeds, None))
        for mine, other in zip(rows_of(batch), rows, strict=True):
            assert mine.tolist() == other.tolist()


def test_a_loader_of_dependent_batches_resumes_within_a_group(same_bits, make_graph):
    graph = make_graph(300, 4000)
    sampler = Labor((3, 2), period=4)
    capacity = plan_capacity(graph, 16, sampler, trials=2, margin=1.0)
    options = {"key": KEY, "capacity": capacity}
    whole = list(Loader(graph, np.arange(100), 16, sampler, super_batch=1, **options))
    for stop in (2, 5):
        first = Loader(graph, np.arange(100), 16, sampler, super_batch=3, **options)
        for _ in itertools.islice(first, stop):
            pass
        state = first.state_dict()
        first.close()
        rest = Loader(graph, np.arange(100), 16, sampler, super_batch=2, **options)
        rest.load_state_dict(state)
        for batch, other in zip(rest, whole[stop:], strict=True):
            same_bits(batch, other)
    other = Loader(graph, np.arange(100), 16, Labor((3, 2), period=3), **options)
    with pytest.raises(InputError, match="digest"):
        other.load_state_dict(state)


def test_dependent_batches_share_nodes(make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(10)
    seen = []
    for period in (1, 16):
        sampler = Labor((3,), period=period)
        key_data = sampler.step_keys(np.array([1, 2], np.uint32), np.arange(8))
        batches = [sampler.sample(jnp.asarray(w), graph, (), seeds, None) for w in key_data]
        kept = [set(np.asarray(b.nodes)[10 : int(b.blocks[0].num_sources)]) for b in batches]
        seen.append(np.mean([len(a & b) / len(a) for a, b in itertools.pairwise(kept)]))
    assert seen[1] > 0.8 > 0.5 > seen[0]


def test_order_padding_and_repetitions_change_no_draw(neighbors_of, make_graph):
    graph, rng = make_graph(300, 4000), np.random.default_rng(0)
    seeds = rng.permutation(300)[:20]
    for importance in (0, 1):
        sampler = Labor((4, 3), importance)
        alone = neighbors_of(sampler.sample(KEY, graph, (), seeds, None))
        mixed = np.full(64, 300)
        places = rng.permutation(64)[:24]
        mixed[places] = rng.permutation(np.append(seeds, seeds[:4]))
        capacity = Capacity((4000, 6000), (2500, 5000))
        again = sampler.sample(KEY, graph, (), mixed, capacity)
        assert not again.overflow
        block = again.blocks[-1]
        assert block.num_edges <= again.needed[0, 0]
        for rows, other in zip(alone, neighbors_of(again), strict=True):
            other.pop(300, None)  # the padding's empty row
            assert rows == other


def test_overflow_says_what_was_needed(make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(6)
    sampler = Labor((4, 3), edge_ids=True, edge_weights=True)
    roomy = Capacity((90, 900), (400, 400))
    full = sampler.sample(KEY, graph, (), seeds, roomy)
    blocks = full.blocks[::-1]
    exact = Capacity(
        *(tuple(int(getattr(b, n)) for b in blocks) for n in ("num_edges", "num_sources"))
    )
    assert np.asarray(full.needed).tolist() == [list(exact.edges), list(exact.sources)]
    assert not sampler.sample(KEY, graph, (), seeds, exact).overflow
    for capacity, needed in (
        (Capacity((exact.edges[0] - 1, 900), (400, 400)), exact.edges[0]),
        (Capacity((90, exact.edges[1] - 1), (400, 400)), exact.edges[1]),
    ):
        batch = sampler.sample(KEY, graph, (), seeds, capacity)
        assert batch.overflow
        assert needed in np.asarray(batch.needed)[0].tolist()
        assert not np.asarray(batch.blocks[0].edge_weight).any()
        assert (np.asarray(batch.nodes) == 300).all()


def test_jit_and_vmap_change_nothing(same_bits, make_graph):
    graph, seeds = make_graph(300, 4000), np.arange(8)
    sampler, capacity = Labor((3, 2), edge_weights=True), Capacity((60, 200), (80, 250))
    keys = jax.random.split(KEY, 3)

    @jax.jit
    def sample(key):
        return sampler.sample(key, graph, (), seeds, capacity)

    many = jax.vmap(sample)(keys)
    for i in range(3):
        one = sampler.sample(keys[i], graph, (), seeds, capacity)
        same_bits(jax.tree.map(lambda a, i=i: a[i], many), one)
        same_bits(sample(keys[i]), one)


def test_whole_rows_are_the_graph(make_graph):
    graph = make_graph(300, 2000)
    batch = Labor((-1,), edge_ids=True).sample(KEY, graph, (), np.arange(300), None)
    np.testing.assert_array_equal(batch.blocks[0].edge_id, np.arange(2000))


def test_contract(make_graph):
    graph = make_graph(300, 4000)
    zero, some = Labor((2,)), Labor((2,), importance=1)
    assert isinstance(zero, Sampler)
    assert (zero.by_node, some.by_node) == (True, False)
    assert hash(zero) == hash(Labor([2]))
    assert repr(zero) == repr(Labor((2,), edge_ids=True, relabel_inputs=False))
    assert repr(zero) != repr(Labor((2,), period=2))
    hops = Labor((2, 5))
    nodes = np.array([5, 300, 7, 9], np.int32)
    with jax.enable_x64(True):
        rows = hops.draw_hop(jax.random.key_data(KEY), graph, jnp.asarray(nodes), 1, 200)
    own = Labor((2, 5), relabel_inputs=False).sample(KEY, graph, (), nodes, None)
    for i in (0, 2, 3):  # the same nodes are targets of both hops
        ptr, block = np.asarray(rows.indptr), own.blocks[0]
        at = np.asarray(own.nodes).tolist().index(nodes[i])
        theirs = np.asarray(block.indices)[block.indptr[at] : block.indptr[at + 1]]
        assert np.asarray(rows.neighbors)[ptr[i] : ptr[i + 1]].tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fanouts": (0,)}, "fanouts must be static positive"),
        ({"importance": -2}, "importance must be an int of at least -1"),
        ({"period": 0}, "period must be an int of at least 1"),
        ({"unbiased": True}, "an unbiased estimate needs the edges' weights"),
    ],
)
def test_bad_fields_are_refused(change, says):
    with pytest.raises(InputError, match=says):
        Labor(**({"fanouts": (2,)} | change))
