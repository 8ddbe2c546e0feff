"""Models of typed graphs: `TypedInputs`, then a stack of one kind of relation layer.

Each is a `TypedGNN`. All of them take these arguments, and some take more:

    in_features: the width of each node type's features, 0 for a type without features
      (`TypedFeatures.widths`).
    hidden_features, out_features: widths; the inputs are projected to `hidden_features`.
    num_layers: the number of layers, and of a batch's blocks.
    schema: the graph's `jgs.graph.Schema`.
    embedding, scales: as in `TypedInputs`. For `scales` give `TypedFeatures.scales()`.
    dropout, input_dropout, norm, rngs: as in `GNN`; `rngs` makes all weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import jax
from flax import nnx

from jgs.errors import InputError
from jgs.graph import MiniBatch, Schema
from jgs.graph.typed_features import TypedRows
from jgs.models.edges import EdgeScales
from jgs.models.gnn import GNN, widths_of
from jgs.models.hgt import HGTConv
from jgs.models.inputs import Inputs, Placed
from jgs.models.relation import relations_of
from jgs.models.rgat import RGATConv
from jgs.models.rgcn import RGCNConv
from jgs.models.rsage import RSAGEConv
from jgs.models.stacked import Heads, Reduce
from jgs.models.temporal_rsage import TemporalRSAGEConv
from jgs.models.time import TimeUnit, TimeWidth
from jgs.models.typed_inputs import TypedInputs
from jgs.options import Option


class TypedGNN(GNN):
    """A `GNN` whose input rows are made by `TypedInputs`.

    `model(batch, x, key=None)` is that of `GNN`, and `x` is one of these:

    - `jgs.ops.gather(typed_features, batch.nodes)`, which are `TypedRows`;
    - a matrix `[S, F]` where all node types have `F` features. The batch must have a schema.

    Args:
      inputs: a `TypedInputs`. The first layer's `in_features` are its `out_features`.
      layers, options: as in `GNN`. `input_dropout` is applied to the projected rows.

    The blocks need edge types: sample with `edges=model.edge_columns`, which are `("type",)`
    and what else the layers read.
    """

    typed = True

    def __init__(self, inputs: TypedInputs, layers: Sequence[Any], **options: Any):
        super().__init__(layers, **options)
        self.inputs = inputs

    def _enter(
        self, batch: MiniBatch, x: Any, key: jax.Array | None
    ) -> tuple[Any, jax.Array | None]:
        x = x.rows() if isinstance(x, Placed) else x
        kind = x.kind if isinstance(x, TypedRows) else None
        if kind is None and not isinstance(x, Inputs) and batch.schema is not None:
            kind = batch.schema.type_and_place(batch.nodes)[0]
        if isinstance(x, Inputs) or (kind is not None and kind.shape != batch.nodes.shape):
            raise InputError(
                "x must be the rows of a batch's nodes",
                type(x).__name__ if kind is None else f"{kind.shape[0]} rows",
                "Pass jgs.ops.gather(features, batch.nodes).",
            )
        return super()._enter(batch, self.inputs(x, kind), key)


class RGCN(TypedGNN):
    """A stack of `RGCNConv`; `bases`, `blocks`, `self_loop` and `reduce` are arguments of these
    layers. With `blocks` the last layer, whose width they need not divide, has full matrices.
    """

    def __init__(
        self,
        in_features: Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        schema: Schema,
        bases: Annotated[
            int | None,
            Option("basis matrices that all relations share; None: a matrix each", least=1),
        ] = None,
        blocks: Annotated[
            int | None, Option("diagonal blocks of the relations' matrices; None: 1", least=1)
        ] = None,
        self_loop: bool = True,
        reduce: Reduce = "mean",
        embedding: bool = True,
        scales: Sequence[Sequence[float]] | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        inputs = _inputs(in_features, hidden_features, schema, embedding, scales, rngs)
        widths = widths_of(hidden_features, hidden_features, out_features, num_layers)
        own: dict[str, Any] = {"bases": bases, "self_loop": self_loop, "reduce": reduce}
        layers = []
        for i, width in enumerate(widths):
            hidden = blocks if i < num_layers - 1 else None
            conv = RGCNConv(*width, relations_of(schema), blocks=hidden, **own, rngs=rngs)
            layers.append(conv)
        super().__init__(inputs, layers, rngs=rngs, **options)


class RSAGE(TypedGNN):
    """A stack of `RSAGEConv`; `reduce` is the argument of these layers."""

    def __init__(
        self,
        in_features: Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        schema: Schema,
        reduce: Reduce = "mean",
        embedding: bool = True,
        scales: Sequence[Sequence[float]] | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        inputs = _inputs(in_features, hidden_features, schema, embedding, scales, rngs)
        widths = widths_of(hidden_features, hidden_features, out_features, num_layers)
        relations = relations_of(schema)
        layers = [RSAGEConv(*width, relations, reduce=reduce, rngs=rngs) for width in widths]
        super().__init__(inputs, layers, rngs=rngs, **options)


class TemporalRSAGE(TypedGNN):
    """A stack of `TemporalRSAGEConv`, for seeds with times; `reduce`, `time_width` and
    `time_unit` are arguments of these layers. It is evaluated by sampled batches."""

    timed = True

    def __init__(
        self,
        in_features: Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        schema: Schema,
        reduce: Reduce = "mean",
        time_width: TimeWidth = 32,
        time_unit: TimeUnit = 1.0,
        embedding: bool = True,
        scales: Sequence[Sequence[float]] | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        inputs = _inputs(in_features, hidden_features, schema, embedding, scales, rngs)
        widths = widths_of(hidden_features, hidden_features, out_features, num_layers)
        own: dict[str, Any] = {"reduce": reduce, "time_width": time_width}
        own |= {"time_unit": time_unit, "rngs": rngs}
        layers = [TemporalRSAGEConv(*width, relations_of(schema), **own) for width in widths]
        super().__init__(inputs, layers, rngs=rngs, **options)


class RGAT(TypedGNN):
    """A stack of `RGATConv`, with ELU between the layers.

    Args:
      heads: the number of heads of each hidden layer, which are concatenated.
      out_heads: the number of heads of the last layer, which are averaged.
      self_loop: as in these layers.
      attention_dropout: rate on the attention weights; None: `dropout`'s.
      edge_columns, edge_width, edge_scales: what the layers read of edges, as of `RGATConv`.
    """

    def __init__(
        self,
        in_features: Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        schema: Schema,
        heads: Heads = 8,
        out_heads: int = 1,
        self_loop: bool = True,
        dropout: float = 0.5,
        attention_dropout: float | None = None,
        embedding: bool = True,
        scales: Sequence[Sequence[float]] | None = None,
        edge_columns: tuple[str, ...] = (),
        edge_width: int = 0,
        edge_scales: EdgeScales = (),
        rngs: nnx.Rngs,
        **options: Any,
    ):
        inputs = _inputs(in_features, hidden_features, schema, embedding, scales, rngs)
        *hidden, last = widths_of(hidden_features, hidden_features, out_features, num_layers)
        own: dict[str, Any] = {"self_loop": self_loop, "rngs": rngs}
        own |= {"edge_columns": edge_columns, "edge_width": edge_width}
        own |= {"edge_scales": edge_scales}
        relations = relations_of(schema)
        layers = [RGATConv(*width, relations, heads, **own) for width in hidden]
        layers.append(RGATConv(*last, relations, out_heads, concat=False, **own))
        rate = dropout if attention_dropout is None else attention_dropout
        options = {"activation": "elu", **options, "attention_dropout": rate}
        super().__init__(inputs, layers, dropout=dropout, rngs=rngs, **options)


class HGT(TypedGNN):
    """A stack of `HGTConv`, with a GELU after the inputs' projection and no activation but the
    layers' own between them.

    Args:
      heads: the number of heads of each layer.
    """

    def __init__(
        self,
        in_features: Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        schema: Schema,
        heads: Heads = 8,
        dropout: float = 0.2,
        embedding: bool = True,
        scales: Sequence[Sequence[float]] | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        inputs = _inputs(in_features, hidden_features, schema, embedding, scales, rngs, "gelu")
        widths = widths_of(hidden_features, hidden_features, out_features, num_layers)
        layers: list[Any] = [HGTConv(*width, schema, heads, rngs=rngs) for width in widths]
        options = {"activation": "none", **options}
        super().__init__(inputs, layers, dropout=dropout, rngs=rngs, **options)


def _inputs(
    in_features: Sequence[int],
    width: int,
    schema: Schema,
    embedding: bool,
    scales: Sequence[Sequence[float]] | None,
    rngs: nnx.Rngs,
    activation: str | None = None,
) -> TypedInputs:
    own: dict[str, Any] = {"embedding": embedding, "scales": scales, "activation": activation}
    return TypedInputs(in_features, width, schema=schema, **own, rngs=rngs)
