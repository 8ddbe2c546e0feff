"""Dropout whose mask is a function of the node, not of its row in a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.foreign import targets_of
from jgs.kernels.call import FILL

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
