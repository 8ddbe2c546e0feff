"""The aggregate kernels at any thread count and at large sizes, and their derivatives."""

import ctypes

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import random_block, with_weight
from cases import cases
from derivatives import pulled_aggregate, twins

from jgs import kernels, ops

pytestmark = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


def rows(num, width, seed=0):
    return np.random.default_rng(seed).standard_normal((num, width), np.float32)


@pytest.mark.parametrize(("width", "weighted"), [(96, False), (130, True), (512, True)])
def test_features_in_parts_give_the_same_bits(width, weighted):
    """Also where results are streamed, and with heads, which are not split."""
    num = 2000 if width < 500 else 17_000  # 35 MB
    block = random_block(np.random.default_rng(13), weighted, num, num + 50, 9, (7, 7))
    force = kernels.function("JgsSetFeatureParts", None)

    @jax.jit
    def run(block, x, grad):
        found = [pulled_aggregate(reduce)(block, x, grad) for reduce in ("sum", "mean")]
        if weighted:
            heads = jnp.stack([block.edge_weight, block.edge_weight + 1], axis=1)
            found.append(ops.aggregate(block, x, "sum", heads))
        return found

    def both(parts):
        force(ctypes.c_int64(parts))
        return jax.device_get(run(block, rows(num + 57, width, 1), rows(num + 7, width)))

    try:
        one = both(1)
        for parts in (2, 5, 64):
            jax.tree.map(np.testing.assert_array_equal, one, both(parts))
    finally:
        force(ctypes.c_int64(0))


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_results_that_exceed_the_caches(reduce):
    block = random_block(np.random.default_rng(12), True, 90_000, 95_000, 2, (7, 7))
    run = twins(pulled_aggregate(reduce), (1, 4))
    one, many, plain = run(block, rows(95_007, 96, 1), rows(90_007, 96))  # 36 MB
    for a, b, want in zip(*map(jax.tree.leaves, (one, many, plain)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, want, rtol=1e-5, atol=2e-5)


@cases("reduce, weighted", ("sum", False), ("mean", True), ("max", True))
def test_second_derivatives_are_those_of_the_definition(reduce, weighted):
    block = random_block(np.random.default_rng(4), weighted, 4, 6, 3, (2, 2))
    indptr, num_edges = np.asarray(block.indptr), int(block.num_edges)
    x, weight = rows(8, 2), block.edge_weight[:num_edges] if weighted else None

    def of_jgs(x, weight):
        if weight is not None:
            weight = jnp.concatenate([weight, block.edge_weight[num_edges:]])
        out = ops.aggregate(with_weight(block, weight), x, reduce)
        return (jnp.sin(out) * jnp.arange(1, 3)).sum()

    def of_the_definition(x, weight):
        total = 0.0
        for t in range(4):
            edges = np.arange(indptr[t], indptr[t + 1])
            if len(edges):
                products = x[np.asarray(block.indices)[edges]]
                products = products if weight is None else weight[edges, None] * products
                total += (jnp.sin(getattr(products, reduce)(0)) * jnp.arange(1, 3)).sum()
        return total

    argnums = (0, 1) if weighted else 0

    @jax.jit
    def run(x, weight):
        slope = jax.grad(of_jgs, argnums)
        found = [mode(slope, argnums)(x, weight) for mode in (jax.jacfwd, jax.jacrev)]
        return jax.hessian(of_the_definition, argnums)(x, weight), found

    with kernels.this_host_only(False):
        want, found = jax.device_get(run(x, weight))
    assert max(np.abs(part).max() for part in jax.tree.leaves(want)) > 0.1
    for got in found:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)
