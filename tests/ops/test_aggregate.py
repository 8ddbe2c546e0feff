"""`jgs.ops.aggregate` against float64 NumPy loops; of a lost sample the results are NaN."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from blocks import aggregated, make_block, random_block, with_weight
from cases import cases
from derivatives import pulled_aggregate, twins
from refusals import refused

import jgs
from jgs import Block, SparseFeatures, kernels, ops
from jgs.ops.checks import LOST
from jgs.sampling import Capacity, Neighbors, worst_case

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


@cases(
    "reduce, weighted, width",
    *(("sum", False, 13), ("sum", True, 257)),
    *(("mean", False, 3), ("mean", True, 100)),
    *(("max", False, 16), ("max", True, 1)),
)
def test_aggregate_and_its_derivatives_equal_the_definition(reduce, weighted, width):
    rng = np.random.default_rng(width)
    run = twins(pulled_aggregate(reduce))
    sizes = (40, 13, False), (40, 3, True), (7, 1, False), (2, 9, True), (0, 0, False)
    for num_targets, max_degree, ties in sizes:
        block = random_block(rng, weighted, num_targets, 100, max_degree, room=(44, 400))
        x = rng.standard_normal((105, width)).astype(np.float32)
        x = np.round(x) if ties else x
        grad_out = rng.standard_normal((44, width)).astype(np.float32)
        want = aggregated(block, x, grad_out, reduce)
        read = np.asarray(block.indices)[: int(block.num_edges)]
        x[~np.isin(np.arange(105), read)] = np.nan
        for out, (grad_x, grad_weight) in run(block, x, grad_out):
            np.testing.assert_allclose(out, want[0], rtol=1e-5, atol=2e-5)
            np.testing.assert_allclose(grad_x, want[1], rtol=1e-5, atol=2e-5)
            if weighted:
                np.testing.assert_allclose(grad_weight, want[2], rtol=1e-5, atol=2e-5)
            assert not out[num_targets:].any()


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_rows_of_heads_and_forward_mode(reduce):
    block = random_block(np.random.default_rng(0), False, 9, 20, 4, room=(12, 60))
    rows = block.source_capacity or 20
    x = jax.random.normal(jax.random.key(0), (rows, 2, 3))
    weight = jax.random.uniform(jax.random.key(1), (block.edge_capacity, 2))

    def flat(x, weight=None):
        return ops.aggregate(block, x.reshape(rows, 6), reduce, weight)

    for given in (None, weight[:, 0], *([] if reduce == "max" else [weight])):
        out = ops.aggregate(block, x, reduce, given)
        assert out.shape == (block.target_capacity, 2, 3)
        np.testing.assert_array_equal(out.reshape(-1, 6), flat(x, given))
    of_block = ops.aggregate(with_weight(block, weight[:, 0]), x, reduce)
    np.testing.assert_array_equal(of_block, ops.aggregate(block, x, reduce, weight[:, 0]))
    refused(
        "must be [E, 2], a column for each head", ops.aggregate, block, x, "sum", weight[:, :1]
    )
    for forward in (jax.jacfwd, lambda f: lambda x: jax.jvp(f, (x,), (x,))):
        refused("in reverse mode; got jax.jvp", forward(flat), x)


def test_max_of_equal_infinite_and_nan_messages():
    """The first edge that attains a maximum gets its derivative."""
    x = np.float32([[-3, 5], [-np.inf, 5], [np.nan, 3], [-3, 5], [0, 0]])
    block = make_block([[0], [1, 1], [0, 2, 1, 2], [2, 1, 0, 1], []], num_sources=4)
    grad_out = np.float32([[1, 1], [2, 2], [4, 4], [8, 8], [16, 16]])
    for out, (grad, _) in twins(pulled_aggregate("max"))(block, x, grad_out):
        want = [[-3, 5], [-np.inf, 5], [np.nan, 5], [np.nan, 5], [0, 0]]
        np.testing.assert_array_equal(out, want)
        assert grad.tolist() == [[1, 5], [2, 10], [12, 0], [0, 0], [0, 0]]


def test_padded_edges_do_nothing_when_every_row_is_real():
    block = make_block([[1], [1]], capacities=(0, 3))  # the padding points at row 0
    x = np.array([[np.nan], [2.0]], np.float32)

    def run(x):
        return [pulled_aggregate(reduce)(block, x, jnp.ones_like) for reduce in ops.REDUCTIONS]

    for results in twins(run)(x):
        for out, (grad, _) in results:
            assert out.tolist() == [[2], [2]]
            assert grad.tolist() == [[0], [2]]


@cases(
    "change, said",
    ({"reduce": "median"}, "sum, mean, max"),
    ({"x": np.ones(3)}, "x must be floats [N, F]"),
    ({"x": np.ones((2, 2))}, "2 rows for 3"),
    ({"indptr": np.array([0.0, 1.0])}, "indptr must be"),
    ({"indptr": np.array([], np.int32)}, "indptr must be* int32[0]"),
    ({"indptr": None}, "indptr must be* none"),
    ({"edge_weight": np.ones(1)}, "edge_weight must be"),
    ({"num_targets": 1.0}, "num_targets must be"),
    ({"num_edges": np.float32(2)}, "num_edges must be"),
    ({"num_sources": [3]}, "num_sources must be* int64[1]"),
)
def test_aggregate_refuses_bad_arguments(change, said):
    fields = {k: v for k, v in change.items() if k not in ("x", "reduce")}
    block = replace(make_block([[0, 2]]), **fields)
    x = change.get("x", np.ones((3, 2), np.float32))
    refused(said, ops.aggregate, block, x, change.get("reduce", "mean"))


@cases("integer, x64", (int, False), (np.int64, True), (np.uint8, False), (jnp.asarray, True))
def test_counts_may_be_integers_of_any_kind(integer, x64):
    with jax.enable_x64(x64):
        counts = (integer(1), integer(3), integer(2))
        block = Block(np.array([0, 2], np.int32), np.array([0, 2], np.int32), *counts)
        x = np.array([[1], [np.nan], [5]], np.float32)
        assert ops.aggregate(block, x).tolist() == [[3]]
        ones = np.ones((1, 1), np.float32)
        out, (grad, _) = jax.jit(pulled_aggregate("mean"))(block, x, ones)
        assert out.tolist() == [[3]]
        assert grad.tolist() == [[0.5], [0], [0.5]]


@needs_kernels
def test_a_count_beyond_32_bits_does_not_become_another():
    for count in (2**32 + 2, -(2**32) + 2):  # both are 2 in their low bits
        block = replace(make_block([[0, 1]]), num_edges=count)
        with pytest.raises(jax.errors.JaxRuntimeError, match="num_edges must"):
            jax.block_until_ready(ops.aggregate(block, np.ones((2, 1), np.float32)))


N = 1000
RNG = np.random.default_rng(0)
GRAPH = jgs.Graph.from_edges(*RNG.integers(0, N, (2, 9000)), num_nodes=N)
TIGHT = Capacity(edges=(64, 70), sources=(70, 80))
SAMPLER, SEEDS = Neighbors((5, 5)), np.arange(64, dtype=np.int32)
BLOCK = random_block(RNG, True, 5, 20, 4, room=(7, 30))
NONE = {f"num_{name}": jnp.int32(0) for name in ("targets", "sources", "edges")}
EMPTY = replace(BLOCK, indptr=0 * BLOCK.indptr, **NONE, overflow=jnp.array(True))
X = RNG.standard_normal((20, 6)).astype(np.float32)
SPARSE = SparseFeatures.from_scipy(scipy.sparse.csr_array(np.where(X > 0, X, 0)))

WAYS = {
    **{each: partial(ops.aggregate, reduce=each) for each in ("sum", "mean", "max")},
    "heads": lambda block, x: ops.aggregate(block, x, "sum", jnp.ones((30, 2), jnp.float32)),
    "no room": lambda block, x: ops.aggregate(_without_room(block), x),
    "features": lambda block, x: ops.gather_aggregate(x, _of_nodes(block)),
    "sparse": lambda block, _: ops.gather_aggregate(SPARSE, _of_nodes(block)),
    "places": lambda block, x: ops.gather_aggregate((x, x), block, place=jnp.arange(20)),
}


def _without_room(block):
    block = replace(block, indices=block.indices[:0], edge_weight=None)
    return replace(block, indptr=0 * block.indptr, num_edges=jnp.int32(0))


def _of_nodes(block):
    return replace(block, num_sources=jnp.int32(20), source_capacity=20)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_aggregated_is_nan(way):
    def both(block, x):
        out, pull = jax.vjp(lambda x: WAYS[way](block, x), x)
        return out, pull(jnp.ones_like(out))[0]

    blocks, run = (EMPTY, replace(BLOCK, overflow=jnp.array(False)), BLOCK), twins(both)
    for lost, whole, plain in zip(*(run(block, X) for block in blocks), strict=True):
        assert np.isnan(lost[0]).all()
        jax.tree.map(np.testing.assert_array_equal, whole, plain)


@partial(jax.jit, static_argnums=4)
def own_step(w, key, graph, x, capacity):
    """A step of one's own that ends with `aggregate`, with a loss over the real seeds."""

    def loss(w):
        batch = SAMPLER.sample(key, graph, (), SEEDS, capacity)
        rows = batch.gather(x)
        for block in batch.blocks:
            rows = rows[: block.target_capacity] + ops.aggregate(block, rows, "mean")
        wrong = jnp.where(batch.seed_mask, (rows @ w - 1) ** 2, 0).sum()
        return wrong / jnp.maximum(batch.seed_mask.sum(), 1), batch

    return jax.value_and_grad(loss, has_aux=True)(w)


def test_a_step_of_ones_own():
    x, key = jax.random.normal(jax.random.key(1), (N, 8)), jax.random.key(0)
    (_, batch), slope = own_step(jnp.ones(8), key, GRAPH, x, TIGHT)
    assert batch.overflow
    assert not batch.seed_mask.any()
    assert np.isnan(slope).all()
    capacity, worst = TIGHT, worst_case(GRAPH, 64, SAMPLER)
    while batch.overflow:
        capacity = capacity.enlarge(worst)
        (found, batch), slope = own_step(jnp.ones(8), key, GRAPH, x, capacity)
    (want, _), of_most = own_step(jnp.ones(8), key, GRAPH, x, worst)
    assert batch.seed_mask.all()
    np.testing.assert_allclose(found, want, rtol=1e-5)
    np.testing.assert_allclose(slope, of_most, rtol=1e-4)


def test_features_of_all_nodes():
    batch = SAMPLER.sample(jax.random.key(0), GRAPH, (), SEEDS, None)
    x = jnp.asarray(RNG.standard_normal((N, 4)), jnp.float32)
    sparse = SparseFeatures.from_scipy(scipy.sparse.csr_array(x))
    want = ops.gather(x, batch.nodes)
    for features in (x, sparse, (x[:300], x[300:])):
        np.testing.assert_array_equal(batch.gather(features), want)
        np.testing.assert_array_equal(ops.gather(features, batch), want)
    short = SparseFeatures.from_scipy(scipy.sparse.csr_array(x[:900]))
    for features in (x[:900], short, (x[:300], x[400:]), jnp.ones((N + 1, 4))):
        refused(f"for {N} nodes. Give the features of all nodes", batch.gather, features)


def test_the_plain_path_takes_each_edge_of_a_broken_block_at_most_once():
    rng = np.random.default_rng(2)
    extreme = np.array([-(2**31), -5, -1, 0, 1, 2, 3, 4, 9, 2**31 - 1])
    # As many features as sources, and feature s is 1 for source s only.
    x = np.eye(4, dtype=np.float32)

    @jax.jit
    def run(block):
        return [pulled_aggregate(reduce)(block, x, jnp.ones_like) for reduce in ops.REDUCTIONS]

    for _ in range(60):
        indptr, indices = (rng.choice(extreme, n).astype(np.int32) for n in (5, 6))
        num_targets, num_edges = rng.choice(extreme, 2).astype(np.int32)
        num_edges = max(num_edges, np.int32(LOST + 1))  # which is no count
        block = Block(indptr, indices, num_targets, np.int32(3), num_edges)
        good = np.arange(6) < min(num_edges, indptr[-1])
        good &= (indices >= 0) & (indices < 4)
        counts = np.bincount(indices[good], minlength=4)
        with kernels.plain():
            results = jax.device_get(run(block))
        for out, (grad, _) in results:
            assert np.all((out >= 0) & (out.sum(0) <= counts))
            assert not np.any(out[np.clip(num_targets, 0, 4) :])
            assert np.all((grad >= 0) & (grad <= counts[:, None]))
