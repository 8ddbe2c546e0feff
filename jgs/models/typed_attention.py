"""Attention with weights of its own for each relation, in Flax NNX. RGAT: Busbridge et al.,
"Relational Graph Attention Networks" (2019), section 2, with attention within a relation. HGT:
Hu et al., "Heterogeneous Graph Transformer" (2020), section 3."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block, Schema
from jgs.kernels.call import FILL
from jgs.models import parts
from jgs.models.gat import beside_ones
from jgs.models.gnn import Heads, Sizes
from jgs.models.typed import TypedStack
from jgs.ops import aggregate, edge_dot, edge_mask, edge_softmax, linear
from jgs.ops.linear import finish
from jgs.ops.relation_runs import group_linear, relation_linear


class RGATConv(parts.ReadsEdges, parts.RelationConv):
    """One layer: for each head the sum, over relations `r`, of the mean of `W_r x_u` over `v`'s
    neighbours `u` by relation `r`, plus a bias. It is a `GATConv` for each relation, summed.

    The mean is weighted by attention: a softmax over these `u`, head by head, of
    `LeakyReLU(a_r . W_r x_u + b_r . W_r x_v + c_r . e)`. Here `e` are the features of the edge
    from `u` to `v`; without them the last term is left out. There are no self-loops. Matrices
    and attention vectors are Glorot uniform with a gain of sqrt(2), and the bias is 0.

    Args:
      in_features, out_features, num_relations: as in `RGCNConv`. Concatenated heads share
        `out_features`.
      num_heads: the number of heads.
      concat: True concatenates the heads, as in hidden layers. False averages them, as in the
        last layer; each head then has `out_features` units.
      self_loop: True adds `W_0 x_v`, as `RGCNConv` does, without which a node does not see
        itself.
      negative_slope: slope of the LeakyReLU below 0.
      edge_columns, edge_width, edge_scales: `e`, beside `"type"`, as of `GATConv`.

    It is a `RelationAttentionLayer`. Raises `InputError` for other widths, and where the block
    lacks edge types.
    """

    run_reduce, softmax_over = "attention", "run"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        num_heads: int = 1,
        *,
        concat: bool = True,
        self_loop: bool = True,
        negative_slope: float = 0.2,
        rngs: nnx.Rngs,
        **edges: Unpack[parts.EdgeOptions],
    ):
        widths = {"in_features": in_features, "out_features": out_features}
        parts.check_widths(**widths, num_relations=num_relations)
        width = out_features if concat else out_features * num_heads
        parts.check_heads(num_heads, out_features=width)
        self.in_features, self.out_features = in_features, out_features
        self.num_relations, self.num_heads = num_relations, num_heads
        self.concat, self.self_loop, self.negative_slope = concat, self_loop, negative_slope
        self.kernel = parts.matrices(rngs, num_relations, in_features, width)
        vectors = (num_relations, num_heads, width // num_heads)
        self.source_attention = parts.matrices(rngs, *vectors)
        self.target_attention = parts.matrices(rngs, *vectors)
        self.reads("type", **edges)
        if self.features:
            self.edge_attention = parts.matrices(
                rngs, num_relations, self.edge_width, num_heads
            )
        if self_loop:
            self.self_kernel = parts.matrices(rngs, in_features, out_features)
        self.bias = nnx.Param(jnp.zeros(out_features))

    def __call__(
        self, block: Block, x: Any, real=None, *, degree=None, attention_drop=None, **after: Any
    ) -> jax.Array:
        parts.check_width(x, self.in_features)
        x, runs = parts.zero_unless(real, x), parts.runs_from(block, x, self.num_relations)
        own, edges = x[: block.target_capacity], parts.from_edges(runs.edges)
        relation = block.edge_type.at[runs.order].get(mode="fill", fill_value=0)  # type: ignore[union-attr]
        # The same edges and sources, where each edge is a target of its own.
        num = runs.edges.num_edges
        indptr = jnp.minimum(jnp.arange(edges.edge_capacity + 1, dtype=jnp.int32), num)
        of_own = replace(runs.edges, indptr=indptr, num_targets=num, edge_weight=None)
        rows = aggregate(of_own, x, "sum")
        messages = self._projected(rows, relation, runs.edges.num_edges)
        if self.features:
            edge = parts.read_edges(self, block)
            edge = {name: edge[name].at[runs.order].get(**FILL) for name in self.features}
            messages = self._with_edges(messages, relation, edge, runs.edges.num_edges)
        values, source = self.values(messages), messages[:, -self.num_heads :]
        # s + t is the dot product of (s, 1), of the edge, and (1, t), of the run.
        pairs = beside_ones(source, 0), beside_ones(self.query(own, runs.slots), 1)
        logits = self._leaky(edge_dot(edges, *pairs, self.num_heads))
        weights = edge_softmax(edges, logits)
        if attention_drop is not None:
            keep = edge_mask(block, attention_drop).keep(self.num_heads)
            keep = runs.to_runs(keep.astype(jnp.float32))
            weights = weights * keep * attention_drop.scale
        reduced = aggregate(edges, values, "sum", weights)
        return self.update(own, runs.slots, reduced, block.num_targets, **after)

    def edge_message(self, message, relation, edge=None):
        """float32 `[n, H * D + H]`: the values `W_r x_u`, then the part of the logits that
        sources and edges make."""
        num = jnp.int32(message.shape[0])
        message = self._projected(message, relation, num)
        return self._with_edges(message, relation, edge, num) if edge else message

    def query(self, own, slots, kind=None):
        """The targets' part of the logits `[K, H]`."""
        scores = self._scores_kernel(self.target_attention[...])
        return relation_linear(slots, slots.of_targets(own), scores)

    def scores(self, message, query):
        return self._leaky(message[:, -self.num_heads :] + query)

    def values(self, message):
        return message[:, : -self.num_heads]

    def update(self, own, slots, reduced, num_targets=None, kind=None, **after: Any):
        summed = aggregate(slots.sums, reduced, "sum")
        if not self.concat:
            summed = summed.reshape(summed.shape[0], self.num_heads, -1).mean(1)
        return self.with_own(own, summed, num_targets, **after)

    def _projected(self, rows: jax.Array, relation: jax.Array, num: jax.Array) -> jax.Array:
        kernel = self.kernel[...]
        scores = self._scores_kernel(self.source_attention[...])
        kernel = jnp.concatenate([kernel, scores], axis=2)
        return group_linear(relation, rows, kernel, None, num)

    def _with_edges(self, message: Any, relation: Any, edge: Any, num: Any) -> jax.Array:
        """`message` `[n, H * D + H]`, with what edges add to the logits."""
        kernel = self.edge_attention[...]
        of_edge = group_linear(relation, self.of_edges(edge), kernel, None, num)
        return message.at[:, -self.num_heads :].add(of_edge)

    def _scores_kernel(self, attention: jax.Array) -> jax.Array:
        """The matrices `[R, in, H]` that turn `x` into `attention . W_r x` of each head."""
        kernel = self.kernel[...]
        kernel = kernel.reshape(*kernel.shape[:2], *attention.shape[1:])
        return jnp.sum(kernel * attention[:, None], axis=-1)

    def _leaky(self, logits: jax.Array) -> jax.Array:
        return jax.nn.leaky_relu(logits, self.negative_slope)


class RGAT(TypedStack, activation="elu", attention_dropout=None):
    """A stack of `RGATConv`, with ELU between the layers.

    Args:
      heads: the number of heads of each hidden layer, which are concatenated.
      out_heads: the number of heads of the last layer, which are averaged.
      self_loop: as in these layers.
      attention_dropout: rate on the attention weights; by default `dropout`'s.
      edge_columns, edge_width, edge_scales: what the layers read of edges, as of `RGATConv`.
    """

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        schema: Schema,
        *,
        heads: Heads = 8,
        out_heads: int = 1,
        self_loop: bool = True,
        **edges: Unpack[parts.EdgeOptions],
    ) -> list[RGATConv]:
        relations = parts.relations_of(schema)
        make = partial(RGATConv, self_loop=self_loop, rngs=rngs, **edges)
        *hidden, last = ((*width, relations) for width in sizes.widths)
        return [*(make(*of, heads) for of in hidden), make(*last, out_heads, concat=False)]


class HGTConv(parts.RelationConv):
    """One layer, for a target `v` of type `t(v)` and its neighbours `u` by relations `r`:

    - attention (equation 3): for each head the softmax over all edges into `v` of
      `K(x_u) W_att_r Q(x_v) mu_r / sqrt(d)`, where `K` and `Q` are linear maps of the node's
      type, and `d` is a head's width;
    - messages (equation 4): `V(x_u) W_msg_r` of each head, with `V` a linear map of `u`'s type;
    - their weighted sum `h_v` (equation 5), and the output `A(gelu(h_v))`, with `A` a linear
      map of `v`'s type.

    The output is joined to the node's own row by a gate of its type, as in the authors' code
    and in DGL: `s A(gelu(h_v)) + (1 - s) x_v`, where `s = sigmoid(alpha)`. If the widths
    differ, `x_v` is multiplied by a matrix here. (DGL's layer leaves the GELU out.)

    A head's `W_att_r` and `W_msg_r` multiply the runs' queries and weighted sums of values, and
    not the edges' keys and values. Because `W_att_r` and `W_msg_r` are the same for a run's
    edges, the result is the same, and there are fewer runs.

    Args:
      in_features, out_features: widths of the input and the output.
      schema: the graph's `jgs.graph.Schema`, with its node types and relations.
      num_heads: the number of heads, which share `width` equally.
      width: of keys, queries and values of all heads together; None: `in_features`.

    Matrices are Glorot uniform with a gain of sqrt(2), biases 0, and `mu` and `alpha` 1. It is
    a `RelationAttentionLayer`. Raises `InputError` for other widths, a schema without
    relations, and where the block lacks edge types.
    """

    run_reduce, softmax_over = "attention", "target"
    projects_first, uses_types = True, True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        schema: Schema,
        num_heads: int = 4,
        *,
        width: int | None = None,
        rngs: nnx.Rngs,
    ):
        width = in_features if width is None else width
        num_types, num_relations = len(schema.node_types), parts.relations_of(schema)
        parts.check_widths(in_features=in_features, out_features=out_features, width=width)
        parts.check_heads(num_heads, width=width)
        self.in_features, self.out_features, self.width = in_features, out_features, width
        self.num_types, self.num_relations, self.num_heads = num_types, num_relations, num_heads
        head = width // num_heads
        self.key_kernel = parts.matrices(rngs, num_types, in_features, width)
        self.value_kernel = parts.matrices(rngs, num_types, in_features, width)
        self.query_kernel = parts.matrices(rngs, num_types, in_features, width)
        self.out_kernel = parts.matrices(rngs, num_types, width, out_features)
        self.key_value_bias = nnx.Param(jnp.zeros((num_types, 2 * width)))
        self.query_bias = nnx.Param(jnp.zeros((num_types, width)))
        self.out_bias = nnx.Param(jnp.zeros((num_types, out_features)))
        self.attention = parts.matrices(rngs, num_relations, num_heads, head, head)
        self.message_kernel = parts.matrices(rngs, num_relations, num_heads, head, head)
        self.prior = nnx.Param(jnp.ones((num_relations, num_heads)))
        self.skip = nnx.Param(jnp.ones(num_types))
        if in_features != out_features:
            self.skip_kernel = parts.glorot(rngs, (in_features, out_features))

    def __call__(
        self,
        block: Block,
        x: Any,
        real=None,
        *,
        degree=None,
        kind=None,
        attention_drop=None,
        **after: Any,
    ) -> jax.Array:
        parts.check_width(x, self.in_features)
        x, runs = parts.zero_unless(real, x), parts.runs_from(block, x, self.num_relations)
        own = x[: block.target_capacity]
        message = self.message(x, block.num_sources, kind=kind)
        keys, values = message[:, : self.width], message[:, self.width :]
        query = self.query(own, runs.slots, kind, block.num_targets)
        logits = edge_dot(runs.edges, keys, query, self.num_heads)
        weights = edge_softmax(block, runs.to_block(logits))
        if attention_drop is not None:
            keep = edge_mask(block, attention_drop).keep(self.num_heads)
            weights = jnp.where(keep, weights * attention_drop.scale, 0)
        reduced = aggregate(runs.edges, values, "sum", runs.to_runs(weights))
        return self.update(own, runs.slots, reduced, block.num_targets, kind, **after)

    def message(self, x, num_sources=None, degree=None, kind=None):
        """`[S, 2 * width]`: the keys, then the values."""
        kernel = jnp.concatenate([self.key_kernel[...], self.value_kernel[...]], axis=2)
        return self._by_type(kind, x, kernel, self.key_value_bias[...], num_sources)

    def query(self, own, slots, kind=None, num_targets=None):
        """`[K, width]`: `W_att_r Q(x_v) mu_r / sqrt(d)` of each head."""
        bias = self.query_bias[...]
        rows = self._by_type(kind, own, self.query_kernel[...], bias, num_targets)
        scale = self.prior[...] / np.sqrt(self.width // self.num_heads)
        kernel = self.attention[...].swapaxes(2, 3) * scale[:, :, None, None]
        return relation_linear(slots, slots.of_targets(rows), kernel)

    def edge_message(self, message, relation, edge=None):
        return message

    def scores(self, message, query):
        products = message[:, : self.width] * query
        return products.reshape(products.shape[0], self.num_heads, -1).sum(-1)

    def values(self, message):
        return message[:, self.width :]

    def update(self, own, slots, reduced, num_targets=None, kind=None, **after: Any):
        messages = relation_linear(slots, reduced, self.message_kernel[...])
        summed = jax.nn.gelu(aggregate(slots.sums, messages, "sum"), approximate=False)
        num = summed.shape[0]
        bias = self.out_bias[...]
        out = self._by_type(kind, summed, self.out_kernel[...], bias, num_targets)
        gate = jax.nn.one_hot(kind[:num], self.num_types) @ jax.nn.sigmoid(self.skip[...])
        own = own[:num]
        if self.in_features != self.out_features:
            own = linear([own], [self.skip_kernel[...]], None, num_targets)
        out = out * gate[:, None] + own * (1 - gate)[:, None]
        return finish(out, num_targets, **after)

    def _by_type(self, kind: Any, x: Any, kernel: Any, bias: Any, num_rows: Any) -> jax.Array:
        if kind is None:
            raise InputError(
                "HGTConv must be told the types of its rows' nodes",
                "no kind",
                "Pass kind, as a GNN does from batch.schema.",
            )
        num = jnp.int32(x.shape[0]) if num_rows is None else num_rows
        return group_linear(kind[: x.shape[0]], x, kernel, bias, num)


class HGT(TypedStack, activation="none", dropout=0.2):
    """A stack of `HGTConv`, with a GELU after the inputs' projection and no activation but the
    layers' own between them. `dropout` is 0.2 by default.

    Args:
      heads: the number of heads of each layer.
    """

    inputs_activation = "gelu"

    @staticmethod
    def convs(
        sizes: Sizes, rngs: nnx.Rngs, schema: Schema, *, heads: Heads = 8
    ) -> list[HGTConv]:
        return [HGTConv(*width, schema, heads, rngs=rngs) for width in sizes.widths]
