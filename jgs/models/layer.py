"""The contract of a layer, as Protocols.

A message-passing layer has three steps: every source makes a *message*, the messages of a
target are *reduced* to one row, and the target is *updated* with that row. A layer that offers
its three steps separately can be trained on sampled blocks (`layer(block, x)`). It can also be
evaluated exactly by `jgs.train.exact_inference`, which goes over all neighbours in pieces of
bounded memory and knows this contract alone. A user's own `nnx.Module` can keep it.

All layers here take `rngs`, whose `params` stream makes their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax

from jgs.graph import Block
from jgs.ops.relation_runs import Slots


class Layer(Protocol):
    """One layer. The `T` targets are the first of the `S` sources; `M` is a message's width.

    Fields:
      in_features, out_features: widths of the rows that the layer takes and returns.
      reduce: how a target's messages become one row: `"sum"`, `"mean"` or `"max"`, as in
        `jgs.ops.aggregate`; `"attention"`, see `AttentionLayer`; or `"relations"`, see
        `RelationLayer`.
      projects_first: False means that `message(x)` is `x` itself. Evaluation then stores no
        messages, and ranks exchange the rows as they are.
      uses_degrees: True means that `message` and `update` need `degree`, int32, the in-degree
        of each row's node in the whole graph (0 in padding). In training the degrees come from
        `MiniBatch.degrees`, in evaluation from the graph.
      takes_inputs: True means that `x` may be `jgs.models.Inputs`, whose rows were aggregated
        by `reduce` while they were read. It is False for a layer with `edge_columns`.
      edge_columns: the names of the edge columns that the layer reads, as in
        `jgs.Block.edge_arrays`; `()` for a layer that reads none. A layer that reads some is an
        `EdgeLayer` or has attention.
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

    @property
    def edge_columns(self) -> tuple[str, ...]: ...

    def message(
        self,
        x: jax.Array,
        num_sources: jax.Array | None = None,
        degree: jax.Array | None = None,
    ) -> jax.Array:
        """The messages float32 `[S, M]`: a row for each source, computed from its own row of
        `x` `[S, in]` alone. The first `num_sources` rows are real, by default all."""

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
        """The output `[T, out]`, from the targets' own rows `[T, in]` and their reduced
        messages. `own` may have more rows: the first `T` are read. The first `num_targets` rows
        are real, by default all. `relu` and `drop` are applied to the output, as in
        `jgs.ops.linear`."""

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
        """The output `[T, out]`: `update(x[:T], reduced messages)`, with zeros in padding.

        Args:
          block: its `num_sources` says how many rows of `x` are real.
          x: float32 `[S, in]`; rows beyond the real ones may hold anything, NaN too, and change
            neither result nor gradient.
          real: bool `[S]`: rows where it is False may hold anything too. None: the first
            `num_sources` rows are finite.
          degree: int32 `[S]`, the in-degrees of the sources, for a layer with `uses_degrees`.
          relu, drop: as in `update`.
        """


class EdgeLayer(Layer, Protocol):
    """A layer with `edge_columns` and a sum, mean or maximum: its messages read their edges.

    Each source's `message` is computed first, once for all its edges. (A source has many edges,
    so products belong there.) If there is nothing to compute it is `x` itself, and
    `projects_first` is False. `edge_message` then makes the message of every edge, and these
    are reduced. Where the block has `edge_weight`, they are multiplied by it, as all messages
    are. The column "weight" is only read.

    Fields:
      message_width: the width `M` of the rows that `edge_message` returns and `update` takes.
    """

    message_width: int

    def edge_message(self, message: jax.Array, edge: dict[str, jax.Array]) -> jax.Array:
        """The messages float32 `[n, M]` of `n` edges, each computed from its own rows alone.

        Args:
          message: float32 `[n, P]`, the rows that `message` returned for the edges' sources.
          edge: the layer's `edge_columns` by name, arrays `[n, ...]`. "id" and "time" are
            int64, with which JAX computes under `jax.enable_x64` alone.

        In padding both hold copies of a real edge, and the result is not read."""


class AttentionLayer(Layer, Protocol):
    """A layer with `reduce == "attention"`: a weighted mean of values, in `H` heads.

    For every edge from `u` to `v`, and every head, the weight is the softmax, over the edges
    into `v`, of `scores(message[u], query[v])`. `aggregated` `[T, H * D]` is the weighted sum
    of `values(message[u])`. A target without edges has zeros. If the layer has `edge_columns`,
    `scores` also reads the columns of the edge.

    A call also takes `attention_drop`, the `jgs.ops.dropout_mask` of the `S` sources' nodes.
    Weights are dropped by it after the softmax; whether an edge's weights are dropped depends
    on its two nodes. A `GNN` with `attention_dropout` passes it.

    Fields:
      num_heads: the number `H` of heads.
      self_loops: whether the target itself is one more source, with its own message.
      edge_values: True means that values see the columns of their edge. There are no
        `self_loops` then. `edge_message(message, edge)` returns a row for each edge, as wide as
        a message, and `scores` and `values` are given these rows, and `scores` no `edge`.
    """

    num_heads: int
    self_loops: bool
    edge_values: bool

    def query(self, own: jax.Array) -> jax.Array:
        """float32 `[T, Q]`: the query of each target, from its own row of `own` `[T, in]`."""

    def scores(
        self, message: jax.Array, query: jax.Array, edge: dict[str, jax.Array] | None = None
    ) -> jax.Array:
        """float32 `[n, H]`: the logits of `n` pairs of a message, `[n, M]`, and a query,
        `[n, Q]`. A layer with `edge_columns` is given `edge`, as `EdgeLayer.edge_message` is.
        None: the pairs are the `self_loops`, which are no edges of the graph and have no
        columns."""

    def values(self, message: jax.Array) -> jax.Array:
        """float32 `[n, H * D]`: the values in messages `[n, M]`, which each head averages."""


class RelationLayer(Layer, Protocol):
    """A layer with `reduce == "relations"`, whose messages see the relation of their edge.

    It has `edge_columns = ("type",)`. The edges of one relation into one target are a *run*
    (`jgs.ops.runs_of`). The messages of a run's edges are reduced to a row, and `update` makes
    a target's output of the rows of its runs. In training the runs are those of a block, and
    in exact evaluation every target has a run of every relation, perhaps without edges. The
    row of a run without edges is 0, and must add nothing.

    A layer that reads more names them after it, as in `("type", "elapsed")`. It is then an
    `EdgeLayer` too: what is reduced are the rows that `edge_message` makes of its edges, of
    the width `message_width`. Its runs are not reduced by attention.

    Here `K` is the number of slots for runs, `R` the number of relations.

    Fields:
      num_relations: `R`.
      run_reduce: how a run's messages become one row: `"sum"`, `"mean"`, `"max"`, or
        `"attention"`, see `RelationAttentionLayer`.
      uses_types: True means that `message`, `update` and `query` need `kind`, int32, the number
        of the type of each row's node (-1 in padding). In training the types come from
        `MiniBatch.schema`, in evaluation from the graph.
    """

    num_relations: int

    @property
    def run_reduce(self) -> str: ...

    @property
    def uses_types(self) -> bool: ...

    def message(
        self,
        x: jax.Array,
        num_sources: jax.Array | None = None,
        degree: jax.Array | None = None,
        kind: jax.Array | None = None,
    ) -> jax.Array:
        """As in `Layer`, with the types of the rows' nodes."""

    def update(  # type: ignore[override]
        self,
        own: jax.Array,
        slots: Slots,
        reduced: jax.Array,
        num_targets: jax.Array | None = None,
        kind: jax.Array | None = None,
        *,
        relu: bool = False,
        drop: Any = None,
    ) -> jax.Array:
        """The output `[T, out]`, from the targets' own rows `[T, in]` and the rows `[K, M]` of
        the runs in `slots`. The rest is as in `Layer`."""


class RelationAttentionLayer(RelationLayer, Protocol):
    """A layer with `run_reduce == "attention"`: a run's row is a weighted sum of values, in `H`
    heads. The weight of an edge is a softmax of `scores(edge_message, query of its run)`.

    Fields:
      num_heads: `H`.
      softmax_over: `"run"` or `"target"`: the edges whose weights sum to 1.
    """

    num_heads: int

    @property
    def softmax_over(self) -> str: ...

    def query(self, own: jax.Array, slots: Slots, kind: jax.Array | None = None) -> jax.Array:
        """float32 `[K, Q]`: the query of each run, from its target's row of `own` `[T, in]`."""

    def edge_message(
        self, message: jax.Array, relation: jax.Array, edge: dict[str, jax.Array] | None = None
    ) -> jax.Array:
        """The messages float32 `[n, P]` of `n` edges, from the rows `[n, M]` that `message`
        returned for their sources, and their relations int `[n]`. `message` itself, if they do
        not depend on the relation. A layer with `edge_columns` after `"type"` is given these
        columns as `edge`, arrays `[n, ...]`; None asks for the width `P` alone."""

    def scores(self, message: jax.Array, query: jax.Array) -> jax.Array:
        """float32 `[n, H]`: the logits of `n` pairs of an edge's message and a run's query."""

    def values(self, message: jax.Array) -> jax.Array:
        """float32 `[n, H * D]`: the values in edges' messages, which each head sums."""


class Model(Protocol):
    """The contract of a model that `jgs.train.exact_inference` evaluates. `jgs.models.GNN`
    keeps it, and a user's own `nnx.Module` can.

    The model's output is `h = activate(i, layers[i](h))` for one layer after the other.
    Inference takes the whole state of the model, `nnx.state(model)`: parameters and running
    statistics.
    """

    @property
    def layers(self) -> Sequence[Layer]: ...

    def activate(
        self, i: int, h: jax.Array, nodes: jax.Array | None = None, key: jax.Array | None = None
    ) -> jax.Array:
        """Applies what follows layer `i` to its output `h` `[T, out]`, row by row: for example
        norm, ReLU and dropout. `nodes` int32 `[T]` are the rows' nodes. Evaluation passes no
        `key`, and then nothing is dropped."""


def attends(layer: Any) -> bool:
    """Whether a layer has attention weights, within a target or within its runs."""
    return "attention" in (layer.reduce, relational(layer) and layer.run_reduce)


def relational(layer: Any) -> bool:
    """Whether a layer is a `RelationLayer`."""
    return layer.reduce == "relations"


def attended(
    layer: Any, rows: jax.Array, query: jax.Array, edge: dict[str, jax.Array] | None
) -> tuple[jax.Array, jax.Array]:
    """The logits `[n, H]` and the values `[n, H * D]` of edges for an `AttentionLayer`, from
    their sources' messages `rows` `[n, M]`, their targets' queries, and the columns of edges,
    or None if the layer reads none."""
    if getattr(layer, "edge_values", False):  # layers of before this field had none
        rows = layer.edge_message(rows, edge)
        return layer.scores(rows, query), layer.values(rows)
    return layer.scores(rows, query, *([edge] if edge else [])), layer.values(rows)


def of_relations(layer: Any, rows: jax.Array, edge: dict[str, jax.Array]) -> jax.Array:
    """The messages `[n, P]` of edges of a `RelationAttentionLayer`, from their sources' rows
    `[n, M]` and the columns of edges."""
    others = {name: column for name, column in edge.items() if name != "type"}
    return layer.edge_message(rows, edge["type"], *([others] if others else []))


def by_each_edge(layer: Any) -> bool:
    """Whether what a layer reduces without attention are rows of its edges, which its
    `edge_message` makes, and not the messages of their sources."""
    of_runs = ("type",) if relational(layer) else ()
    return not attends(layer) and layer.edge_columns != of_runs


def uses_types(layer: Any) -> bool:
    """Whether a layer reads the types of its nodes."""
    return relational(layer) and layer.uses_types
