"""Rows drawn jointly: those of the `k` smallest ranks. The kernel:
jgs/kernels/collective.cc."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.kernels.call import call, kernel_or_plain
from jgs.sampling.edges.random import LOGARITHMS, exponential, node_bits
from jgs.settings import exact_integers


def smallest_ranks(
    key_data: jax.Array, nodes: jax.Array, weight: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    """Successive draws without replacement, see `Matrix.collective_sample`: of `nodes` int32
    `[R]`, which are distinct but for padding, by `weight` float32 `[R]`, finite and not
    negative. A node of weight 0 is never drawn.

    Returns int32 `[k]`, the drawn slots in the order of their nodes, `R` where there are fewer;
    and float32 `[k]`, the probabilities of inclusion, 1 in padding. Ranks are float64 quotients
    of an exponential number and the weight. Among equal ranks the smaller node comes first.
    """

    def kernel(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        with exact_integers():
            out = [jax.ShapeDtypeStruct((k,), jnp.int32), jax.ShapeDtypeStruct((), jnp.float64)]
            operands = (*arrays, jnp.asarray(LOGARITHMS))
            slot, least = call("jgs_smallest_ranks", out, operands, kernels.NUM_THREADS)
        return slot, least

    threads = kernels.NUM_THREADS if kernels.available() else None
    arrays = key_data, nodes, weight
    slot, least = kernel_or_plain(threads, kernel, partial(_plain, k=k), *arrays)
    return slot, _probs(weight, slot, least)


@jax.jit
def _probs(weight: jax.Array, slot: jax.Array, least: jax.Array) -> jax.Array:
    with exact_integers():
        drawn_weight = weight.at[slot].get(mode="fill", fill_value=0).astype(jnp.float64)
        probs = -jnp.expm1(-drawn_weight * least)
        certain = (slot == weight.shape[0]) | (least == jnp.inf)
        return jnp.where(certain, 1, probs).astype(jnp.float32)


@partial(jax.jit, static_argnames="k")  # one equation, like the kernel: see `prepare`
def _plain(
    key_data: jax.Array, nodes: jax.Array, weight: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    """The drawn slots, and float64, the `k + 1`-st smallest rank; infinite if there is none."""
    slots = nodes.shape[0]
    with exact_integers():
        number = exponential(node_bits(key_data, nodes, 0))
        rank = jnp.where(weight > 0, number / weight.astype(jnp.float64), jnp.inf)
        slot = jnp.arange(slots, dtype=jnp.int32)
        rank, _, slot = jax.lax.sort((rank, nodes, slot), num_keys=2)
        rank = jnp.pad(rank, (0, max(0, k + 1 - slots)), constant_values=jnp.inf)
        slot = jnp.pad(slot, (0, max(0, k - slots)), constant_values=slots)[:k]
        slot = jnp.where(rank[:k] < jnp.inf, slot, slots)
        node = nodes.at[slot].get(mode="fill", fill_value=jnp.iinfo(jnp.int32).max)
        _, slot = jax.lax.sort((node, slot), num_keys=1)
    return slot, rank[k]
