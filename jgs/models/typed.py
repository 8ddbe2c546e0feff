"""Models of typed graphs: `TypedInputs`, then layers that know relations. Their layers here, in
Flax NNX: R-GCN, Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional
Networks" (2018), equations 2 to 4; and GraphSAGE with a matrix for each relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import MiniBatch, Schema, TypedRows
from jgs.models.gnn import GNN, Reduce, Sizes, Stack
from jgs.models.inputs import Inputs, Placed, TypedInputs
from jgs.models.parts import (
    ELAPSED,
    RelationConv,
    TimeEncoding,
    TimeUnit,
    TimeWidth,
    check_widths,
    glorot,
    matrices,
    relations_of,
)
from jgs.ops import aggregate
from jgs.ops.checks import check_reduce
from jgs.ops.relation_runs import group_linear, relation_linear
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


class RGCNConv(RelationConv):
    """One layer: `W_0 x_v + sum over relations r of W_r reduce(x_u) + b`, where `u` are the
    neighbours of `v` by relation `r` (equation 2).

    The paper's `1/c` with `c` the number of these neighbours is `reduce="mean"`. The first
    `W_r` are Glorot uniform, `W_0` is uniform within `1 / sqrt(in_features)`, and the bias is
    0. (On ACM a larger `W_0` costs one per cent of macro-F1.)

    Args:
      in_features, out_features: widths of the input and the output.
      num_relations: `R`.
      bases: None; or the number `B` of matrices of which each `W_r` is a linear combination
        (equation 3). The coefficients are Glorot uniform too.
      blocks: None; or the number of blocks on the diagonal of each `W_r`, outside which it is 0
        (equation 4). It divides both widths.
      self_loop: False leaves `W_0` out.
      reduce: `"mean"`, `"sum"` or `"max"`, as in `jgs.ops.aggregate`.

    It is a `RelationLayer`. Raises `InputError` for other widths, and where the block lacks
    edge types.
    """

    gain = 1.0  # of the relations' first matrices
    own_draw = nnx.initializers.variance_scaling(
        1 / 3, "fan_in", "uniform"
    )  # of the first `W_0`

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        *,
        bases: int | None = None,
        blocks: int | None = None,
        self_loop: bool = True,
        reduce: str = "mean",
        rngs: nnx.Rngs,
    ):
        check_reduce(reduce)
        widths = {"in_features": in_features, "out_features": out_features}
        check_widths(**widths, num_relations=num_relations)
        self.in_features, self.out_features = in_features, out_features
        self.num_relations, self.run_reduce = num_relations, reduce
        self.bases, self.blocks, self.self_loop = bases, blocks, self_loop
        if bases is not None and blocks is not None:
            raise InputError(
                "matrices must be combinations of bases or block diagonal, not both",
                f"bases={bases} and blocks={blocks}",
                "Give one of the two.",
            )
        shape = in_features, out_features
        if bases is not None:
            check_widths(bases=bases)
            self.coefficients = glorot(rngs, (num_relations, bases))
            self.kernel = matrices(rngs, bases, *shape, gain=self.gain)
        elif blocks is not None:
            check_widths(blocks=blocks)
            if in_features % blocks or out_features % blocks:
                raise InputError(
                    "blocks must divide the widths of input and output",
                    f"{blocks} for {in_features} and {out_features}",
                    "Choose a common divisor.",
                )
            parts = (width // blocks for width in shape)
            self.kernel = matrices(rngs, num_relations, blocks, *parts, gain=self.gain)
        else:
            self.kernel = matrices(rngs, num_relations, *shape, gain=self.gain)
        if self_loop:
            self.self_kernel = nnx.Param(type(self).own_draw(rngs.params(), shape))
        self.bias = nnx.Param(jnp.zeros(out_features))

    def kernels(self) -> jax.Array:
        """The matrices `W_r`, float32 `[R, in, out]`, or `[R, B, in / B, out / B]`."""
        kernel = self.kernel[...]
        if self.bases is None:
            return kernel
        of_relation = self.coefficients[...] @ kernel.reshape(self.bases, -1)
        return of_relation.reshape(-1, *kernel.shape[1:])

    def update(self, own, slots, reduced, num_targets=None, kind=None, **after: Any):
        rows = relation_linear(slots, reduced, self.kernels())
        return self.with_own(own, aggregate(slots.sums, rows, "sum"), num_targets, **after)


class RSAGEConv(RGCNConv):
    """One layer: `W_self x_v + sum over relations r of W_r reduce(x_u) + b`, where `u` are the
    neighbours of `v` by relation `r`. It is a `SAGEConv` for each relation, summed.

    The matrices' first values have a gain of sqrt(2), as `SAGEConv`'s have.

    DGL's `HeteroGraphConv` of `SAGEConv` is the same function: there each relation has a
    `W_self` of its own, and these are summed. It differs for nodes of types that are the target
    of no or only some relations, whose `W_self` is the sum of fewer matrices; here it is one
    matrix for all.

    Args:
      in_features, out_features, num_relations, rngs: as in `RGCNConv`, and the weights too.
      reduce: `"mean"`, `"sum"` or `"max"`, as in `jgs.ops.aggregate`.
    """

    gain = 2**0.5
    own_draw = nnx.initializers.variance_scaling(2.0, "fan_avg", "uniform")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        *,
        reduce: str = "mean",
        rngs: nnx.Rngs,
    ):
        super().__init__(in_features, out_features, num_relations, reduce=reduce, rngs=rngs)


class TemporalRSAGEConv(RSAGEConv):
    """One layer: `W_self x_v + sum over relations r of W_r reduce(relu(x_u + P_r phi(t))) + b`,
    where `u` are the neighbours of `v` by relation `r`, `t` is the time from the edge to the
    cutoff of `v`, and `phi` a `TimeEncoding`.

    It has the part of RelBench's baseline (Robinson et al., "RelBench: A Benchmark for Deep
    Learning on Relational Databases", 2024) that encodes times. RelBench adds the encoding of a
    row's age to the row itself, once and without the ReLU. Here it is the age of an edge, so a
    row that is reached by two edges is seen at both times. A node's `node_time` is in the time
    of its edges. Without the ReLU a mean of messages would be the mean of rows beside the mean
    of encodings: no row could count by its age.

    Args:
      in_features, out_features, num_relations, reduce, rngs: as in `RSAGEConv`, and the weights
        too. Each `P_r` is Glorot uniform with a gain of sqrt(2).
      time_width, time_unit: `width` and `unit` of the `TimeEncoding`.

    It is a `RelationLayer` with `edge_message`. The sampler is asked for
    `edges=conv.edge_columns`, and its seeds have times. Raises `InputError` for other widths,
    and where the block lacks a column.
    """

    edge_columns = ("type", ELAPSED)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        *,
        reduce: str = "mean",
        time_width: int = 32,
        time_unit: float = 1.0,
        rngs: nnx.Rngs,
    ):
        super().__init__(in_features, out_features, num_relations, reduce=reduce, rngs=rngs)
        self.message_width = in_features
        self.time = TimeEncoding(time_width, unit=time_unit)
        self.time_kernel = matrices(rngs, num_relations, time_width, in_features)

    def edge_message(self, message, edge):
        """`relu(x_u + P_r phi(t))`, `[n, in]`."""
        # Padding may hold a relation that there is not.
        relation = jnp.clip(edge["type"].astype(jnp.int32), 0, self.num_relations - 1)
        num, encoded = jnp.int32(message.shape[0]), self.time(edge[ELAPSED])
        of_edge = group_linear(relation, encoded, self.time_kernel[...], None, num)
        return nnx.relu(message + of_edge)


class RGCN(TypedStack):
    """A stack of `RGCNConv`; `bases`, `blocks`, `self_loop` and `reduce` are arguments of these
    layers. With `blocks` the last layer, whose width they need not divide, has full matrices.
    """

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        schema: Schema,
        *,
        bases: Annotated[
            int | None,
            Option("basis matrices that all relations share; None: a matrix each", least=1),
        ] = None,
        blocks: Annotated[
            int | None, Option("diagonal blocks of the relations' matrices; None: 1", least=1)
        ] = None,
        self_loop: bool = True,
        reduce: Reduce = "mean",
    ) -> list[RGCNConv]:
        own: dict[str, Any] = {"bases": bases, "self_loop": self_loop, "reduce": reduce}
        relations, of_layer = relations_of(schema), [blocks] * (sizes.num_layers - 1) + [None]
        return [
            RGCNConv(*width, relations, blocks=parts, **own, rngs=rngs)
            for width, parts in zip(sizes.widths, of_layer, strict=True)
        ]


class RSAGE(TypedStack):
    """A stack of `RSAGEConv`; `reduce` is the argument of these layers."""

    @staticmethod
    def convs(
        sizes: Sizes, rngs: nnx.Rngs, schema: Schema, *, reduce: Reduce = "mean"
    ) -> list[RSAGEConv]:
        relations = relations_of(schema)
        return [RSAGEConv(*w, relations, reduce=reduce, rngs=rngs) for w in sizes.widths]


class TemporalRSAGE(TypedStack):
    """A stack of `TemporalRSAGEConv`, for seeds with times; `reduce`, `time_width` and
    `time_unit` are arguments of these layers. It is evaluated by sampled batches."""

    timed = True

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        schema: Schema,
        *,
        reduce: Reduce = "mean",
        time_width: TimeWidth = 32,
        time_unit: TimeUnit = 1.0,
    ) -> list[TemporalRSAGEConv]:
        own: dict[str, Any] = {"reduce": reduce, "time_width": time_width}
        own |= {"time_unit": time_unit, "rngs": rngs}
        relations = relations_of(schema)
        return [TemporalRSAGEConv(*width, relations, **own) for width in sizes.widths]
