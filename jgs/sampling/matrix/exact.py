"""Sums that do not depend on their order, so draws that use them are the same everywhere."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.kernels.call import call, floats, where_it_is
from jgs.settings import exact_integers

_BITS = 30  # bits of a slot's largest value: 2**31 such values still fit in 64 bits


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def exact_sum(values: jax.Array, slot: jax.Array, num_slots: int) -> jax.Array:
    """float32 `[num_slots, ...]`: the sum of the `values` float32 `[E, ...]` of each slot.
    `slot` int32 `[E]` has the slot of each value; values whose slot is `num_slots` are left
    out.

    Each value is rounded to a multiple of `2**-30` of the power of two above its slot's
    largest. The multiples are added as 64-bit integers, so any order, device and number of
    threads gives the same bits. NaN and infinity make their slot NaN. Differentiable in both
    modes.
    """
    values = values.astype(jnp.float32)
    kernel, plain = (partial(f, num_slots=num_slots) for f in (_kernel, _plain))
    return where_it_is(kernel, plain, values, slot)


def _kernel(values: jax.Array, slot: jax.Array, num_slots: int) -> jax.Array:
    out = [floats((num_slots, *values.shape[1:]))]
    return call("jgs_exact_sum", out, (values, slot), kernels.NUM_THREADS)[0]


def _plain(values: jax.Array, slot: jax.Array, num_slots: int) -> jax.Array:
    shape = (num_slots, *values.shape[1:])
    with exact_integers():
        largest = jnp.zeros(shape, jnp.float32).at[slot].max(jnp.abs(values), mode="drop")
        good = jnp.isfinite(largest)
        shift = _BITS - exponent(jnp.where(good, largest, 0))
        fill: dict[str, Any] = {"mode": "fill", "fill_value": 0}
        whole = to_fixed(jnp.where(jnp.isfinite(values), values, 0), shift.at[slot].get(**fill))
        total = jnp.zeros(shape, jnp.int64).at[slot].add(whole, mode="drop")
        result = (total.astype(jnp.float64) * power_of_two(-shift)).astype(jnp.float32)
        return jnp.where(good, result, jnp.nan)


@exact_sum.defjvp
def _(num_slots: int, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    values, slot = primals
    tangent = jnp.zeros((num_slots, *values.shape[1:]), tangents[0].dtype)
    tangent = tangent.at[slot].add(tangents[0], mode="drop")
    return exact_sum(values, slot, num_slots), tangent.astype(jnp.float32)


def exponent(value: jax.Array) -> jax.Array:
    """int32: the least `e` with `value < 2**e`, for finite float32 that are not negative. It is
    -126 for 0 and for subnormal numbers, which a device may treat as 0."""
    bits = jax.lax.bitcast_convert_type(value, jnp.int32)
    return (bits >> 23) - 126


def power_of_two(e: jax.Array) -> jax.Array:
    """float64: `2**e`, for int32 between -1022 and 1023."""
    return jax.lax.bitcast_convert_type((e.astype(jnp.int64) + 1023) << 52, jnp.float64)


def to_fixed(value: jax.Array, shift: jax.Array) -> jax.Array:
    """int64: `value * 2**shift` for float32, rounded to the nearest (even) integer."""
    return jnp.round(value.astype(jnp.float64) * power_of_two(shift)).astype(jnp.int64)
