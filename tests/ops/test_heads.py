"""Several heads: `aggregate` with a weight for each, `edge_dot` and `edge_scores`."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivatives import vjp

from jgs import Block, InputError, kernels, ops

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


def arrays(rng, block, num_heads, width, num_sources=60):
    """`x`, edge weights and a gradient of the result; NaN in what must not be read."""
    x = rng.standard_normal((num_sources, num_heads * width), np.float32)
    read = np.asarray(block.indices)[: int(block.num_edges)]
    x[~np.isin(np.arange(num_sources), read)] = np.nan
    weight = rng.standard_normal((block.edge_capacity, num_heads), np.float32)
    weight[int(block.num_edges) :] = np.nan
    grad = rng.standard_normal((block.target_capacity, num_heads * width), np.float32)
    return jnp.asarray(x), jnp.asarray(weight), jnp.asarray(grad)


def one_by_one(reference, block, x, weight, grad, reduce):
    """`(out, grad_x, grad_weight)`, computed for each head by itself."""
    heads, clean = weight.shape[1], np.nan_to_num(x)
    parts = [
        reference(
            Block(**{**vars(block), "edge_weight": np.nan_to_num(weight[:, h])}),
            np.split(clean, heads, axis=1)[h],
            np.split(np.asarray(grad), heads, axis=1)[h],
            reduce,
        )
        for h in range(heads)
    ]
    out, grad_x, grad_weight = zip(*parts, strict=True)
    return np.hstack(out), np.hstack(grad_x), np.stack(grad_weight, axis=1)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize(("num_heads", "width"), [(1, 5), (2, 1), (3, 7), (4, 16), (8, 8)])
def test_each_head_has_its_weights(
    implementation, random_block, reference, num_heads, width, reduce
):
    rng = np.random.default_rng(num_heads)
    block = random_block(rng, weighted=True)  # the block's own weights are not read
    x, weight, grad = arrays(rng, block, num_heads, width)
    want = one_by_one(reference, block, x, weight, grad, reduce)
    f = lambda x, weight: ops.aggregate(block, x, reduce, edge_weight=weight)  # noqa: E731
    out, grads = vjp(f, x, weight, grads=grad)
    for got, exact in zip((out, *grads), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_given_weights_take_the_place_of_the_blocks(implementation, random_block, reduce):
    rng = np.random.default_rng(0)
    block = random_block(rng, weighted=True)
    bare = Block(**{**vars(block), "edge_weight": None})
    x, *_ = arrays(rng, block, 1, 6)
    want = ops.aggregate(block, x, reduce)
    got = ops.aggregate(bare, x, reduce, edge_weight=block.edge_weight)
    np.testing.assert_array_equal(got, want)
    column = ops.aggregate(bare, x, reduce, edge_weight=block.edge_weight[:, None])
    np.testing.assert_array_equal(column, want)


@pytest.mark.parametrize(("num_heads", "width"), [(1, 5), (4, 3), (2, 16)])
def test_edge_dot_equals_the_definition(implementation, random_block, num_heads, width):
    rng = np.random.default_rng(9)
    block = random_block(rng, weighted=False)
    x, grad, y = arrays(rng, block, num_heads, width)
    out, (grad_x, grad_y) = vjp(
        lambda x, y: ops.edge_dot(block, x, y, num_heads), x, y, grads=grad
    )
    clean, wide = np.nan_to_num(np.asarray(x, np.float64)), np.asarray(y, np.float64)
    indptr, indices, grad = (np.asarray(a) for a in (block.indptr, block.indices, grad))
    want, want_x, want_y = (np.zeros(a.shape) for a in (grad, x, y))
    for t in range(int(block.num_targets)):
        for e in range(indptr[t], indptr[t + 1]):
            s, g = indices[e], np.repeat(np.asarray(grad[e], np.float64), width)
            want[e] = (clean[s] * wide[t]).reshape(num_heads, width).sum(1)
            want_x[s] += g * wide[t]
            want_y[t] += g * clean[s]
    for got, exact in ((out, want), (grad_x, want_x), (grad_y, want_y)):
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


def scores_by_definition(block, x, y, attention, slope):
    """The scores, one edge at a time, in float64 where it is on."""
    heads, width = attention.shape
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    scores = jnp.zeros((block.edge_capacity, heads), x.dtype)
    for t in range(int(block.num_targets)):
        for e in range(indptr[t], indptr[t + 1]):
            total = (x[indices[e]] + y[t]).reshape(heads, width)
            leaky = jnp.where(total >= 0, total, slope * total)
            scores = scores.at[e].set((attention * leaky).sum(1))
    return scores


@pytest.mark.parametrize(("num_heads", "width"), [(1, 5), (4, 3), (2, 16)])
def test_edge_scores_equal_the_definition(implementation, random_block, num_heads, width):
    rng = np.random.default_rng(9)
    block = random_block(rng, weighted=False, num_targets=9, num_sources=12, max_degree=4)
    x, grad, y = arrays(rng, block, num_heads, width, 13)
    y = y.at[int(block.num_targets) :].set(jnp.nan)
    attention = jnp.asarray(rng.standard_normal((num_heads, width)), jnp.float32)
    f, operands = lambda *a: ops.edge_scores(block, *a, 0.1), (x, y, attention)
    got, found = vjp(f, *operands, grads=grad)
    with jax.enable_x64(True):
        *wide, grad = (jnp.nan_to_num(a.astype(jnp.float64)) for a in (*operands, grad))
        f = lambda *a: scores_by_definition(block, *a, 0.1)  # noqa: E731
        want, grads = vjp(f, *wide, grads=grad)
    for a, b in zip((got, *found), (want, *grads), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_second_derivatives_of_edge_scores(random_block):
    rng = np.random.default_rng(4)
    block = random_block(rng, False, num_targets=4, num_sources=8, max_degree=3)
    assert block.num_edges > 3
    shapes = ((8, 4), (block.target_capacity, 4), (2, 2))
    operands = [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]

    def loss(scores, operands):
        return jnp.sin(scores(block, *operands, 0.2)).sum()

    got = jax.jit(jax.hessian(lambda a: loss(ops.edge_scores, a)))(operands)
    want = jax.jit(jax.hessian(lambda a: loss(scores_by_definition, a)))(operands)
    assert max(np.abs(a).max() for a in jax.tree.leaves(want)) > 0.1
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # noqa: E731
    jax.tree.map(close, got, want)


def test_second_derivatives_of_an_attention(random_block):
    """An attention made of all three operations, against the same one over a dense matrix."""
    rng = np.random.default_rng(4)
    block = random_block(rng, weighted=False, num_targets=4, num_sources=6, max_degree=3)
    width, targets = 3, block.target_capacity
    count = np.zeros((targets, 8))
    for t in range(int(block.num_targets)):
        np.add.at(count[t], np.asarray(block.indices)[block.indptr[t] : block.indptr[t + 1]], 1)
    x = jnp.asarray(rng.standard_normal((8, 2 * width)), jnp.float32)

    own = np.zeros((targets, 1, 2))  # the self-loops of the real rows
    own[: int(block.num_targets)] = 1

    def of_jgs(x):
        logits = ops.edge_dot(block, x, x[:targets], 2)
        of_own = (x[:targets] ** 2).reshape(targets, 2, width).sum(2)
        weights, of_own = ops.edge_softmax(block, logits, of_own)
        own_rows = x[:targets] * jnp.repeat(of_own, width, axis=1)
        return own_rows + ops.aggregate(block, x, "sum", weights)

    def dense(x):
        parts = x.reshape(8, 2, width)
        logits = jnp.einsum("shd,thd->tsh", parts, parts[:targets])
        logits = logits - logits.max()
        values = (count[:, :, None] + np.eye(targets, 8)[:, :, None] * own) * jnp.exp(logits)
        total = values.sum(1, keepdims=True)
        weights = values / jnp.where(total == 0, 1, total)
        return jnp.einsum("tsh,shd->thd", weights, parts).reshape(targets, -1)

    np.testing.assert_allclose(of_jgs(x), jax.jit(dense)(x), rtol=1e-5, atol=1e-5)
    f, g = (lambda x, f=f: jnp.sin(f(x)).sum() for f in (of_jgs, dense))
    want = jax.jit(jax.hessian(g))(x)
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(jax.jit(jax.hessian(f))(x), want, rtol=1e-4, atol=1e-5)


OPERATIONS = {
    "sum": lambda block, x, y, weight: ops.aggregate(block, x, "sum", edge_weight=weight),
    "mean": lambda block, x, y, weight: ops.aggregate(block, x, "mean", edge_weight=weight),
    "dot": lambda block, x, y, weight: ops.edge_dot(block, x, y, 4),
    "scores": lambda block, x, y, weight: ops.edge_scores(block, x, y, x[:4, :16]),
}


@needs_kernels
@pytest.mark.parametrize("name", OPERATIONS)
def test_kernel_equals_plain_at_any_number_of_threads(random_block, name):
    rng = np.random.default_rng(2)
    block = random_block(rng, False, num_targets=2000, num_sources=3000)
    x, weight, y = arrays(rng, block, 4, 16, 3000)
    x = jnp.where(jnp.arange(3000)[:, None] < 4, jnp.nan_to_num(x), x)

    def run(num_threads, available=True):
        with (
            mock.patch.object(kernels, "available", return_value=available),
            mock.patch.object(kernels, "NUM_THREADS", num_threads),
        ):
            f = lambda *a: OPERATIONS[name](block, *a)  # noqa: E731
            cosines = lambda out: jnp.cos(jnp.arange(out.size)).reshape(out.shape)  # noqa: E731
            out, grads = vjp(f, x, y, weight, grads=cosines)
            return out, *grads

    one = run(1)
    for a, b in zip(one, run(0, available=False), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
    for num_threads in (2, 4):
        for a, b in zip(one, run(num_threads), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("weight", "reduce", "said"),
    [
        (jnp.ones(3), "sum", "edge_weight must be floats"),
        (jnp.ones((2, 4)), "sum", r"the 6 columns .* float32\[2, 4\]"),
        (jnp.ones((2, 0)), "sum", "edge_weight must be floats"),
        (jnp.ones((2, 2, 1)), "sum", "edge_weight must be floats"),
        (jnp.ones(2, jnp.int32), "sum", r"int32\[2\]"),
        ([1.0, 2.0], "sum", "list"),
        (jnp.ones((2, 3)), "max", "a maximum takes one weight"),
    ],
)
def test_refuses_other_weights(make_block, weight, reduce, said):
    with pytest.raises(InputError, match=said):
        ops.aggregate(make_block([[0, 1]]), jnp.ones((2, 6)), reduce, edge_weight=weight)


@pytest.mark.parametrize(
    ("x", "y", "num_heads", "said"),
    [
        (jnp.ones((2, 6)), jnp.ones((2, 6)), 1, "edge_dot takes"),
        (jnp.ones((2, 6)), jnp.ones((1, 5)), 1, "edge_dot takes"),
        (jnp.ones((2, 6)), jnp.ones((1, 6), jnp.bfloat16), 1, "edge_dot takes"),
        (jnp.ones((0, 6)), jnp.ones((1, 6)), 1, "edge_dot takes"),
        (jnp.ones(2), jnp.ones((1, 6)), 1, "x must be a matrix"),
        (jnp.ones((2, 6)), jnp.ones((1, 6)), 4, "equal parts"),
        (jnp.ones((2, 6)), jnp.ones((1, 6)), 0, "equal parts"),
    ],
)
def test_edge_dot_refuses_other_shapes(make_block, x, y, num_heads, said):
    with pytest.raises(InputError, match=said):
        ops.edge_dot(make_block([[0, 1]]), x, y, num_heads)


@pytest.mark.parametrize(
    ("x", "y", "attention", "said"),
    [
        (jnp.ones((2, 6)), jnp.ones((1, 5)), jnp.ones((2, 3)), "edge_scores takes"),
        (jnp.ones((2, 5)), jnp.ones((1, 6)), jnp.ones((2, 3)), "edge_scores takes"),
        (jnp.ones((0, 6)), jnp.ones((1, 6)), jnp.ones((2, 3)), "edge_scores takes"),
        (jnp.ones((2, 6)), jnp.ones((1, 6)), jnp.ones((2, 2)), "2 heads of 2"),
        (jnp.ones((2, 6)), jnp.ones((1, 6)), jnp.ones(6), "attention must be a matrix"),
    ],
)
def test_edge_scores_refuse_other_shapes(make_block, x, y, attention, said):
    with pytest.raises(InputError, match=said):
        ops.edge_scores(make_block([[0, 1]]), x, y, attention)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_attention_lowers_for_other_devices(random_block, platform):
    block = random_block(np.random.default_rng(0), weighted=False)
    x = jnp.ones((60, 8))

    def loss(block, x, attention):
        y = x[: block.target_capacity]
        logits = ops.edge_dot(block, x, y, 2) + ops.edge_scores(block, x, y, attention)
        return ops.aggregate(block, x, "sum", ops.edge_softmax(block, logits)).sum()

    program = jax.jit(jax.grad(loss, (1, 2))).trace(block, x, x[:2, :4])
    assert "jgs_" not in program.lower(lowering_platforms=(platform,)).as_text()
