"""Rows drawn jointly: those of the `k` smallest ranks. The kernel:
jgs/kernels/collective.cc."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.kernels.call import call, floats, kernel_or_plain
from jgs.sampling.random import node_bits
from jgs.settings import exact_integers


def smallest_ranks(
    key_data: jax.Array, nodes: jax.Array, weight: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    """Sequential Poisson sampling, see `Matrix.collective_sample`.

    Args:
      key_data: uint32 `[2]`, the key.
      nodes: int32 `[R]`, distinct except for padding.
      weight: float32 `[R]`, finite and not negative; a node of weight 0 is never drawn.
      k: int, the number of rows.

    Returns:
      int32 `[k]`, the drawn slots in the order of their nodes, `R` where there are fewer; and
      float32 `[k]`, the probabilities of inclusion, 1 in padding. Ranks are float64 quotients
      of 52 random bits and the weight. Among equal ranks the smaller node comes first.
    """
    kernel, plain = (partial(f, k=k) for f in (_kernel, _plain))
    threads = kernels.NUM_THREADS if kernels.available() else None
    return kernel_or_plain(threads, kernel, plain, key_data, nodes, weight)


def _kernel(
    key_data: jax.Array, nodes: jax.Array, weight: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    out = [jax.ShapeDtypeStruct((k,), jnp.int32), floats((k,))]
    slot, probs = call(
        "jgs_smallest_ranks", out, (key_data, nodes, weight), kernels.NUM_THREADS
    )
    return slot, probs


@partial(jax.jit, static_argnames="k")  # one equation, like the kernel: see `prepare`
def _plain(
    key_data: jax.Array, nodes: jax.Array, weight: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    slots = nodes.shape[0]
    with exact_integers():
        uniform = ((node_bits(key_data, nodes, 0) >> 12).astype(jnp.float64) + 0.5) * 2.0**-52
        rank = jnp.where(weight > 0, uniform / weight.astype(jnp.float64), jnp.inf)
        slot = jnp.arange(slots, dtype=jnp.int32)
        rank, _, slot = jax.lax.sort((rank, nodes, slot), num_keys=2)
        rank = jnp.pad(rank, (0, max(0, k + 1 - slots)), constant_values=jnp.inf)
        slot = jnp.pad(slot, (0, max(0, k - slots)), constant_values=slots)[:k]
        drawn = rank[:k] < jnp.inf
        slot = jnp.where(drawn, slot, slots)
        drawn_weight = weight.at[slot].get(mode="fill", fill_value=0).astype(jnp.float64)
        threshold = rank[k]
        probs = jnp.where(threshold < jnp.inf, jnp.minimum(drawn_weight * threshold, 1), 1)
        probs = jnp.where(drawn, probs, 1).astype(jnp.float32)
        last = jnp.iinfo(jnp.int32).max
        node = nodes.at[slot].get(mode="fill", fill_value=last)
        _, slot, probs = jax.lax.sort((node, slot, probs), num_keys=1)
    return slot, probs
