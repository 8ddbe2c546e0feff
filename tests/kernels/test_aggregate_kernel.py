"""The aggregate kernels equal their plain twins, and give one result at any thread count."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jgs import Block, kernels, ops

pytestmark = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


def random_block(rng, num_targets, num_sources, max_degree, padding, weighted):
    """Targets first among the sources; `padding` more of every capacity, weights NaN there."""
    degree = rng.integers(0, max_degree + 1, num_targets) * (num_sources > 0)
    num_edges = int(degree.sum())
    indptr = np.r_[0, np.cumsum(degree), [num_edges] * padding].astype(np.int32)
    indices = rng.integers(0, max(num_sources, 1), num_edges)
    padded = num_sources + padding
    weight = None
    if weighted:
        weight = np.r_[rng.standard_normal(num_edges), [np.nan] * padding].astype(np.float32)
    return Block(
        indptr=jnp.asarray(indptr),
        indices=jnp.asarray(np.r_[indices, [padded] * padding].astype(np.int32)),
        num_targets=jnp.int32(num_targets),
        num_sources=jnp.int32(num_sources),
        num_edges=jnp.int32(num_edges),
        edge_weight=None if weight is None else jnp.asarray(weight),
    )


def run(block, x, grad_out, reduce, available=True, num_threads=0):
    """`(out, grad_x, grad_weight)` of one implementation."""

    def f(x, weight):
        return ops.aggregate(Block(**{**vars(block), "edge_weight": weight}), x, reduce)

    with (
        mock.patch.object(kernels, "available", return_value=available),
        mock.patch.object(kernels, "NUM_THREADS", num_threads),
    ):
        out, pull = jax.vjp(f, x, block.edge_weight)
        return jax.tree.map(np.asarray, (out, *pull(grad_out)))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**31),
    num_targets=st.sampled_from([0, 1, 7, 40]),
    extra_sources=st.sampled_from([0, 1, 60]),
    max_degree=st.sampled_from([0, 1, 3, 13]),
    width=st.sampled_from([1, 3, 16, 100, 257]),
    padding=st.sampled_from([0, 5]),
    weighted=st.booleans(),
    reduce=st.sampled_from(ops.REDUCTIONS),
    ties=st.booleans(),
)
def test_kernel_equals_the_plain_twin(
    seed, num_targets, extra_sources, max_degree, width, padding, weighted, reduce, ties
):
    rng = np.random.default_rng(seed)
    num_sources = num_targets + extra_sources
    block = random_block(rng, num_targets, num_sources, max_degree, padding, weighted)
    x = rng.standard_normal((num_sources + padding, width)).astype(np.float32)
    if ties:
        x = np.round(x)
    x[num_sources:] = np.nan
    grad_out = jnp.asarray(rng.standard_normal((num_targets + padding, width), np.float32))
    kernel = run(block, jnp.asarray(x), grad_out, reduce)
    plain = run(block, jnp.asarray(x), grad_out, reduce, available=False)
    for name, got, want in zip(("out", "grad_x", "grad_weight"), kernel, plain, strict=True):
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_bits_do_not_depend_on_the_number_of_threads(reduce, weighted):
    rng = np.random.default_rng(11)
    block = random_block(rng, 900, 2000, 17, 30, weighted)  # enough work to be shared
    x = jnp.asarray(rng.standard_normal((2030, 70), np.float32))
    grad_out = jnp.asarray(rng.standard_normal((930, 70), np.float32))
    one = run(block, x, grad_out, reduce, num_threads=1)
    assert np.isfinite(one[1]).all()
    for num_threads in (2, 4):
        many = run(block, x, grad_out, reduce, num_threads=num_threads)
        for name, a, b in zip(("out", "grad_x", "grad_weight"), one, many, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name}, {num_threads} threads")


def test_the_kernels_are_what_runs_on_the_cpu():
    rng = np.random.default_rng(0)
    block = random_block(rng, 3, 5, 2, 0, True)
    f = jax.jit(jax.grad(lambda x: ops.aggregate(block, x).sum()))
    text = f.lower(jnp.ones((5, 2))).compile().as_text()
    assert "jgs_aggregate_grad" in text
    assert "jgs_aggregate_grad_weight" not in text  # nobody asked for it
