"""Models of typed graphs: `TypedInputs`, then layers that know relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from jgs.errors import InputError
from jgs.graph import MiniBatch, Schema
from jgs.graph.typed_features import TypedRows
from jgs.models.gnn import GNN, Sizes, Stack
from jgs.models.inputs import Inputs, Placed, TypedInputs


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
        return super()._enter(batch, self.inputs(x, kind, batch.cutoff), key)


class TypedStack(TypedGNN, Stack):
    """A `TypedGNN` that stacks one kind of relation layer, as a `Stack` does.

    Args:
      in_features: the width of each node type's features, 0 for a type without features
        (`TypedFeatures.widths`).
      hidden_features, out_features: widths; the inputs are projected to `hidden_features`.
      num_layers: the number of layers, and of a batch's blocks.
      schema: the graph's `jgs.graph.Schema`.
      embedding, scales, moments: as in `TypedInputs`. For `scales` give
        `TypedFeatures.scales()`.
      rngs: makes all weights.
      options: those of `convs`, and of `GNN`.
    """

    inputs_activation: str | None = None

    def __init__(
        self,
        in_features: Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        schema: Schema,
        embedding: bool = True,
        scales: Sequence[Sequence[float]] | None = None,
        moments: Sequence[Sequence[tuple[int, int, float, float]]] | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        own: dict[str, Any] = {"embedding": embedding, "scales": scales, "moments": moments}
        own |= {"activation": self.inputs_activation, "rngs": rngs}
        inputs = TypedInputs(in_features, hidden_features, schema=schema, **own)
        sizes = Sizes(hidden_features, hidden_features, out_features, num_layers)
        self._stack(sizes, rngs, options, schema=schema)
        self.inputs = inputs
