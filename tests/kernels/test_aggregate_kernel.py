"""The aggregate kernels equal their plain twins and give one result at any thread count."""

import ctypes
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from derivatives import vjp
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from jgs import Block, kernels, ops
from jgs.graph.features import SparseFeatures

pytestmark = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


def random_block(rng, num_targets, num_sources, max_degree, padding, weighted):
    """Targets are first among the sources. Capacities have `padding` more, with weights NaN."""
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
    # Enough work for several threads to share.
    block = random_block(rng, 900, 2000, 17, 30, weighted)
    x = jnp.asarray(rng.standard_normal((2030, 70), np.float32))
    grad_out = jnp.asarray(rng.standard_normal((930, 70), np.float32))
    one = run(block, x, grad_out, reduce, num_threads=1)
    assert np.isfinite(one[1]).all()
    for num_threads in (2, 4):
        many = run(block, x, grad_out, reduce, num_threads=num_threads)
        for name, a, b in zip(("out", "grad_x", "grad_weight"), one, many, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name}, {num_threads} threads")


@pytest.mark.parametrize("width", [96, 130, 512])
@pytest.mark.parametrize("weighted", [False, True])
def test_features_in_parts_give_the_same_bits(weighted, width):
    """Also where results are streamed, and with heads, which are not split."""
    rng = np.random.default_rng(13)
    num = 2000 if width < 500 else 17_000  # 35 MB
    block = random_block(rng, num, num + 50, 9, 7, weighted)
    x = jnp.asarray(rng.standard_normal((num + 57, width), np.float32))
    grad_out = jnp.asarray(rng.standard_normal((num + 7, width), np.float32))
    force = kernels.function("JgsSetFeatureParts", None)

    def both(parts):
        force(ctypes.c_int64(parts))
        found = [run(block, x, grad_out, reduce) for reduce in ("sum", "mean")]
        if weighted:
            heads = jnp.stack([block.edge_weight, block.edge_weight + 1], axis=1)
            found.append((ops.aggregate(block, x, "sum", heads),))
        return jax.tree.leaves(jax.device_get(found))

    try:
        one = both(1)
        for parts in (2, 5, 64):
            for a, b in zip(one, both(parts), strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{parts} parts")
    finally:
        force(ctypes.c_int64(0))


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_results_that_exceed_the_caches(reduce):
    rng = np.random.default_rng(12)
    block = random_block(rng, 90_000, 95_000, 2, 7, True)
    x = jnp.asarray(rng.standard_normal((95_007, 96), np.float32))  # 36 MB
    grad_out = jnp.asarray(rng.standard_normal((90_007, 96), np.float32))
    plain = run(block, x, grad_out, reduce, available=False)
    one = run(block, x, grad_out, reduce, num_threads=1)
    many = run(block, x, grad_out, reduce, num_threads=4)
    for name, a, b, want in zip(
        ("out", "grad_x", "grad_weight"), one, many, plain, strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=name)
        np.testing.assert_allclose(a, want, rtol=1e-5, atol=2e-5, err_msg=name)


@pytest.fixture(params=[True, False], ids=["kernel", "plain"])
def either(request, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: request.param)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_second_derivatives_are_those_of_the_definition(either, reduce, weighted):
    rng = np.random.default_rng(4)
    block = random_block(rng, 4, 6, 3, 2, weighted)
    indptr, num_edges = np.asarray(block.indptr), int(block.num_edges)
    x = jnp.asarray(rng.standard_normal((8, 2), np.float32))
    weight = None if not weighted else block.edge_weight[:num_edges]

    def of_jgs(x, weight):
        if weight is not None:
            weight = jnp.concatenate([weight, block.edge_weight[num_edges:]])
        out = ops.aggregate(Block(**{**vars(block), "edge_weight": weight}), x, reduce)
        return (jnp.sin(out) * jnp.arange(1, 3)).sum()

    def of_the_definition(x, weight):
        total = 0.0
        for t in range(4):
            edges = np.arange(indptr[t], indptr[t + 1])
            if len(edges):
                products = x[block.indices[edges]]
                products = products if weight is None else weight[edges, None] * products
                total += (jnp.sin(getattr(products, reduce)(0)) * jnp.arange(1, 3)).sum()
        return total

    argnums = (0, 1) if weighted else 0
    want = jax.jit(jax.hessian(of_the_definition, argnums))(x, weight)
    assert max(jnp.abs(part).max() for part in jax.tree.leaves(want)) > 0.1
    for second in (jax.jacfwd, jax.jacrev):
        got = jax.jit(second(jax.grad(of_jgs, argnums), argnums))(x, weight)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)


def test_forward_mode_alone_is_refused(either):
    block = random_block(np.random.default_rng(0), 3, 5, 2, 0, False)
    x = jnp.ones((5, 2))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: ops.aggregate(block, x), (x,), (x,))


@pytest.mark.parametrize("split", ["x", "weights"])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_shard_map_over_a_mesh_of_one_device(either, reduce, split):
    rng = np.random.default_rng(8)
    block = random_block(rng, 6, 9, 3, 2, True)
    x = jnp.asarray(rng.standard_normal((11, 3), np.float32))
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = (P("data"), P()) if split == "x" else (P(), P("data"))

    def f(x, weight):
        return ops.aggregate(Block(**{**vars(block), "edge_weight": weight}), x, reduce)

    # By default JAX checks over which axes of the mesh each value varies.
    shared = jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("data"))
    own = {"grads": lambda out: out}
    want, wanted = vjp(f, x, block.edge_weight, **own)
    out, pull = jax.vjp(shared, x, block.edge_weight)  # eagerly
    for found in ((out, pull(out)), vjp(shared, x, block.edge_weight, **own)):
        jax.tree.map(np.testing.assert_array_equal, found, (want, wanted))


def test_gather_sparse_in_shard_map(either):
    features = SparseFeatures.from_scipy(scipy.sparse.eye(3, format="csr"))
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = {"in_specs": (P(), P("data")), "out_specs": P("data")}
    gather = jax.jit(jax.shard_map(ops.gather, mesh=mesh, **specs))
    out = gather(features, jnp.array([2, 3, 0], jnp.int32))
    assert out.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_the_kernels_are_what_runs_on_the_cpu():
    rng = np.random.default_rng(0)
    block = random_block(rng, 3, 5, 2, 0, True)
    f = jax.jit(jax.grad(lambda x: ops.aggregate(block, x).sum()))
    text = f.lower(jnp.ones((5, 2))).compile().as_text()
    assert "jgs_aggregate_grad" in text
    assert "jgs_aggregate_grad_weight" not in text  # no one asked for this gradient
