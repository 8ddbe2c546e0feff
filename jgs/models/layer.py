"""The layer's contract: what a model's layers must have, written down as Protocols.

A layer of message passing is three steps: every source makes a *message*, a target's messages
are *reduced*, and the target is *updated* with what came of them. A layer that says its three
steps apart can be trained on sampled blocks (`layer(block, x)`) and evaluated exactly, over all
neighbours in pieces of bounded memory (`jgs.train.exact_inference`), which knows this contract
and no algorithm.

`SAGEConv`, `GCNConv`, `GATConv` and `GINConv` keep it; so can a user's own `nnx.Module`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax

from jgs.graph import Block


class Layer(Protocol):
    """One layer. `T` targets are the first of `S` sources; `M` is the width of a message.

    Fields:
      in_features, out_features: widths of the rows that it takes and returns.
      reduce: how a target's messages become one row: `"sum"`, `"mean"` or `"max"`, as
        `jgs.ops.aggregate`; or `"attention"`, see `AttentionLayer`.
      projects_first: False: `message(x)` is `x` itself, so that evaluation stores nothing for
        it, and ranks exchange the rows as they are.
      uses_degrees: True: `message` and `update` need `degree`, int32, the in-degree in the
        whole graph of each row's node (0 in padding). In training `MiniBatch.degrees` has
        them, in evaluation the graph.
      takes_inputs: True: `x` may be `jgs.models.Inputs`, whose rows are aggregated by `reduce`
        while they are read.
    """

    in_features: int
    out_features: int

    @property
    def reduce(self) -> str: ...

    @property
    def projects_first(self) -> bool: ...

    @property
    def uses_degrees(self) -> bool: ...

    @property
    def takes_inputs(self) -> bool: ...

    def message(
        self,
        x: jax.Array,
        num_sources: jax.Array | None = None,
        degree: jax.Array | None = None,
    ) -> jax.Array:
        """float32 `[S, M]`: a row for each source, from its own row of `x` `[S, in]` alone;
        `num_sources` of them are real, by default all."""

    def update(
        self,
        own: jax.Array,
        aggregated: jax.Array,
        num_targets: jax.Array | None = None,
        degree: jax.Array | None = None,
        *,
        relu: bool = False,
        drop: Any = None,
    ) -> jax.Array:
        """`[T, out]`, from the targets' own rows `[T, in]` (or more: the first `T` are read)
        and what was aggregated for them; `num_targets` of the rows are real, by default all.
        `relu`, `drop`: what follows the layer, as in `jgs.ops.linear`."""

    def __call__(
        self,
        block: Block,
        x: Any,
        real: jax.Array | None = None,
        *,
        degree: jax.Array | None = None,
        relu: bool = False,
        drop: Any = None,
    ) -> jax.Array:
        """`[T, out]`: `update(x[:T], reduced messages)` on the real rows, zeros in padding.

        Args:
          block: its `num_sources` say how many rows of `x` are real.
          x: float32 `[S, in]`; rows beyond the real ones may hold anything, NaN too.
          real: bool `[S]`: where False, so may that row. By default all are finite.
          degree: int32 `[S]`, of the sources; for a layer with `uses_degrees`.
          relu, drop: as in `update`.
        """


class AttentionLayer(Layer, Protocol):
    """A layer with `reduce == "attention"`: a weighted mean of values, in `H` heads.

    For every edge from `u` to `v`, and every head, the weight is the softmax, over the edges
    into `v`, of `scores(message[u], query[v])`; `aggregated` `[T, H * D]` is the weighted sum
    of `values(message[u])`. A target without edges has zeros.

    A call takes `attention_drop` too, the `jgs.ops.dropout_mask` of the `S` sources' nodes, by
    which weights are dropped after the softmax: for a `GNN` with `attention_dropout`.

    Fields:
      num_heads: `H`.
      self_loops: the target itself is one more source, with its own message.
    """

    num_heads: int
    self_loops: bool

    def query(self, own: jax.Array) -> jax.Array:
        """float32 `[T, Q]`: what each target asks with, from its own row `[T, in]`."""

    def scores(self, message: jax.Array, query: jax.Array) -> jax.Array:
        """float32 `[n, H]`: the logits of `n` pairs, of messages `[n, M]` and queries
        `[n, Q]`."""

    def values(self, message: jax.Array) -> jax.Array:
        """float32 `[n, H * D]`: what is averaged, head by head, of messages `[n, M]`."""


class Model(Protocol):
    """What a model must have to be evaluated by `jgs.train.exact_inference`: `jgs.models.GNN`
    has it, and a user's own `nnx.Module` may.

    Its output is `h = activate(i, layers[i](h))` for one layer after the other. All of its
    state (`nnx.state(model)`: parameters, running statistics) is what inference is given.
    """

    @property
    def layers(self) -> Sequence[Layer]: ...

    def activate(
        self, i: int, h: jax.Array, nodes: jax.Array | None = None, key: jax.Array | None = None
    ) -> jax.Array:
        """What follows layer `i`: `h` `[T, out]` row by row, e.g. norm, ReLU and dropout.
        Evaluation gives no `key`: then nothing is dropped. `nodes` int32 `[T]` are the rows'
        nodes."""
