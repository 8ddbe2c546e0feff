"""`DGCNN`: a classifier of whole subgraphs, by graph convolutions and SortPooling."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import MiniBatch
from jgs.models.parts import check_rates, check_width, check_widths, glorot, zero_unless
from jgs.ops import aggregate
from jgs.ops.linear import Mask, dropout_mask

_CHANNELS, _WINDOW, _DENSE = (16, 32), 5, 128


class DGCNN(nnx.Module):
    """A model that gives each pair of a `Seal` batch one logit: whether a link joins its ends.

    Zhang, Cui, Neumann and Chen, "An End-to-End Deep Learning Architecture for Graph
    Classification" (2018), as SEAL (Zhang and Chen, 2018, section 5) sets it:

    1. A row's input is its double-radius label, one-hot, beside its features.
    2. Graph convolutions (section 3.1) `tanh(mean(h_u W))`, the mean over a row and its
       neighbours, follow each other. Their outputs are concatenated.
    3. SortPooling (section 3.2) keeps, of each subgraph, the `pool_rows` rows with the largest
       last channel, in that order. A smaller subgraph is filled with rows of zeros.
    4. Two one-dimensional convolutions over these rows, of 16 and 32 channels with maximum
       pooling between them, and a dense layer of 128 units with dropout make the logit.

    Args:
      in_features: width of the features, without the labels; 0 for no features.
      pool_rows: the number `k` of rows that SortPooling keeps, at least 10. The paper takes the
        size that 60 % of the subgraphs do not exceed.
      hidden: width of the graph convolutions.
      num_layers: the number of graph convolutions of width `hidden`; one of width 1 follows.
      max_label: larger labels count as this one.
      dropout: rate of the dense layer's units.
      rngs: its `params` stream makes the weights.

    `model(batch, x, key=key)` takes `x` float32 `[R, in_features]` or None. The result `[B, 1]`
    is NaN where the batch has overflowed. Without a `key` nothing is dropped. What is dropped
    depends on (key, pair, unit) alone. Padding changes nothing, and its rows of `x` may hold
    anything. Raises `InputError` for other widths and for a batch without pairs.
    """

    def __init__(
        self,
        in_features: int,
        pool_rows: int,
        *,
        hidden: int = 32,
        num_layers: int = 3,
        max_label: int = 100,
        dropout: float = 0.5,
        rngs: nnx.Rngs,
    ):
        check_widths(hidden=hidden, num_layers=num_layers, max_label=max_label)
        check_rates(dropout=dropout)
        for name, value, least in ("in_features", in_features, 0), ("pool_rows", pool_rows, 10):
            if value < least:
                raise InputError(
                    f"{name} must be at least {least}", value, f"Give {least} or more."
                )
        self.in_features, self.pool_rows = in_features, pool_rows
        self.max_label, self.dropout = max_label, dropout
        widths = (1 + max_label + in_features, *(hidden,) * num_layers, 1)
        self.graph_kernels = nnx.List([glorot(rngs, both) for both in pairwise(widths)])
        first, second = _CHANNELS
        self.rows = nnx.Linear(sum(widths[1:]), first, rngs=rngs)
        self.windows = nnx.Linear(_WINDOW * first, second, rngs=rngs)
        places = pool_rows // 2 - _WINDOW + 1
        self.dense = nnx.Linear(places * second, _DENSE, rngs=rngs)
        self.logit = nnx.Linear(_DENSE, 1, rngs=rngs)

    def __call__(
        self, batch: MiniBatch, x: jax.Array | None = None, *, key: jax.Array | None = None
    ) -> jax.Array:
        if batch.groups is None or batch.node_labels is None or batch.pair_labels is None:
            raise InputError(
                "DGCNN takes batches of pairs, with labels of their nodes",
                "a batch without",
                "Draw them with jgs.sampling.Seal.",
            )
        labels = jnp.minimum(batch.node_labels, self.max_label)
        h = jax.nn.one_hot(labels, 1 + self.max_label)
        if self.in_features:
            if x is None:
                raise InputError(
                    f"x must have {self.in_features} features a row", None, "Pass it."
                )
            check_width(x, self.in_features)
            real = jnp.arange(x.shape[0]) < batch.groups[-1]
            h = jnp.concatenate([h, zero_unless(real, x)], axis=1)
        layers = []
        for i, kernel in enumerate(self.graph_kernels):
            h, block = h @ kernel[...], batch.block(i)
            degree = jnp.diff(block.indptr)[:, None].astype(h.dtype)
            h = jnp.tanh((degree * aggregate(block, h, "mean") + h) / (degree + 1))
            layers.append(h)
        pooled = sort_pool(jnp.concatenate(layers, axis=1), batch.groups, self.pool_rows)
        z = jax.nn.relu(self.rows(pooled))
        even = z[:, : self.pool_rows // 2 * 2]
        z = jnp.maximum(even[:, ::2], even[:, 1::2])
        places = z.shape[1] - _WINDOW + 1
        around = [z[:, i : i + places] for i in range(_WINDOW)]
        z = jax.nn.relu(self.windows(jnp.concatenate(around, axis=2)))
        z = jax.nn.relu(self.dense(z.reshape(z.shape[0], -1)))
        if key is not None and self.dropout > 0:
            # One mask for each pair: it depends on the ids of both ends.
            first, second = (dropout_mask(key, end, 0, self.dropout) for end in batch.seeds.T)
            mask = Mask(first.low, second.high, self.dropout)
            z = jnp.where(mask.keep(_DENSE), z * mask.scale, 0)
        return jnp.where(batch.overflow, jnp.nan, self.logit(z))


def sort_pool(h: jax.Array, groups: jax.Array, num_rows: int) -> jax.Array:
    """float `[B, num_rows, C]`: for each group the rows of `h` `[R, C]` with the largest last
    channel, in descending order, and then zeros. `groups` int32 `[B+1]` says which rows belong
    to a group (see `MiniBatch`)."""
    row = jnp.arange(h.shape[0], dtype=jnp.int32)
    group = jnp.searchsorted(groups, row, side="right")
    key = -jax.lax.stop_gradient(h[:, -1])
    order = jax.lax.sort((group, key, row), num_keys=2)[-1]
    slot = groups[:-1, None] + jnp.arange(num_rows, dtype=jnp.int32)[None]
    real = slot < groups[1:, None]
    place = order.at[slot].get(mode="clip")
    return jnp.where(real[:, :, None], h[place], 0)
