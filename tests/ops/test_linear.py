"""`linear`: the kernel and the plain path against float64 NumPy, padding, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivatives import vjp

from jgs import InputError, kernels
from jgs.ops import dropout, dropout_mask, linear

ROWS = [(5, 5), (5, 3), (5, 0), (193, 192), (1300, 1300), (9000, 8100)]  # (capacity, real rows)
WIDTHS = [9, 1, 15, 16, 17, 47, 64, 100, 128]


@pytest.fixture(params=["kernel", "plain"])
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(kernels, "_AVAILABLE", False)
    elif not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    return request.param


def matrices(capacity, widths=(7, 12), out=9, seed=0):
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal((capacity, width)).astype(np.float32) for width in widths]
    weights = [rng.standard_normal((width, out)).astype(np.float32) for width in widths]
    return inputs, weights, rng.standard_normal(out).astype(np.float32)


def reference(inputs, weights, bias, real):
    out = sum(x.astype(np.float64) @ w for x, w in zip(inputs, weights, strict=True)) + bias
    out[real:] = 0
    return out


@pytest.mark.parametrize(("capacity", "real"), ROWS)
def test_equals_the_products(path, capacity, real):
    inputs, weights, bias = matrices(capacity)
    wanted = reference(inputs, weights, bias, real)
    for x in inputs:
        x[real:] = np.nan  # padding may hold anything
    out = jax.jit(linear)(inputs, weights, bias, np.int32(real))
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    assert not out[real:].any()
    np.testing.assert_allclose(
        linear(inputs[:1], weights[:1], None, real),
        reference(inputs[:1], weights[:1], 0, real),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_any_width(path, width):
    inputs, weights, bias = matrices(20, (3, 8), width)
    out, (grad_inputs, grad_weights) = vjp(
        lambda i, w: linear(i, w, bias, 19), inputs, weights, grads=jnp.ones_like
    )
    np.testing.assert_allclose(out, reference(inputs, weights, bias, 19), rtol=1e-5, atol=1e-5)
    ones = np.ones((19, width))
    for i in range(2):
        wanted = ones @ weights[i].T.astype(np.float64)
        np.testing.assert_allclose(grad_inputs[i][:19], wanted, rtol=1e-5, atol=1e-5)
        wanted = inputs[i][:19].T.astype(np.float64) @ ones
        np.testing.assert_allclose(grad_weights[i], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("capacity", "real"), ROWS)
def test_derivatives(path, capacity, real):
    inputs, weights, bias = matrices(capacity)
    grad = np.random.default_rng(1).standard_normal((capacity, 9)).astype(np.float32)
    clean = [x.copy() for x in inputs]
    for x in inputs:
        x[real:] = np.nan
    grad[real:] = np.nan
    _, (grad_inputs, grad_weights, grad_bias) = vjp(
        lambda i, w, b: linear(i, w, b, real), inputs, weights, bias, grads=grad
    )
    grad = np.where(np.arange(capacity)[:, None] < real, grad, 0).astype(np.float64)
    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(grad_bias, grad.sum(0), **close)
    for i, x in enumerate(clean):
        np.testing.assert_allclose(grad_inputs[i], grad @ weights[i].T, **close)
        np.testing.assert_allclose(grad_weights[i], x.astype(np.float64).T @ grad, **close)


@pytest.mark.parametrize("widths", [(70, 12), (300, 64)])
@pytest.mark.parametrize("out", [48, 9])
def test_inputs_and_gradients_that_are_mostly_zero(path, widths, out):
    # Like the inputs of a hidden layer: the kernel passes over the zeros.
    capacity, real = 700, 650
    rng = np.random.default_rng(5)
    inputs, weights, bias = matrices(capacity, widths, out)
    for x in inputs:
        x[rng.random(x.shape) < 0.75] = 0
    inputs[0][:400, 64] = 0  # a column that a chunk of rows never reads
    add = np.where(rng.random((capacity, out)) < 0.75, -1e3, 1e3).astype(np.float32)

    def layer(inputs, weights, bias):
        return linear(inputs, weights, bias, real, add=add, relu=True)

    grad = rng.standard_normal((capacity, out)).astype(np.float32)
    result, grads = vjp(layer, inputs, weights, bias, grads=grad)
    exact = reference(inputs, weights, bias + add.astype(np.float64), real)
    np.testing.assert_allclose(result, np.maximum(exact, 0), rtol=1e-5, atol=1e-3)
    grad_inputs, grad_weights, grad_bias = grads
    grad = np.where(exact > 0, grad, 0).astype(np.float64)
    np.testing.assert_allclose(grad_bias, grad.sum(0), rtol=1e-4, atol=1e-3)
    for i, x in enumerate(inputs):
        np.testing.assert_allclose(grad_inputs[i], grad @ weights[i].T, rtol=1e-4, atol=1e-3)
        wanted = x.astype(np.float64).T @ grad
        np.testing.assert_allclose(grad_weights[i], wanted, rtol=1e-4, atol=1e-3)


def test_reads_the_first_rows_of_longer_inputs(path):
    inputs, weights, bias = matrices(20)
    longer = [inputs[0], np.concatenate([inputs[1], np.full((7, 12), np.nan, np.float32)])]
    out, pull = jax.vjp(lambda x: linear(x, weights, bias), longer)
    np.testing.assert_array_equal(out, linear(inputs, weights, bias))
    (grads,) = pull(jnp.ones_like(out))
    assert grads[1].shape == (27, 12)
    assert not grads[1][20:].any()
    np.testing.assert_allclose(grads[1][:20], np.ones((20, 9)) @ weights[1].T, rtol=1e-5)


@pytest.mark.parametrize(("capacity", "real"), ROWS)
@pytest.mark.parametrize("rate", [None, 0.0, 0.3])
def test_add_relu_and_dropout(path, capacity, real, rate):
    inputs, weights, bias = matrices(capacity, out=40)
    add = np.random.default_rng(2).standard_normal((capacity, 40)).astype(np.float32)
    nodes = np.arange(capacity, dtype=np.int32)[::-1]
    real_rows = np.arange(capacity)[:, None] < real
    key = jax.random.key(3)

    def fused(inputs, weights, bias, add):
        drop = None if rate is None else dropout_mask(key, nodes, 2, rate)
        return linear(inputs, weights, bias, real, add=add, relu=True, drop=drop)

    def composed(inputs, weights, bias, add):
        out = sum(x @ w for x, w in zip(inputs, weights, strict=True)) + bias + add
        out = jax.nn.relu(jnp.where(real_rows, out, 0))
        return out if rate is None else dropout(key, out, nodes, 2, rate)

    grad = np.random.default_rng(1).standard_normal((capacity, 40)).astype(np.float32)

    def same_sign(outs):
        # Where rounding decides whether a unit is above 0, it also decides the gradient.
        of_both = jnp.where((outs[0] == 0) == (outs[1] == 0), grad, 0)
        return of_both, of_both

    both = lambda x, y: (fused(*x), composed(*y))  # noqa: E731
    operands = inputs, weights, bias, add
    (out, wanted), grads = vjp(both, operands, operands, grads=same_sign)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    for a, b in zip(*map(jax.tree.leaves, grads), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-3)


def test_relu_lets_nan_be_seen(path):
    inputs, weights, bias = matrices(4)
    inputs[0][1, 0] = np.nan
    assert np.isnan(linear(inputs, weights, bias, relu=True)[1]).all()


def test_dropout_comes_after_relu():
    inputs, weights, bias = matrices(4)
    drop = dropout_mask(jax.random.key(0), np.arange(4), 0, 0.5)
    with pytest.raises(InputError, match="come with relu=True"):
        linear(inputs, weights, bias, drop=drop)
    with pytest.raises(InputError, match="the mask of the rows"):
        linear([x[:3] for x in inputs], weights, bias, relu=True, drop=drop)


def test_second_derivative(path):
    inputs, weights, bias = matrices(6)

    def loss(w, linear):
        return jnp.sum(jnp.sin(linear(inputs, [w, weights[1]], bias)))

    def products(x, w, b):
        return x[0] @ w[0] + x[1] @ w[1] + b

    found, wanted = (
        jax.jit(jax.hessian(lambda w, f=f: loss(w, f))) for f in (linear, products)
    )
    np.testing.assert_allclose(found(weights[0]), wanted(weights[0]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("real", [8100, 9000])
def test_same_bits_with_any_number_of_threads(monkeypatch, real):
    if not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    inputs, weights, bias = matrices(9000)

    drop = dropout_mask(jax.random.key(0), np.arange(9000), 0, 0.5)

    def results(num_threads):
        monkeypatch.setattr(kernels, "NUM_THREADS", num_threads)
        f = lambda i, w: linear(i, w, bias, real, relu=True, drop=drop)  # noqa: E731
        return jax.tree.leaves(vjp(f, inputs, weights, grads=lambda out: out))

    one = results(1)
    for num_threads in (2, 4):
        for a, b in zip(one, results(num_threads), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float64])
def test_other_dtypes(dtype):
    with jax.enable_x64(dtype == jnp.float64):
        inputs, weights, bias = matrices(8)
        arrays = jax.tree.map(lambda a: jnp.asarray(a, dtype), (inputs, weights, bias))
        out = linear(*arrays, 6)
        assert out.dtype == dtype
        exact = [[np.asarray(a, np.float64) for a in part] for part in arrays[:2]]
        wanted = reference(*exact, np.asarray(arrays[2], np.float64), 6)
        np.testing.assert_allclose(np.asarray(out, np.float64), wanted, rtol=0.05, atol=0.1)


@pytest.mark.parametrize(
    ("capacity", "widths", "out"), [(0, (3,), 2), (4, (0,), 2), (4, (3,), 0)]
)
def test_empty_matrices(path, capacity, widths, out):
    inputs, weights, bias = matrices(capacity, widths, out)
    result = linear(inputs, weights, bias)
    np.testing.assert_allclose(result, reference(inputs, weights, bias, capacity), rtol=1e-6)


def test_vmap_and_sharded(path):
    inputs, weights, bias = matrices(50)
    out = jax.vmap(lambda b: linear(inputs, weights, b, 40))(jnp.stack([bias, 2 * bias]))
    np.testing.assert_allclose(out[1], linear(inputs, weights, 2 * bias, 40), rtol=1e-6)
    mesh = jax.make_mesh((1,), ("rank",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    shared = jax.shard_map(
        lambda x, w, b: linear([x], [w], b),
        mesh=mesh,
        in_specs=(spec("rank"), spec(), spec()),
        out_specs=spec("rank"),
    )
    wanted = linear(inputs[:1], weights[:1], bias)
    np.testing.assert_allclose(shared(inputs[0], weights[0], bias), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "weights", "bias"),
    [
        ([], [], None),
        ([(4, 3)], [(2, 5)], None),
        ([(4, 3), (4, 3)], [(3, 5), (3, 6)], None),
        ([(4, 3), (4, 3)], [(3, 5)], None),
        ([(4, 3)], [(3, 5)], (4,)),
        ([(4,)], [(4, 5)], None),
    ],
)
def test_refuses_shapes_that_do_not_match(inputs, weights, bias):
    with pytest.raises(InputError, match="linear takes inputs"):
        linear(
            [jnp.ones(s) for s in inputs],
            [jnp.ones(s) for s in weights],
            None if bias is None else jnp.ones(bias),
        )


def test_takes_nested_sequences():
    out = linear([[[1.0, 2.0]]], [np.eye(2, dtype=np.float32)], [1.0, 1.0], add=[[2.0, 0.0]])
    np.testing.assert_array_equal(out, [[4.0, 3.0]])


@pytest.mark.parametrize("integer", [int, np.int64, np.uint8, jnp.int32])
def test_num_rows_may_be_an_integer_of_any_kind(path, integer):
    inputs, weights, bias = matrices(5)
    wanted = linear(inputs, weights, bias, np.int32(3))
    assert not wanted[3:].any()
    np.testing.assert_array_equal(linear(inputs, weights, bias, integer(3)), wanted)


def test_num_rows_beyond_32_bits_do_not_become_another_number(path):
    inputs, weights, _ = matrices(5)
    for x64 in (False, True):
        with jax.enable_x64(x64):
            assert linear(inputs, weights, None, np.int64(2**32 + 1)).all()
            assert linear(inputs, weights, None, 2**40).all()
            assert not linear(inputs, weights, None, np.int64(-(2**32) + 3)).any()


@pytest.mark.parametrize("num_rows", [2.7, float("nan"), [1, 2], True, "3", jnp.ones(1, int)])
def test_refuses_a_number_of_rows_that_is_none(num_rows):
    inputs, weights, bias = matrices(5)
    with pytest.raises(InputError, match="num_rows must be an int32 scalar"):
        linear(inputs, weights, bias, num_rows)
