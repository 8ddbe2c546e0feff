"""`linear`: the kernel and the plain path against float64 NumPy, padding, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from derivatives import pulled, twins
from refusals import refused

from jgs import kernels
from jgs.ops import dropout, dropout_mask, linear

WIDTHS = [9, 1, 15, 16, 17, 47, 64, 100, 128]


def matrices(capacity, widths=(7, 12), out=9, seed=0):
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal((capacity, width)).astype(np.float32) for width in widths]
    weights = [rng.standard_normal((width, out)).astype(np.float32) for width in widths]
    return inputs, weights, rng.standard_normal(out).astype(np.float32)


def reference(inputs, weights, bias, real):
    out = sum(np.float64(x) @ np.float64(w) for x, w in zip(inputs, weights, strict=True))
    out = out + bias
    out[real:] = 0
    return out


def slopes_of(inputs, weights, grad):
    """The derivatives by the inputs and by the weights."""
    return [grad @ w.T for w in weights], [np.float64(x).T @ grad for x in inputs]


def assert_close(found, want, rtol=1e-4, atol=1e-3):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@cases("capacity, reals", (5, (5, 3, 0)), (193, (192,)), (1300, (1300,)), (9000, (8100,)))
def test_equals_the_products_with_their_derivatives(capacity, reals):
    def run(inputs, weights, bias, real, grad):
        f = pulled(lambda i, w, b: linear(i, w, b, real))
        return f(grad, inputs, weights, bias), linear(inputs[:1], weights[:1], None, real)

    run = twins(run)
    for real in reals:
        inputs, weights, bias = matrices(capacity)
        rng = np.random.default_rng(1)
        grad = rng.standard_normal((capacity, 9)).astype(np.float32)
        wanted = reference(inputs, weights, bias, real)
        first = reference(inputs[:1], weights[:1], 0, real)
        some = np.where(np.arange(capacity)[:, None] < real, np.float64(grad), 0)
        slopes = slopes_of(inputs, weights, some), some.sum(0)
        for x in (*inputs, grad):
            x[real:] = np.nan  # padding may hold anything
        for (out, grads), one in run(inputs, weights, bias, np.int32(real), grad):
            assert_close((out, one), (wanted, first), rtol=1e-5, atol=1e-5)
            assert not out[real:].any()
            assert_close(grads, slopes)


def test_any_width():
    every = [matrices(20, (3, 8), width) for width in WIDTHS]

    @jax.jit
    def run(every):
        return [
            pulled(lambda i, w, b=bias: linear(i, w, b, 19))(jnp.ones_like, inputs, weights)
            for inputs, weights, bias in every
        ]

    ones = (np.arange(20) < 19)[:, None] * np.ones((1, 128))
    for (out, grads), (inputs, weights, bias) in zip(run(every), every, strict=True):
        want = reference(inputs, weights, bias, 19)
        slopes = slopes_of(inputs, weights, ones[:, : out.shape[1]])
        assert_close((out, grads), (want, slopes), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("widths", "out"), [((70, 12), 48), ((300, 64), 9)])
def test_inputs_and_gradients_that_are_mostly_zero(widths, out):
    # Like the inputs of a hidden layer: the kernel passes over the zeros.
    capacity, real = 700, 650
    rng = np.random.default_rng(5)
    inputs, weights, bias = matrices(capacity, widths, out)
    for x in inputs:
        x[rng.random(x.shape) < 0.75] = 0
    inputs[0][:400, 64] = 0  # a column that a chunk of rows never reads
    add = np.where(rng.random((capacity, out)) < 0.75, -1e3, 1e3).astype(np.float32)
    grad = rng.standard_normal((capacity, out)).astype(np.float32)
    layer = lambda i, w, b, add: linear(i, w, b, real, add=add, relu=True)  # noqa: E731
    exact = reference(inputs, weights, bias + np.float64(add), real)
    some = np.where(exact > 0, np.float64(grad), 0)
    slopes = slopes_of(inputs, weights, some)
    for result, (*grads, _) in twins(pulled(layer))(grad, inputs, weights, bias, add):
        assert_close(result, np.maximum(exact, 0), rtol=1e-5)
        assert_close(grads, (*slopes, some.sum(0)))


def test_reads_the_first_rows_of_longer_inputs():
    inputs, weights, bias = matrices(20)
    longer = [inputs[0], np.concatenate([inputs[1], np.full((7, 12), np.nan, np.float32)])]

    def run(longer, inputs):
        f = lambda x: linear(x, weights, bias)  # noqa: E731
        return pulled(f)(jnp.ones_like, longer), f(inputs)

    for (out, (grads,)), want in twins(run)(longer, inputs):
        np.testing.assert_array_equal(out, want)
        assert grads[1].shape == (27, 12)
        assert not grads[1][20:].any()
        np.testing.assert_allclose(grads[1][:20], np.ones((20, 9)) @ weights[1].T, rtol=1e-5)


@cases(
    "capacity, reals, rate",
    (5, (5, 3, 0), None),
    (193, (192,), 0.3),
    (1300, (1300,), 0.0),
    (9000, (8100,), 0.3),
)
def test_add_relu_and_dropout(capacity, reals, rate):
    inputs, weights, bias = matrices(capacity, out=40)
    rng = np.random.default_rng(2)
    add, grad = (rng.standard_normal((capacity, 40)).astype(np.float32) for _ in range(2))
    nodes = np.arange(capacity, dtype=np.int32)[::-1]
    key = np.uint32([3, 4])

    def fused(real, inputs, weights, bias, add):
        drop = None if rate is None else dropout_mask(key, nodes, 2, rate)
        return linear(inputs, weights, bias, real, add=add, relu=True, drop=drop)

    def composed(real, inputs, weights, bias, add):
        out = sum(x @ w for x, w in zip(inputs, weights, strict=True)) + bias + add
        out = jax.nn.relu(jnp.where(jnp.arange(capacity)[:, None] < real, out, 0))
        return out if rate is None else dropout(key, out, nodes, 2, rate)

    def run(real, grad, operands):
        def same_sign(outs):
            # Where rounding decides whether a unit is above 0, it also decides the gradient.
            of_both = jnp.where((outs[0] == 0) == (outs[1] == 0), grad, 0)
            return of_both, of_both

        both = lambda x, y: (fused(real, *x), composed(real, *y))  # noqa: E731
        return pulled(both)(same_sign, operands, operands)

    run = twins(run)
    for real in reals:
        for (out, wanted), grads in run(np.int32(real), grad, (inputs, weights, bias, add)):
            assert_close(out, wanted, atol=1e-4)
            assert_close(*grads, atol=2e-3)


def test_nan_shows_through_relu_and_dropout_comes_after_it():
    inputs, weights, bias = matrices(4)
    for rows, relu, said in ((4, False, "come with relu=True"), (3, True, "mask of the rows")):

        def run(inputs, relu=relu):
            drop = dropout_mask(np.uint32([0, 1]), np.arange(4), 0, 0.5)
            return linear(inputs, weights, bias, relu=relu, drop=drop)

        refused(said, jax.eval_shape, run, [x[:rows] for x in inputs])
    inputs[0][1, 0] = np.nan
    for out in twins(lambda inputs: linear(inputs, weights, bias, relu=True))(inputs):
        assert np.isnan(out[1]).all()


def test_second_derivative():
    inputs, weights, bias = matrices(6)

    def products(x, w, b):
        return x[0] @ w[0] + x[1] @ w[1] + b

    def run(w):
        def loss(w, f):
            return jnp.sum(jnp.sin(f(inputs, [w, weights[1]], bias)))

        return [jax.hessian(lambda w, f=f: loss(w, f))(w) for f in (linear, products)]

    for found, wanted in twins(run, everywhere=True)(weights[0]):
        assert_close(found, wanted, atol=1e-4)


def test_empty_matrices():
    every = [matrices(*sizes) for sizes in ((0, (3,), 2), (4, (0,), 2), (4, (3,), 0))]
    for outs in twins(lambda every: [linear(*each) for each in every])(every):
        for out, each in zip(outs, every, strict=True):
            np.testing.assert_allclose(out, reference(*each, len(out)), rtol=1e-6)


@cases(
    "inputs, weights, bias",
    ([], [], None),
    ([(4, 3)], [(2, 5)], None),
    ([(4, 3), (4, 3)], [(3, 5), (3, 6)], None),
    ([(4, 3), (4, 3)], [(3, 5)], None),
    ([(4, 3)], [(3, 5)], (4,)),
    ([(4,)], [(4, 5)], None),
)
def test_refuses_shapes_that_do_not_match(inputs, weights, bias):
    operands = ([np.ones(shape) for shape in some] for some in (inputs, weights))
    bias = None if bias is None else np.ones(bias)
    refused("linear takes inputs", linear, *operands, bias)


def test_num_rows_may_be_an_integer_of_any_kind():
    """One beyond 32 bits does not become another number."""
    inputs, weights, bias = matrices(5)
    with kernels.plain():
        wanted = np.asarray(linear(inputs, weights, bias, np.int32(3)))
    assert not wanted[3:].any()
    for integer in (int, np.int64, np.uint8, jnp.int32):
        assert_close(linear(inputs, weights, bias, integer(3)), wanted, 1e-5, 1e-5)
    for x64 in (False, True):
        with jax.enable_x64(x64):
            assert linear(inputs, weights, bias, np.int64(2**32 + 1)).all()
            assert linear(inputs, weights, bias, 2**40).all()
            less = linear(inputs, weights, bias, np.int64(-(2**32) + 3))
            assert not np.asarray(less).any()


@pytest.mark.parametrize("num_rows", [2.7, np.nan, [1, 2], True, "3", np.ones(1, np.int32)])
def test_refuses_a_number_of_rows_that_is_none(num_rows):
    inputs, weights, bias = matrices(5)
    refused("num_rows must be an int32 scalar", linear, inputs, weights, bias, num_rows)
