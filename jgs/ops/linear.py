"""`linear`: a dense layer on the real rows of padded matrices. `dropout`: with a mask that is a
function of the node, not of its row in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.foreign import targets_of
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, or_empty, vary_alike
from jgs.ops.checks import check_count, threads_for, with_derivative

GOLDEN = 0x9E3779B9  # 2**32 divided by the golden ratio: multiples of it are far apart


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mask:
    """The elements that `dropout` drops with the probability `rate`, as a hash of each row's
    `(key, layer, node)`, uint32 `[K]` twice, instead of the mask itself. The random bits of the
    row's units are computed from it."""

    low: jax.Array
    high: jax.Array
    rate: float = field(metadata={"static": True})

    @property
    def scale(self) -> float:
        """The factor of the units that are kept."""
        return 1.0 / (1.0 - self.rate)

    @property
    def threshold(self) -> int:
        """Units whose random bits are below this number are dropped."""
        return int(self.rate * 2**32)

    def keep(self, num_units: int) -> jax.Array:
        """bool `[K, num_units]`: True for the units that are kept."""
        units = jnp.arange(num_units, dtype=jnp.uint32) * np.uint32(GOLDEN)
        bits = _mix(_mix(units[None] + self.low[:, None]) ^ self.high[:, None])
        return bits >= np.uint32(self.threshold)


def dropout(
    key: jax.Array, x: jax.Array, nodes: jax.Array, layer: int | jax.Array, rate: float
) -> jax.Array:
    """`x` with each element set to 0 with probability `rate`; others are divided by `1 - rate`.

    Args:
      key: a JAX random key, typed (`jax.random.key`) or raw (`uint32[2]`).
      x: float `[K, F]`.
      nodes: int32 `[K]`; the node that each row of `x` belongs to.
      layer: int; tells apart the dropouts of one model.
      rate: a Python float in `[0, 1)`; 0 returns `x`.

    Whether unit `u` of node `v` is kept depends on `(key, layer, v, u)` alone: not on the
    position of the row, the other rows, the padding or the number of ranks. The bits come from
    two rounds of the 32-bit hash `lowbias32` (C. Wellons, "Prospecting for Hash Functions",
    2018; bias 0.17), keyed with two words a row. Threefry is not used, for it costs more than
    the layer whose output is dropped. Two nodes share a 64-bit hash, and so a mask, with
    probability 2**-64.

    Raises `InputError` for a rate outside `[0, 1)` and for shapes that do not match.
    """
    remedy = "Pass the node ids of x's rows, padding included."
    require_array("x of dropout", x, "[S, F]", remedy)
    require_array("nodes of dropout", nodes, "[S], one for each row of x", remedy, S=x.shape[0])
    mask = dropout_mask(key, nodes, layer, rate)
    return x if rate == 0 else jnp.where(mask.keep(x.shape[1]), x * mask.scale, 0)


def dropout_mask(key: jax.Array, nodes: jax.Array, layer: int | jax.Array, rate: float) -> Mask:
    """The `Mask` of `dropout(key, x, nodes, layer, rate)`, for `jgs.ops.linear`."""
    try:
        good = 0 <= float(rate) < 1
    except (TypeError, ValueError):  # raised for a tracer too
        good = False
    if not good:
        raise InputError(
            "a dropout rate must be a Python number in [0, 1)", rate, "0 switches dropout off."
        )
    low, high = _key_words(key, layer)
    rows = nodes.astype(jnp.uint32)
    return Mask(_mix(_mix(rows ^ low) + high), _mix(_mix(rows + high) ^ low), float(rate))


def edge_mask(block: Block, mask: Mask) -> Mask:
    """The `Mask` of a block's edges, made from the mask of its sources.

    `mask` is `dropout_mask(key, nodes, layer, rate)` of the `S` sources' nodes. The result has
    `[E]` rows. Whether edge `u -> v` keeps its unit `h`, for instance its weight of head `h`,
    depends on `(key, layer, u, v, h)` alone.
    """
    row, _ = targets_of(block)
    if 0 in (mask.low.shape[0], block.target_capacity):  # of which JAX reads nothing
        none = jnp.zeros(block.edge_capacity, jnp.uint32)
        return Mask(none, none, mask.rate)
    low = mask.low.at[block.indices].get(**FILL)
    return Mask(low, mask.high[: block.target_capacity].at[row].get(**FILL), mask.rate)


def _key_words(key: jax.Array, layer: int | jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two uint32 scalars, a hash of the whole key and the layer."""
    key_data = key
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key_data = jax.random.key_data(key)
    remedy = "Make it with jax.random.key or jax.random.fold_in."
    require_array("a dropout key", key_data, "uint32 [n], one JAX random key", remedy)
    low = high = _mix(jnp.asarray(layer).astype(jnp.uint32) + np.uint32(GOLDEN))
    for i in range(key_data.shape[0]):
        low = _mix(low ^ key_data[i])
        high = _mix((high + key_data[i]) * np.uint32(GOLDEN))
    return low, high


def _mix(bits: jax.Array) -> jax.Array:
    """The finaliser `lowbias32`, a bijection of the 32-bit numbers."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


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
