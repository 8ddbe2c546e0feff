"""`linear`: a dense layer on the real rows of padded matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.kernels.call import call, floats, kernel_or_plain, or_empty, vary_alike
from jgs.ops.checks import check_count, threads_for, with_derivative
from jgs.ops.dropout import Mask


def linear(
    inputs: Sequence[jax.Array],
    weights: Sequence[jax.Array],
    bias: jax.Array | None = None,
    num_rows: Any = None,
    *,
    add: jax.Array | None = None,
    relu: bool = False,
    drop: Mask | None = None,
) -> jax.Array:
    """`inputs[0] @ weights[0] + inputs[1] @ weights[1] + ... + bias + add`, on the first rows.

    Args:
      inputs: at least one float `[K_i, F_i]`. The result has `K = min(K_i)` rows. Rows from `K`
        on are not read, so targets need not be sliced off their sources.
      weights: as many float `[F_i, O]`.
      bias: float `[O]`, or None.
      num_rows: an integer scalar; rows from `num_rows` on are padding. None: all rows are real.
      add: float `[K, O]` (or with more rows), or None.
      relu: whether to apply ReLU.
      drop: `jgs.ops.dropout_mask(key, nodes, layer, rate)` of the `K` rows' nodes, or None.
        This dropout is applied after the ReLU, which it needs.

    Returns `[K, O]`, zeros in padding. The values in padded rows of the inputs, of `add` and of
    the gradient change nothing, NaN included, for they enter no product. On the CPU zeros in
    the inputs may enter no product either: weights must be finite, for 0 * inf need not give
    NaN.

    Differentiable in all matrices. Raises `InputError` for shapes that do not match, for a
    `num_rows` that is not an integer scalar, and for `drop` without `relu`.
    """
    _check(inputs, weights, bias, add)
    inputs, weights = (tuple(map(jnp.asarray, arrays)) for arrays in (inputs, weights))
    bias, add = (None if a is None else jnp.asarray(a) for a in (bias, add))
    capacity = _capacity(inputs, add)
    _check_drop(capacity, relu, drop)
    num_rows = check_count("num_rows", capacity if num_rows is None else num_rows)
    matrices = (inputs, weights, bias, add)
    dtype = jnp.result_type(*jax.tree.leaves(matrices))
    matrices = jax.tree.map(lambda a: jnp.asarray(a, dtype), matrices)
    num_threads = threads_for(capacity, *jax.tree.leaves(matrices))
    return _linear(num_threads, relu, *vary_alike(num_rows, drop, *matrices))


# The forward pass and its derivatives are jitted, so that eager calls compile once too.
# `num_threads` None means that no kernel runs.


@partial(jax.jit, static_argnums=(0, 1))
def _forward(num_threads, relu, *operands):
    def plain(num_rows, drop, inputs, weights, bias, add):
        capacity = _capacity(inputs, add)
        out = jnp.zeros((), inputs[0].dtype) if bias is None else bias
        out = out if add is None else out + add[:capacity]
        for x, w in zip(inputs, weights, strict=True):
            out = out + _real(num_rows, x[:capacity]) @ w
        return finish(out, num_rows, relu, drop)

    def kernel(num_rows, drop, inputs, weights, bias, add):
        none = jnp.zeros(0, jnp.uint32)
        words = (none, none) if drop is None else (drop.low, drop.high)
        added = jnp.zeros((0, weights[0].shape[1]), jnp.float32) if add is None else add
        terms = [a for pair in zip(inputs, weights, strict=True) for a in pair]
        return call(
            "jgs_linear",
            floats((_capacity(inputs, add), weights[0].shape[1])),
            (num_rows, or_empty(bias), added, *words, *terms),
            num_threads,
            relu=np.bool_(relu),
            threshold=np.int64(0 if drop is None else drop.threshold),
            scale=np.float32(1 if drop is None else drop.scale),
        )

    return kernel_or_plain(num_threads, kernel, plain, *operands)


@partial(jax.jit, static_argnums=(0, 1))
def _grad_weights(num_threads, scale, num_rows, grad, out, inputs):
    """The gradients of the bias and of each of the weights. `out` is None without ReLU."""

    def plain(num_rows, grad, out, inputs):
        grad = _real(num_rows, _before_relu(grad, out, scale))
        grad_weights = [_real(num_rows, x[: len(grad)]).T @ grad for x in inputs]
        return [jnp.sum(grad, axis=0), *grad_weights]

    def kernel(num_rows, grad, out, inputs):
        width = grad.shape[1]
        results = [floats((width,)), *(floats((x.shape[1], width)) for x in inputs)]
        out = jnp.zeros((0, width), jnp.float32) if out is None else out
        arguments = (num_rows, grad, out, *inputs)
        return call("jgs_linear_grad", results, arguments, num_threads, scale=np.float32(scale))

    return kernel_or_plain(num_threads, kernel, plain, num_rows, grad, out, inputs)


def _backward(num_threads, relu, kept, grad):
    num_rows, drop, inputs, weights, bias, add, out = kept
    out = out if relu else None  # it shows which units ReLU or dropout set to 0
    scale = 1.0 if drop is None else drop.scale
    # Each input's gradient is a separate call, which XLA drops where its result is not used.
    before = _before_relu(grad, out, scale)
    grad_inputs = tuple(
        _forward(num_threads, False, num_rows, None, (before,), (w.T,), None, None)
        for w in weights
    )
    grad_bias, *grad_weights = _grad_weights(num_threads, scale, num_rows, grad, out, inputs)
    grad_inputs = tuple(map(_padded_like, grad_inputs, inputs))
    grad_bias = None if bias is None else grad_bias
    grad_add = None if add is None else _padded_like(_real(num_rows, before), add)
    return None, None, grad_inputs, tuple(grad_weights), grad_bias, grad_add


_linear = with_derivative(_forward, lambda *kept: kept, _backward, 2)


def finish(
    out: jax.Array, num_rows: Any = None, relu: bool = False, drop: Mask | None = None
) -> jax.Array:
    """What `linear` does to the sum of its products: ReLU, dropout, and zeros in padding. The
    arguments are those of `linear`."""
    _check_drop(out.shape[0], relu, drop)
    if relu:
        dropped = out <= 0  # False for NaN, which stays visible
        if drop is not None:
            dropped |= ~drop.keep(out.shape[1])
        out = jnp.where(dropped, 0, out * (1.0 if drop is None else drop.scale))
    return out if num_rows is None else _real(num_rows, out)


def _check_drop(capacity: int, relu: bool, drop: Mask | None) -> None:
    if drop is not None and (not relu or drop.low.shape != (capacity,)):
        raise InputError(
            "drop must be the mask of the rows, and come with relu=True",
            f"a mask of {drop.low.shape[0]} rows for {capacity}, relu={relu}",
            "Make it with jgs.ops.dropout_mask, or use jgs.ops.dropout.",
        )


def _before_relu(grad, out, scale):
    """The gradient before ReLU and dropout. `out` is None if neither was applied."""
    return grad if out is None else jnp.where(out == 0, 0, grad * scale)


def _padded_like(grad, x):
    return jnp.pad(grad, ((0, x.shape[0] - grad.shape[0]), (0, 0)))


def _capacity(inputs, add):
    return min(a.shape[0] for a in (*inputs, add) if a is not None)


def _real(num_rows, x):
    """`x` with its padded rows set to 0."""
    return jnp.where((jnp.arange(x.shape[0]) < num_rows)[:, None], x, 0)


def _check(inputs: Sequence[Any], weights: Sequence[Any], bias: Any, add: Any) -> None:
    xs, ws = ([np.shape(a) for a in arrays] for arrays in (inputs, weights))
    good = len(xs) == len(ws) > 0 and all(len(shape) == 2 for shape in xs + ws)
    good = good and all(x[1] == w[0] for x, w in zip(xs, ws, strict=True))
    good = good and all(w[1] == ws[0][1] for w in ws)
    good = good and (bias is None or np.shape(bias) == ws[0][1:])
    if not good or (add is not None and np.shape(add)[1:] != ws[0][1:]):
        shapes = [None if a is None else np.shape(a) for a in (bias, add)]
        raise InputError(
            "linear takes inputs [K, F_i], as many weights [F_i, O], and a bias [O] and add "
            "[K, O] or None",
            f"inputs {xs}, weights {ws}, bias {shapes[0]}, add {shapes[1]}",
            "Give matrices whose shapes match.",
        )
