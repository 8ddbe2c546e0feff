"""How a kernel is called on the platforms that have it, and its plain form elsewhere."""

from __future__ import annotations

import itertools
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.settings import usual_promotion

REDUCTIONS = ("sum", "mean", "max")  # a reduction's position is its code in the kernels
# A read at an index out of bounds gives 0. A negative index is out of bounds too.
FILL: dict[str, Any] = {"mode": "fill", "fill_value": 0, "wrap_negative_indices": False}


def kernel_or_plain(num_threads, kernel, plain, *operands):
    """`kernel(*operands)` where it is registered, and `plain(*operands)` elsewhere or where
    `num_threads` is None. Derivatives, in both modes, are those of `plain`, for XLA cannot
    differentiate a kernel."""
    _check_closures(kernel, plain)
    plain = usual_promotion()(plain)
    if num_threads is None:
        return plain(*operands)

    @jax.custom_jvp
    def run(*operands):
        return where_it_is(kernel, plain, *operands)

    @run.defjvp
    def _(operands, tangents):
        return run(*operands), jax.jvp(plain, operands, tangents)[1]

    return run(*operands)


def where_it_is(kernel, plain, *operands):
    """`kernel(*operands)` on the platforms for which all its handlers are registered, and
    `plain(*operands)` elsewhere. It is for functions without derivatives."""
    _check_closures(kernel, plain)
    plain = usual_promotion()(plain)
    if not kernels.available():
        return plain(*operands)
    if kernels.host_only():
        return kernel(*operands)
    platforms = ["cpu"]
    if others := kernels.other_platforms():
        targets = _targets_of(kernel, operands)
        platforms += [p for p in others if targets <= kernels.registered(p)]
    return jax.lax.platform_dependent(
        *operands, **dict.fromkeys(platforms, kernel), default=plain
    )


def _check_closures(*functions):
    """Refuses functions that refer to a traced array other than their operands: JAX keeps the
    functions that it traced, and would keep that array's trace with them."""
    for function in functions:
        held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(held)):
            raise TypeError(f"{function.__qualname__} refers to a traced array: pass it")


_noted: ContextVar[set[str] | None] = ContextVar("noted", default=None)
_ANEW = jax.make_user_context()  # JAX reuses no function that was traced with another value
_number = itertools.count()


def _targets_of(kernel, operands) -> set[str]:
    noted: set[str] = set()
    token = _noted.set(noted)
    try:
        with _ANEW(next(_number)):
            jax.eval_shape(kernel, *operands)
    finally:
        _noted.reset(token)
    return noted


def handler(target, out, **options):
    """`jax.ffi.ffi_call` of a target of `jgs.kernels.HANDLERS`, within a kernel of
    `where_it_is`."""
    if (noted := _noted.get()) is not None:
        noted.add(target)
    return jax.ffi.ffi_call(target, out, **options)


def call(target, out, arguments, num_threads, reduce=None, **attributes):
    """The result of the FFI `target`, shaped like `out`, for these `arguments`."""
    run = handler(target, out, vmap_method="sequential")
    attributes["num_threads"] = np.int64(num_threads)
    if reduce is not None:
        attributes["reduce"] = np.int64(REDUCTIONS.index(reduce))
    arguments = vary_alike(*arguments)
    return vary_alike(run(*arguments, **attributes), arguments[0])[0]


def floats(shape):
    """The type of a float32 result of an FFI call."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def or_empty(weight):
    """`weight`, or for None an empty array, which means no weights to a kernel."""
    return jnp.zeros(0, jnp.float32) if weight is None else weight


def vary_alike(*operands):
    """`operands`, each made to vary over all mesh axes that any of them varies over.

    `jax.shard_map` requires this of the operands of a kernel and of a conditional's branches.
    """

    def axes(array):
        kind = getattr(jax.typeof(array), "manual_axis_type", None)  # JAX may rename it
        return frozenset(getattr(kind, "varying", ()))

    all_axes = frozenset().union(*map(axes, jax.tree.leaves(operands)))
    if not all_axes:
        return operands
    return jax.tree.map(
        lambda a: jax.lax.pcast(a, tuple(sorted(all_axes - axes(a))), to="varying"), operands
    )
