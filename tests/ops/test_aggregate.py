"""`jgs.ops.aggregate`, kernel and plain, against float64 NumPy loops that read like its
docstring."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jgs import Block, InputError, kernels, ops

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_aggregate_and_its_derivatives_equal_the_definition(
    implementation, reduce, weighted, random_block, reference
):
    rng = np.random.default_rng(3)
    block = random_block(rng, weighted)
    used = np.unique(np.asarray(block.indices)[: int(block.num_edges)])
    x = rng.standard_normal((60, 13)).astype(np.float32)
    grad_out = rng.standard_normal((block.target_capacity, 13)).astype(np.float32)
    want = reference(block, x, grad_out, reduce)
    x[~np.isin(np.arange(60), used)] = np.nan  # rows that no edge reads

    def f(x, weight):
        changed = Block(
            block.indptr, block.indices, block.num_targets, block.num_sources,
            block.num_edges, edge_weight=weight,
        )  # fmt: skip
        return ops.aggregate(changed, x, reduce)

    out, pull = jax.vjp(f, jnp.asarray(x), block.edge_weight)
    grad_x, grad_weight = pull(jnp.asarray(grad_out))
    np.testing.assert_allclose(out, want[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(grad_x, want[1], rtol=1e-5, atol=1e-5)
    if weighted:
        np.testing.assert_allclose(grad_weight, want[2], rtol=1e-5, atol=1e-5)
    assert np.all(np.asarray(out)[int(block.num_targets) :] == 0)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_gradient_equals_finite_differences_in_float64(reduce, random_block):
    rng = np.random.default_rng(5)
    block = random_block(rng, True, num_targets=6, num_sources=12)
    with jax.enable_x64(True):
        x = jnp.asarray(rng.standard_normal((12, 3)))

        def f(x):
            return ops.aggregate(block, x, reduce)

        assert f(x).dtype == jnp.float64
        check_grads(f, (x,), order=2, modes=["rev"])


def test_mean_of_weighted_messages_divides_by_the_degree(implementation, make_block):
    block = make_block([[0, 1]], [[1.0, 3.0]])
    out = ops.aggregate(block, jnp.array([[10.0], [2.0]]), "mean")
    assert out.tolist() == [[(1 * 10 + 3 * 2) / 2]]


def test_max_gradient_goes_to_the_first_edge_that_attains_it(implementation, make_block):
    block = make_block([[1, 2, 0, 2]])
    x = jnp.array([[5.0, -1.0], [5.0, -2.0], [3.0, -1.0]])
    grad = jax.grad(lambda x: ops.aggregate(block, x, "max").sum())(x)
    assert grad.tolist() == [[0, 0], [1, 0], [0, 1]]


def test_max_of_negative_infinite_and_nan_messages(implementation, make_block):
    x = jnp.array([[-3.0], [-jnp.inf], [jnp.nan]])
    block = make_block([[0], [1, 1], [0, 2, 1, 2], []], num_sources=4)
    x = jnp.concatenate([x, x[:1]])
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, "max"), x)
    np.testing.assert_array_equal(out, [[-3], [-np.inf], [np.nan], [0]])
    (grad,) = pull(jnp.array([[1.0], [2.0], [4.0], [8.0]]))
    assert grad.tolist() == [[1], [2], [4], [0]]


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
@pytest.mark.parametrize(
    ("rows", "num_sources", "width", "capacities"),
    [
        ([], 0, 3, (0, 0)),  # nothing at all
        ([], 4, 3, (0, 2)),  # no targets
        ([[], []], 2, 3, (0, 0)),  # no edges
        ([[], []], 3, 3, (1, 4)),  # no real edges
        ([[0, 1]], 2, 0, (0, 0)),  # no features
        ([], 2, 3, (2, 5)),  # an overflowed batch: all capacity, nothing real
    ],
)
def test_empty_blocks_give_zeros(
    implementation, reduce, rows, num_sources, width, capacities, make_block
):
    block = make_block(rows, num_sources=num_sources, capacities=capacities)
    x = jnp.full((num_sources, width), jnp.nan)
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, reduce), x)
    assert out.shape == (len(rows) + capacities[0], width)
    (grad,) = pull(out + 1)
    assert grad.shape == x.shape
    if not rows or not rows[0]:
        assert np.all(np.asarray(out) == 0)
        assert np.all(np.asarray(grad) == 0)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_padded_edges_do_nothing_when_every_row_is_real(implementation, reduce, make_block):
    block = make_block([[1], [1]], capacities=(0, 3))  # the padding points at row 0
    x = jnp.array([[jnp.nan], [2.0]])
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, reduce), x)
    assert out.tolist() == [[2], [2]]
    assert pull(jnp.ones_like(out))[0].tolist() == [[0], [2]]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_summed_in_float32(dtype, make_block):
    block = make_block([[0] * 5000, [1]])
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, "sum"), jnp.ones((2, 3), dtype))
    assert out.dtype == dtype
    np.testing.assert_allclose(out.astype(jnp.float32), [[5000] * 3, [1] * 3], rtol=0.01)
    (grad,) = pull(jnp.ones_like(out))
    assert grad.dtype == dtype
    np.testing.assert_allclose(grad.astype(jnp.float32), [[5000] * 3, [1] * 3], rtol=0.01)


def test_aggregate_under_vmap(implementation, random_block):
    rng = np.random.default_rng(0)
    block = random_block(rng, True)
    xs = jnp.asarray(rng.standard_normal((3, 50, 4), dtype=np.float32))
    for reduce in ops.REDUCTIONS:
        f = lambda x, r=reduce: ops.aggregate(block, x, r)  # noqa: E731
        got = jax.vmap(f)(xs)
        np.testing.assert_allclose(got, jnp.stack([f(x) for x in xs]), rtol=1e-6)
        grads = jax.vmap(jax.grad(lambda x, f=f: (f(x) ** 2).sum()))(xs)
        assert grads.shape == xs.shape


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reduce": "median"}, "sum, mean, max"),
        ({"x": jnp.ones(3)}, "matrix"),
        ({"x": jnp.ones((3, 2, 1))}, "matrix"),
        ({"x": jnp.ones((3, 2), jnp.int32)}, "float"),
        ({"x": jnp.ones((2, 2))}, "2 rows for 3"),
        ({"indptr": jnp.array([0.0, 1.0])}, "indptr must be"),
        ({"indptr": np.array([0, 1], np.int64)}, "indptr must be"),
        ({"indptr": np.array([], np.int32)}, r"indptr must be.* int32\[0\]"),
        ({"indptr": None}, "indptr must be.* NoneType"),
        ({"indptr": [0, 2]}, "indptr must be.* list"),
        ({"indices": None}, "indices must be.* NoneType"),
        ({"edge_weight": jnp.ones(1)}, "edge_weight must be"),
        ({"edge_weight": [1.0, 1.0]}, "edge_weight must be.* list"),
        ({"num_targets": 1.0}, "num_targets must be"),
        ({"num_targets": True}, "num_targets must be"),
        ({"num_edges": jnp.float32(2)}, "num_edges must be"),
        ({"num_edges": None}, "num_edges must be"),
        ({"num_sources": [3]}, r"num_sources must be.* int64\[1\]"),
    ],
)
def test_aggregate_refuses_bad_arguments(change, said, make_block):
    block = make_block([[0, 2]])
    fields = {k: v for k, v in change.items() if k not in ("x", "reduce")}
    block = Block(**{**vars(block), **fields})
    x, reduce = change.get("x", jnp.ones((3, 2))), change.get("reduce", "mean")
    with pytest.raises(InputError, match=said):
        ops.aggregate(block, x, reduce)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("integer", [int, np.int64, np.uint8, jnp.asarray])
def test_counts_may_be_integers_of_any_kind(implementation, integer, x64):
    with jax.enable_x64(x64):
        counts = (integer(1), integer(3), integer(2))
        block = Block(np.array([0, 2], np.int32), np.array([0, 2], np.int32), *counts)
        x = jnp.array([[1], [np.nan], [5]], jnp.float32)
        assert ops.aggregate(block, x).tolist() == [[3]]
        assert jax.jit(ops.aggregate)(block, x).tolist() == [[3]]
        grad = jax.grad(lambda x: ops.aggregate(block, x).sum())(x)
        assert grad.tolist() == [[0.5], [0], [0.5]]


@needs_kernels
def test_a_count_beyond_32_bits_does_not_become_another(make_block):
    for count in (2**32 + 2, -(2**32) + 2):  # both are 2 in their low bits
        fields = {**vars(make_block([[0, 1]])), "num_edges": count}
        with pytest.raises(jax.errors.JaxRuntimeError, match="num_edges must"):
            jax.block_until_ready(ops.aggregate(Block(**fields), jnp.ones((2, 1))))


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_the_plain_path_takes_each_edge_of_a_broken_block_at_most_once(monkeypatch, reduce):
    monkeypatch.setattr(kernels, "available", lambda: False)
    rng = np.random.default_rng(2)
    extreme = np.array([-(2**31), -5, -1, 0, 1, 2, 3, 4, 9, 2**31 - 1])
    for _ in range(60):
        indptr, indices = (rng.choice(extreme, n).astype(np.int32) for n in (5, 6))
        num_targets, num_edges = rng.choice(extreme, 2)
        block = Block(
            jnp.asarray(indptr), jnp.asarray(indices), num_targets, jnp.int32(3), num_edges
        )
        good = np.arange(6) < min(num_edges, indptr[-1])
        good &= (indices >= 0) & (indices < 4)
        # As many features as sources, and feature s is 1 for source s only.
        out, pull = jax.vjp(lambda x, b=block: ops.aggregate(b, x, reduce), jnp.eye(4))
        counts = np.bincount(indices[good], minlength=4)
        assert np.all((np.asarray(out) >= 0) & (np.asarray(out).sum(0) <= counts))
        assert not np.any(np.asarray(out)[np.clip(num_targets, 0, 4) :])
        (grad,) = pull(jnp.ones_like(out))
        assert np.all((np.asarray(grad) >= 0) & (np.asarray(grad) <= counts[:, None]))


@needs_kernels
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"indices": jnp.array([0, 3], jnp.int32)}, "block.indices must be"),
        ({"indices": jnp.array([-1, 0], jnp.int32)}, "block.indices must be"),
        ({"indptr": jnp.array([0, 2**30, 2], jnp.int32)}, "block.indptr must"),
        ({"indptr": jnp.array([0, -4, 2], jnp.int32)}, "block.indptr must"),
        ({"num_edges": jnp.int32(1)}, "block.indptr must"),
        ({"num_edges": jnp.int32(9)}, "block.num_edges must"),
        ({"num_targets": jnp.int32(3)}, "block.num_targets must"),
        ({"num_targets": jnp.int32(1)}, "must be empty"),
    ],
)
def test_the_kernel_refuses_a_broken_block(fields, said, make_block):
    block = Block(**{**vars(make_block([[0], [2]])), **fields})
    x = jnp.ones((3, 2))
    with pytest.raises(jax.errors.JaxRuntimeError, match=said):
        jax.block_until_ready(ops.aggregate(block, x))
