"""A sample that overflowed cannot be trained on without noticing, in a step of one's own."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from blocks import random_block
from derivatives import twins
from refusals import refused

import jgs
from jgs import SparseFeatures, ops
from jgs.sampling import Capacity, Neighbors, worst_case

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
