"""GraphSAGE: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs"
(2017), Algorithm 2, in Flax NNX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block, MiniBatch
from jgs.models.dense import check_width, check_widths, glorot, zero_unless
from jgs.models.inputs import Inputs
from jgs.ops import REDUCTIONS, aggregate, dropout_mask, linear
from jgs.ops import dropout as drop_units
from jgs.ops.dropout import Mask

NORMS = (None, "layer", "l2")


class SAGEConv(nnx.Module):
    """One layer: `W_self x_v + W_neigh reduce(x_u over v's neighbours u) + b`.

    This is the paper's `W [x_v ; aggregated]` written as two matrices. Weights are Glorot
    uniform with a gain of sqrt(2), the bias is 0, as DGL's `SAGEConv`.

    Args:
      in_features, out_features: widths.
      reduce: `"mean"`, `"sum"` or `"max"`, as in `jgs.ops.aggregate`.
      rngs: its `params` stream makes the weights.

    `conv(block, x)`, with `x` `[S, in]` a row for each source, returns `[T, out]`, zeros in
    padding. It equals `conv.update(x[:T], aggregate(block, conv.message(x), conv.reduce))` on
    the real rows. Rows of `x` beyond `block.num_sources` may hold anything and change neither
    result nor gradient; with `real` bool `[S]` so may all rows where it is False. `x` may also
    be `Inputs`, the same to rounding without the sources' rows. Raises `InputError` for another
    width or an unknown `reduce`.
    """

    def __init__(
        self, in_features: int, out_features: int, *, reduce: str = "mean", rngs: nnx.Rngs
    ):
        if reduce not in REDUCTIONS:
            raise InputError(
                f"reduce must be one of {', '.join(REDUCTIONS)}", repr(reduce), "Choose one."
            )
        check_widths(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features, self.reduce = in_features, out_features, reduce
        self.self_kernel = glorot(rngs, (in_features, out_features))
        self.neighbor_kernel = glorot(rngs, (in_features, out_features))
        self.bias = nnx.Param(jnp.zeros(out_features))

    @property
    def projects_first(self) -> bool:
        """Whether `message` multiplies by `W_neigh`, so that narrower rows are aggregated.

        Sums and means commute with the product; a maximum does not.
        """
        return self.reduce != "max" and self.in_features > self.out_features

    def __call__(
        self,
        block: Block,
        x: jax.Array | Inputs,
        real: jax.Array | None = None,
        *,
        relu: bool = False,
        drop: Mask | None = None,
    ) -> jax.Array:
        if isinstance(x, Inputs):
            for rows in x:
                check_width(rows, self.in_features)
            kernels = [self.self_kernel[...], self.neighbor_kernel[...]]
            num_targets = block.num_targets
            return linear(x, kernels, self.bias[...], num_targets, relu=relu, drop=drop)
        check_width(x, self.in_features)
        own = x
        if real is not None:
            own = zero_unless(real[: block.target_capacity], x)
            if self.projects_first:
                x = zero_unless(real, x)
        aggregated = aggregate(block, self.message(x, block.num_sources), self.reduce)
        return self.update(own, aggregated, block.num_targets, relu=relu, drop=drop)

    def message(self, x: jax.Array, num_sources: jax.Array | None = None) -> jax.Array:
        """What is aggregated, `[S, in]` or, if `projects_first`, `[S, out]`; `num_sources` of
        the rows are real, by default all."""
        if self.projects_first:
            return linear([x], [self.neighbor_kernel[...]], None, num_sources)
        return x

    def update(
        self,
        own: jax.Array,
        aggregated: jax.Array,
        num_targets: jax.Array | None = None,
        *,
        relu: bool = False,
        drop: Mask | None = None,
    ) -> jax.Array:
        """`[T, out]` from the targets' own rows `[T, in]` (or more: the first `T` are read) and
        the aggregated messages;
        `num_targets` of the rows are real, by default all. `relu` and `drop` as in
        `jgs.ops.linear`."""
        kernels = [self.self_kernel[...], self.neighbor_kernel[...]]
        inputs, add = [own, aggregated], None
        if self.projects_first:
            inputs, kernels, add = [own], kernels[:1], aggregated
        bias = self.bias[...]
        return linear(inputs, kernels, bias, num_targets, add=add, relu=relu, drop=drop)


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

    `model(batch, x, key=None)` returns `[B, out]`: one row a seed slot, in padding of no
    meaning but finite. Dropout is on exactly when a `key` is given, and depends on `(key,
    layer, node, unit)` alone (see `jgs.ops.dropout`). `x` is either of

    - `read_inputs(features, batch, reduce)`, of a batch sampled with `relabel_inputs=False`:
      the faster way, without `input_dropout`;
    - `[S, in]` = `jgs.ops.gather(features, batch.nodes)`. Rows beyond the real nodes change
      neither result nor gradient.

    The two are equal to rounding.

    Raises `InputError` when the batch has another number of blocks, `x` another shape, or for
    `Inputs` where `input_dropout` would drop from the rows that they no longer hold.
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

    def __call__(self, batch: MiniBatch, x: Any, *, key: jax.Array | None = None) -> jax.Array:
        if len(batch.blocks) != len(self.convs):
            raise InputError(
                "a batch must have one block for each layer of the model",
                f"{len(batch.blocks)} blocks for {len(self.convs)} layers",
                "Sample with one fanout for each layer.",
            )
        x, real = self._enter(batch, x, key)
        for i, (conv, block) in enumerate(zip(self.convs, batch.blocks, strict=True)):
            nodes = batch.target_nodes(i)
            if i < len(self.convs) - 1 and self.norm is None:
                drop = None
                if key is not None and self.dropout > 0:
                    drop = dropout_mask(key, nodes, i + 1, self.dropout)
                x = conv(block, x, real, relu=True, drop=drop)
            else:
                x = self.activate(i, conv(block, x, real), nodes, key)
            real = None  # what follows is finite everywhere
        return x

    def _enter(
        self, batch: MiniBatch, x: Any, key: jax.Array | None
    ) -> tuple[Any, jax.Array | None]:
        """The first layer's input, and which of its rows are real (None: all, or 0)."""
        if isinstance(x, Inputs):
            if self.input_dropout > 0 and key is not None:
                raise InputError(
                    "input_dropout needs the rows of all input nodes",
                    f"Inputs, and a rate of {self.input_dropout}",
                    "Sample with relabel_inputs=True and pass gather(features, batch.nodes).",
                )
            rows, name = x.own.shape[0], "Inputs"
        else:
            check_width(x, self.convs[0].in_features)
            rows, name = x.shape[0], "x"
        if rows != batch.nodes.shape[0]:
            raise InputError(
                f"{name} must have one row for each of batch.nodes",
                f"{rows} rows for {batch.nodes.shape[0]} nodes",
                "Pass jgs.ops.gather(features, batch.nodes) or read_inputs(features, batch).",
            )
        if isinstance(x, Inputs):
            return x, None
        if key is not None:
            x = drop_units(key, x, batch.nodes, 0, self.input_dropout)
        return x, batch.nodes < batch.num_nodes  # seeds may be padded anywhere

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
