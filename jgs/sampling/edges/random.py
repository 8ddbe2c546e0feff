"""Random bits that are a function of the node, not of its position in a batch.

They come from Threefry-2x32 (Salmon et al., SC 2011), the generator of `jax.random`, with the
node and the number of the draw as its counter. So what node `v` draws at hop `h` depends on
`(key, h, v)` alone. The functions that compute with drawn bits use 64-bit integers: trace them
under `jax.enable_x64(True)`.
"""

from __future__ import annotations

import reprlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

from jgs.errors import InputError


def threefry(seed: int) -> jax.Array:
    """The Threefry key of `seed`, below 2**32, whatever `jax_default_prng_impl` is."""
    return jax.random.key(jax.device_put(np.uint32(seed)), impl="threefry2x32")


def as_key_data(key: Any, shape: tuple[int, ...] = ()) -> jax.Array:
    """The key data uint32 `[2]` of a Threefry key, typed (`jax.random.key`) or raw (`PRNGKey`).

    With `shape` the key data `[*shape, 2]` of an array of keys. Raises `InputError`.
    """
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != shape or jax.random.key_impl(key) != "threefry2x32":
            keys = f"{shape[0]} Threefry keys, one a batch" if shape else "one Threefry key"
            split = f", and jax.random.split it in {shape[0]}" if shape else ""
            raise InputError(
                f"the key must be {keys}: samples must be the same everywhere",
                f"{jax.random.key_impl(key)}{list(key.shape)}",
                f'Make it with jax.random.key(seed, impl="threefry2x32"){split}.',
            )
        return jax.random.key_data(key)
    if getattr(key, "shape", None) == (*shape, 2) and key.dtype == jnp.uint32:
        return key if isinstance(key, jax.Array) else jax.device_put(np.array(key))
    array = hasattr(key, "dtype") and hasattr(key, "shape")
    seen = f"{key.dtype}{key.shape}" if array else reprlib.repr(key)
    raise InputError(
        "the first argument must be a JAX random key",
        f"{type(key).__name__} {seen}",
        'Make one with jax.random.key(seed, impl="threefry2x32").',
    )


def fold(key_data: jax.Array, data: Any) -> jax.Array:
    """The key data of `jax.random.fold_in(key, data)`."""
    counter = jnp.stack([jnp.uint32(0), jnp.asarray(data, jnp.uint32)])
    return threefry_2x32(key_data, counter)


def fold_keys(key_data: jax.Array, data: Any) -> jax.Array:
    """uint32 `[W]`: `fold` of each key in the key data of a step, which
    `jgs.sampling.base.Sampler.step_keys` made. If `W` is odd, the last number is no key and is
    kept."""
    pairs = range(0, key_data.shape[0] - 1, 2)
    keys = [fold(key_data[i : i + 2], data) for i in pairs]
    return jnp.concatenate([*keys, key_data[2 * len(pairs) :]])


def fold_each(key_data: Any, data: Any) -> np.ndarray:
    """uint32 `[n, 2]`, on the host: `fold` of one key with each element of `data` `[n]`."""
    data = np.asarray(data, np.uint32)
    counter = np.concatenate([np.zeros_like(data), data])
    bits = threefry_2x32(*jax.device_put((np.asarray(key_data), counter)))
    return np.ascontiguousarray(jax.device_get(bits).reshape(2, -1).T)


def step_key_data(epoch_key_data: Any, steps: Any) -> np.ndarray:
    """uint32 `[n, 2]`: the keys of the `steps`, int `[n]`, of an epoch."""
    return fold_each(epoch_key_data, 1 + np.asarray(steps))


def cutoff_keys(key_data: jax.Array, cutoff: jax.Array | None) -> jax.Array:
    """uint32 `[T, 2]`: a key for each cutoff, int64 `[T]`. With None it is `key_data` uint32
    `[2]` itself."""
    if cutoff is None:
        return key_data
    bits = cutoff.astype(jnp.uint64)
    return words(key_data, bits >> jnp.uint64(32), bits).T


def words(key_data: jax.Array, first: Any, second: Any) -> jax.Array:
    """uint32 `[2, ...]`: two random words for each counter, which is the lower 32 bits of
    `first` and of `second`, `[...]` both or scalars.

    The key is uint32 `[2]`. Or each counter has one of its own, uint32 `[..., 2]`.
    """
    parts = [jnp.asarray(part).astype(jnp.uint32) for part in (first, second)]
    shape = jnp.broadcast_shapes(key_data.shape[:-1], *(part.shape for part in parts))
    counter = jnp.stack([jnp.broadcast_to(part, shape) for part in parts])
    if key_data.ndim == 1:
        return threefry_2x32(key_data, counter.reshape(-1)).reshape(counter.shape)
    pairs = jax.vmap(threefry_2x32)(key_data.reshape(-1, 2), counter.reshape(2, -1).T)
    return pairs.T.reshape(counter.shape)


def node_bits(key_data: jax.Array, node: jax.Array, draw: Any) -> jax.Array:
    """uint64, the shape of `node`: the bits of draw number `draw` of each node, int32 `[...]`;
    the two `words` of that counter as one number."""
    high, low = words(key_data, node, draw).astype(jnp.uint64)
    return (high << jnp.uint64(32)) | low


def below(bits: jax.Array, n: Any) -> jax.Array:
    """int64: a uniform integer in `[0, n)`, the high word of the 128-bit product `bits * n`.

    The bias of each outcome is below `n / 2**64`.
    """
    n = jnp.asarray(n).astype(jnp.uint64)
    mask, half = jnp.uint64(0xFFFFFFFF), jnp.uint64(32)
    a, b = bits >> half, bits & mask
    c, d = n >> half, n & mask
    middle = a * d + ((b * d) >> half)  # at most (2**32-1)**2 + 2**32-1, so below 2**64
    carry = b * c + (middle & mask)
    return (a * c + (middle >> half) + (carry >> half)).astype(jnp.int64)


def below_word(high: jax.Array, low: jax.Array, n: jax.Array) -> jax.Array:
    """int32: `below` of the bits that are these two words, uint32, for `n` uint32, in fewer
    operations."""
    high, low, n = (word.astype(jnp.uint64) for word in (high, low, n))
    half = jnp.uint64(32)
    return ((high * n + ((low * n) >> half)) >> half).astype(jnp.int32)


_T = np.arange(1, 1026) * 2.0**-11
# int32 `[1026]`: `-log(1 - t) / t` in units of 2**-30, for `t` a multiple of 2**-11.
LOGARITHMS = np.rint(np.r_[1, -np.log1p(-_T) / _T] * 2.0**30).astype(np.int32)
_LOG_2 = 97_551_793_252_584  # in units of 2**-47


def exponential(bits: jax.Array) -> jax.Array:
    """float64, the shape of `bits` uint64: numbers with the exponential distribution of mean 1:
    `-log(1 - u)` with `u` in (0, 1) made of the upper 52 bits, to a relative error of 2**-22.
    No function of a mathematical library is used, and no sum of a product that is not exact. So
    the result is the same to the bit on every platform."""
    one = 1 << 53
    left = one - (bits >> 11 | 1).astype(jnp.int64)  # 1 - u, in units of 2**-53
    halved = jax.lax.clz(left) - 11  # 1 - u is (1 - t) / 2**halved, with t at most 1/2
    t = one - (left << halved)
    at, part = t >> 42, t >> 11 & 0x7FFFFFFF
    first, second = (jnp.asarray(LOGARITHMS)[at + i].astype(jnp.int64) for i in (0, 1))
    slope = first + ((second - first) * part >> 31)
    product = t.astype(jnp.float64) * slope.astype(jnp.float64)
    return product * 2.0**-83 + (halved * _LOG_2).astype(jnp.float64) * 2.0**-47
