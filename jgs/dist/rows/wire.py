"""How feature rows are sent and read: dense rows, and sparse rows as columns and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph.features import SparseFeatures
from jgs.ops import gather
from jgs.settings import exact_integers


class Wire(Protocol):
    """One form of rows.

    Fields:
      width: `F`, of the rows as they are read.
      words: the columns of a row in a cache, each of 4 bytes.
      kept: the dtype of these columns.
    """

    width: int
    words: int
    kept: Any

    def pack(self, own: Any, ids: jax.Array) -> jax.Array:
        """The rows `ids` as they are sent, `[n, W]`; -1 is padding."""

    def keep(self, sent: jax.Array) -> jax.Array:
        """Rows that were sent, in the form in which a cache has them: `[n, words]`."""

    def read(
        self, own: Any, cached: jax.Array, replies: Sequence[jax.Array], place: jax.Array
    ) -> jax.Array:
        """float32 `[S, F]`: the rows `place` of the own, cached and sent rows, counted as one
        below the other."""


class DenseWire:
    """See `Wire`. `own` is a tuple of matrices. All rows are rounded to `dtype`."""

    kept = jnp.dtype(jnp.float32)

    def __init__(self, width: int, dtype: Any):
        self.width = self.words = width
        self.dtype = jnp.dtype(dtype)

    def pack(self, own: Any, ids: jax.Array) -> jax.Array:
        return gather(own, ids).astype(self.dtype)

    def keep(self, sent: jax.Array) -> jax.Array:
        return sent.astype(jnp.float32)

    def read(
        self, own: Any, cached: jax.Array, replies: Sequence[jax.Array], place: jax.Array
    ) -> jax.Array:
        return _rounded(gather((*own, cached, *map(self.keep, replies)), place), self.dtype)


class SparseWire:
    """See `Wire`. `own` is `SparseFeatures`. A row is sent as the columns, int32, and the
    values of its entries, padded to as many entries as the fullest row of all ranks has.

    Args:
      width: `F`.
      entries: the entries of the fullest row, at least 1.
      dtype: the dtype of values that are sent; the values of all rows are rounded to it.
    """

    kept = jnp.dtype(jnp.int32)

    def __init__(self, width: int, entries: int, dtype: Any):
        self.width, self.dtype = width, jnp.dtype(dtype)
        self._in_word = 4 // self.dtype.itemsize  # the values in a word
        self._entries = -(-entries // self._in_word) * self._in_word
        self.words = self._entries + self._entries // self._in_word

    def pack(self, own: SparseFeatures, ids: jax.Array) -> jax.Array:
        with exact_integers():  # entries are counted in 64 bits
            real = (ids >= 0) & (ids < own.shape[0])
            start = own.indptr[jnp.where(real, ids, 0)]
            stop = jnp.where(real, own.indptr[jnp.where(real, ids, 0) + 1], start)
            entry = start[:, None] + jnp.arange(self._entries, dtype=jnp.int64)
            there = entry < stop[:, None]
            at = jnp.where(there, entry, own.indices.shape[0])
            columns = own.indices.at[at].get(mode="fill", fill_value=0)
            values = own.values.at[at].get(mode="fill", fill_value=0)
        shape = (*values.shape[:1], -1, *[self._in_word] * (self._in_word > 1))
        bits = jax.lax.bitcast_convert_type(values.astype(self.dtype).reshape(shape), jnp.int32)
        return jnp.concatenate([columns, bits], axis=1)

    def keep(self, sent: jax.Array) -> jax.Array:
        return sent

    def read(
        self,
        own: SparseFeatures,
        cached: jax.Array,
        replies: Sequence[jax.Array],
        place: jax.Array,
    ) -> jax.Array:
        num_own = own.shape[0]
        there = place >= num_own
        x = gather(own, jnp.where(there, -1, place))
        sent = jnp.concatenate([cached, *replies])
        if sent.shape[0] > 0:
            others = jnp.where(there, place - num_own, -1)
            x += gather(self._unpacked(sent), others)
        return _rounded(x, self.dtype)  # a row's columns are distinct: no values are added

    def _unpacked(self, sent: jax.Array) -> SparseFeatures:
        columns, bits = sent[:, : self._entries], sent[:, self._entries :]
        values = jax.lax.bitcast_convert_type(bits, self.dtype).astype(jnp.float32)
        with exact_integers():
            indptr = jnp.arange(sent.shape[0] + 1, dtype=jnp.int64) * self._entries
        fixed = (self.width, self._entries)
        return SparseFeatures(indptr, columns.reshape(-1), values.reshape(-1), *fixed)


def _rounded(x: jax.Array, dtype: Any) -> jax.Array:
    if dtype == np.float32:
        return x
    # Without a barrier XLA may leave out both casts: it allows itself "excess precision".
    return jax.lax.optimization_barrier(x.astype(dtype)).astype(jnp.float32)
