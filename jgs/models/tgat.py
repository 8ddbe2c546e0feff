"""Temporal graph attention: Xu et al., "Inductive Representation Learning on Temporal Graphs"
(ICLR 2020), in Flax NNX."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.graph import Block
from jgs.models.dense import (
    ELAPSED,
    TimeEncoding,
    TimeUnit,
    TimeWidth,
    check_heads,
    check_width,
    check_widths,
    glorot,
    zero_unless,
)
from jgs.models.gat import dropped
from jgs.models.gnn import Heads, Sizes, Stack
from jgs.models.messages import EdgeOptions, ReadsEdges, by_edge, padded_edges, read_edges
from jgs.ops import aggregate, edge_dot, edge_mask, edge_softmax, gather, linear


class TGATConv(ReadsEdges, nnx.Module):
    """One layer of TGAT (section 3.3): an attention over neighbours that sees when each edge
    was.

    For each head, the queries of node `v`, and the keys and values of the edge from `u`, are

        q = W_q [x_v, phi(0)]      k = W_k [x_u, phi(t), e]      v = W_v [x_u, phi(t), e]

    where `t` is the time from the edge to the cutoff of `v`, `e` the features of the edge and
    `phi` a `TimeEncoding`. The softmax of `q . k / sqrt(D)` over the edges into `v` weighs the
    values. The output is `W_2 relu(W_1 [values, x_v] + b_1) + b_2`. (The paper puts the first
    layer's `x_v` there in every layer.) Matrices are Glorot uniform with a gain of sqrt(2).

    Args:
      in_features, out_features: widths of the input and the output.
      num_heads: the number of heads; `attention_features` is a multiple of it.
      attention_features: the width of all heads together, and that of the `relu`. None:
        `out_features`.
      time_width, time_unit: `width` and `unit` of the `TimeEncoding`.
      edge_columns, edge_width, edge_scales: `e`, beside `"elapsed"`, as of `GATConv`.

    It is an `AttentionLayer` with `edge_values`. The sampler is asked for
    `edges=conv.edge_columns`, and its seeds have times. Raises `InputError` for other widths or
    heads, and where the block lacks a column.
    """

    reduce = "attention"
    projects_first = edge_values = True
    uses_degrees = takes_inputs = self_loops = False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_heads: int = 2,
        *,
        attention_features: int | None = None,
        time_width: int = 100,
        time_unit: float = 1.0,
        rngs: nnx.Rngs,
        **edges: Unpack[EdgeOptions],
    ):
        width = out_features if attention_features is None else attention_features
        check_widths(in_features=in_features, out_features=out_features)
        check_widths(attention_features=width)
        check_heads(num_heads, attention_features=width)
        self.in_features, self.out_features = in_features, out_features
        self.num_heads, self.attention_features = num_heads, width
        self.reads(ELAPSED, **edges)
        self.time = TimeEncoding(time_width, unit=time_unit)
        self.query_kernel = glorot(rngs, (in_features + time_width, width))
        self.kernel = glorot(rngs, (in_features, 2 * width))  # of keys and values
        self.time_kernel = glorot(rngs, (time_width, 2 * width))
        if self.features:
            self.edge_kernel = glorot(rngs, (self.edge_width, 2 * width))
        self.inner_kernel = glorot(rngs, (width + in_features, width))
        self.inner_bias = nnx.Param(jnp.zeros(width))
        self.outer_kernel = glorot(rngs, (width, out_features))
        self.outer_bias = nnx.Param(jnp.zeros(out_features))

    def __call__(
        self, block: Block, x: Any, real=None, *, degree=None, attention_drop=None, **after: Any
    ) -> jax.Array:
        check_width(x, self.in_features)
        x = zero_unless(real, x)
        message = self.message(x, block.num_sources)
        rows = self.edge_message(gather(message, block.indices), read_edges(self, block))
        edges, rows = by_edge(block), padded_edges(block, rows)
        query = self.query(x[: block.target_capacity], block.num_targets)
        keys = rows[:, : self.attention_features]
        weights = edge_softmax(block, edge_dot(edges, keys, query, self.num_heads))
        if attention_drop is not None:
            weights = dropped(weights, edge_mask(block, attention_drop))
        aggregated = aggregate(edges, self.values(rows), "sum", weights)
        return self.update(x, aggregated, block.num_targets, **after)

    def message(self, x, num_sources=None, degree=None):
        """`[S, 2 * H * D]`: what each source adds to the keys and values of its edges."""
        return linear([x], [self.kernel[...]], None, num_sources)

    def edge_message(self, message, edge):
        """`[n, 2 * H * D]`: the keys and values of edges."""
        inputs, kernels = [self.time(edge[ELAPSED])], [self.time_kernel[...]]
        if self.features:
            inputs.append(self.of_edges(edge))
            kernels.append(self.edge_kernel[...])
        return linear(inputs, kernels, add=message)

    def query(self, own, num_targets=None):
        """`[T, H * D]`: the queries, divided by `sqrt(D)`."""
        kernel = self.query_kernel[...]
        now = self.time(jnp.zeros(1)) @ kernel[self.in_features :]
        bias = now[0] / self._root
        return linear([own], [kernel[: self.in_features] / self._root], bias, num_targets)

    def scores(self, message, query, edge=None):
        products = message[:, : self.attention_features] * query
        return products.reshape(-1, self.num_heads, self._head_width).sum(-1)

    def values(self, message):
        return message[:, self.attention_features :]

    def update(self, own, aggregated, num_targets=None, degree=None, **after: Any):
        first, second = jnp.split(self.inner_kernel[...], [self.attention_features])
        both, bias = [aggregated, own], self.inner_bias[...]
        inner = linear(both, [first, second], bias, num_targets, relu=True)
        kernels, bias = [self.outer_kernel[...]], self.outer_bias[...]
        return linear([inner], kernels, bias, num_targets, **after)

    @property
    def _head_width(self) -> int:
        return self.attention_features // self.num_heads

    @property
    def _root(self) -> float:
        return float(self._head_width) ** 0.5


class TGAT(Stack, activation="none"):
    """A stack of `TGATConv` with `heads` heads each, and by default no activation between them.
    Other arguments are those of `TGATConv`, and of a `GNN` and its stacks."""

    timed = True

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        *,
        heads: Heads = 2,
        time_width: TimeWidth = 100,
        time_unit: TimeUnit = 1.0,
        **edges: Unpack[EdgeOptions],
    ) -> list[TGATConv]:
        own: dict[str, Any] = {"attention_features": sizes.hidden_features, "rngs": rngs}
        own |= {"time_width": time_width, "time_unit": time_unit, **edges}
        return [TGATConv(*width, heads, **own) for width in sizes.widths]
