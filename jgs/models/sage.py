"""GraphSAGE: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs"
(2017), Algorithm 2, in Flax NNX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block, MiniBatch
from jgs.models.dropout import dropout as drop_units
from jgs.ops import REDUCTIONS, aggregate

NORMS = (None, "layer", "l2")


class SAGEConv(nnx.Module):
    """One layer: `W_self x_v + W_neigh reduce(x_u over v's neighbours u) + b`.

    This is the paper's `W [x_v ; aggregated]` written as two matrices. Weights are Glorot
    uniform with a gain of sqrt(2), the bias is 0, as DGL's `SAGEConv`.

    Args:
      in_features, out_features: widths.
      reduce: `"mean"`, `"sum"` or `"max"`, as in `jgs.ops.aggregate`.
      rngs: its `params` stream makes the weights.

    `conv(block, x)`, with `x` `[S, in]` a row for each source, returns `[T, out]`. It equals
    `conv.update(x[:T], aggregate(block, conv.message(x), conv.reduce))` on the real rows.
    Rows of `x` beyond `block.num_sources` may hold anything and change neither result nor
    gradient; with `real` bool `[S]` so may all rows where it is False. Raises `InputError`
    for another width or an unknown `reduce`.
    """

    def __init__(
        self, in_features: int, out_features: int, *, reduce: str = "mean", rngs: nnx.Rngs
    ):
        if reduce not in REDUCTIONS:
            raise InputError(
                f"reduce must be one of {', '.join(REDUCTIONS)}", repr(reduce), "Choose one."
            )
        for name, width in (("in_features", in_features), ("out_features", out_features)):
            if width < 1:
                raise InputError(f"{name} must be at least 1", width, "Give a positive width.")
        self.in_features, self.out_features, self.reduce = in_features, out_features, reduce
        glorot = nnx.initializers.variance_scaling(2.0, "fan_avg", "uniform")
        shape = (in_features, out_features)
        self.self_kernel = nnx.Param(glorot(rngs.params(), shape))
        self.neighbor_kernel = nnx.Param(glorot(rngs.params(), shape))
        self.bias = nnx.Param(jnp.zeros(out_features))

    @property
    def projects_first(self) -> bool:
        """Whether `message` multiplies by `W_neigh`, so that narrower rows are aggregated.

        Sums and means commute with the product; a maximum does not.
        """
        return self.reduce != "max" and self.in_features > self.out_features

    def __call__(self, block: Block, x: jax.Array, real: jax.Array | bool = True) -> jax.Array:
        _check_width(x, self.in_features)
        # 0 * NaN is NaN in a weight's gradient: rows that are not real must enter no product.
        real = real & (jnp.arange(x.shape[0]) < block.num_sources)
        num = block.target_capacity
        x_self = _zero_unless(real[:num] & (jnp.arange(num) < block.num_targets), x[:num])
        if self.projects_first:
            x = _zero_unless(real, x)
        return self.update(x_self, aggregate(block, self.message(x), self.reduce))

    def message(self, x: jax.Array) -> jax.Array:
        """What is aggregated, `[S, in]` or, if `projects_first`, `[S, out]`."""
        return x @ self.neighbor_kernel[...] if self.projects_first else x

    def update(self, x_self: jax.Array, aggregated: jax.Array) -> jax.Array:
        """`[T, out]` from the targets' own rows `[T, in]` and the aggregated messages."""
        if not self.projects_first:
            aggregated = aggregated @ self.neighbor_kernel[...]
        return x_self @ self.self_kernel[...] + aggregated + self.bias[...]


class GraphSAGE(nnx.Module):
    """`num_layers` SAGEConvs with ReLU between them.

    Args:
      in_features, hidden_features, out_features: widths.
      num_layers: the number of convs, and of a batch's blocks.
      reduce: as in `SAGEConv`.
      dropout: rate on each hidden layer, after the activation.
      input_dropout: rate on the input rows.
      norm: `"layer"`, a LayerNorm before the activation; `"l2"`, each row over its Euclidean
        norm after it, as line 7 of the paper's Algorithm 1; or None. Hidden layers only.
      rngs: its `params` stream makes the weights; nothing of it is kept.

    `model(batch, x, key=None)`, with `x` `[S, in]` = `jgs.ops.gather(features, batch.nodes)`,
    returns `[B, out]`: one row a seed slot, in padding of no meaning but finite. Dropout is on
    exactly when a `key` is given, and depends on `(key, layer, node, unit)` alone (see
    `jgs.models.dropout`). Rows of `x` beyond the real nodes change neither result nor gradient.

    Raises `InputError` when the batch has another number of blocks or `x` another shape.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        reduce: str = "mean",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str | None = None,
        rngs: nnx.Rngs,
    ):
        if num_layers < 1:
            raise InputError("num_layers must be at least 1", num_layers, "Give one a hop.")
        if norm not in NORMS:
            raise InputError(f"norm must be one of {NORMS}", repr(norm), "Choose one.")
        for name, rate in (("dropout", dropout), ("input_dropout", input_dropout)):
            if not 0 <= rate < 1:
                raise InputError(f"{name} must be in [0, 1)", rate, "0 switches it off.")
        self.dropout, self.input_dropout, self.norm = dropout, input_dropout, norm
        hidden = num_layers - 1
        widths = [in_features, *[hidden_features] * hidden, out_features]
        self.convs = nnx.List(
            [
                SAGEConv(widths[i], widths[i + 1], reduce=reduce, rngs=rngs)
                for i in range(num_layers)
            ]
        )
        norms = hidden if norm == "layer" else 0
        self.norms = nnx.List([nnx.LayerNorm(hidden_features, rngs=rngs) for _ in range(norms)])

    def __call__(
        self, batch: MiniBatch, x: jax.Array, *, key: jax.Array | None = None
    ) -> jax.Array:
        if len(batch.blocks) != len(self.convs):
            raise InputError(
                "a batch must have one block for each layer of the model",
                f"{len(batch.blocks)} blocks for {len(self.convs)} layers",
                "Sample with one fanout for each layer.",
            )
        _check_width(x, self.convs[0].in_features)
        if x.shape[0] != batch.nodes.shape[0]:
            raise InputError(
                "x must have one row for each of batch.nodes",
                f"{x.shape[0]} rows for {batch.nodes.shape[0]} nodes",
                "Pass jgs.ops.gather(features, batch.nodes).",
            )
        h = x
        if key is not None:
            h = drop_units(key, h, batch.nodes, 0, self.input_dropout)
        nodes = batch.nodes
        for i, (conv, block) in enumerate(zip(self.convs, batch.blocks, strict=True)):
            h = conv(block, h, nodes < batch.num_nodes)  # seeds may be padded anywhere
            nodes = batch.target_nodes(i)
            h = self.activate(i, h, nodes, key)
        return h

    def activate(
        self, i: int, h: jax.Array, nodes: jax.Array | None = None, key: jax.Array | None = None
    ) -> jax.Array:
        """What follows conv `i`: norm, ReLU and dropout, or nothing after the last.

        `nodes` int32 `[T]`, the nodes of `h`'s rows, is needed only with a `key`.
        """
        if i == len(self.convs) - 1:
            return h
        if self.norm == "layer":
            h = self.norms[i](h)
        h = nnx.relu(h)
        if self.norm == "l2":
            # A row of zeros stays zero; the maximum keeps its gradient finite.
            h = h * jax.lax.rsqrt(jnp.maximum(jnp.sum(h * h, -1, keepdims=True), 1e-24))
        if key is not None:
            if nodes is None:
                raise InputError(
                    "dropout needs the rows' nodes", nodes, "Pass them, or no key."
                )
            h = drop_units(key, h, nodes, i + 1, self.dropout)
        return h


def _check_width(x: jax.Array, in_features: int) -> None:
    if x.ndim != 2 or x.shape[1] != in_features:
        raise InputError(
            f"x must be a matrix with the layer's {in_features} input features",
            f"shape {list(x.shape)}",
            "Build the model with in_features = features.shape[1].",
        )


def _zero_unless(real: jax.Array, x: jax.Array) -> jax.Array:
    """`x` with its rows where `real` is False set to 0."""
    return jnp.where(real[:, None], x, 0)
