"""Graph attention: Veličković et al., "Graph Attention Networks" (2018), and Brody, Alon and
Yahav, "How Attentive are Graph Attention Networks?" (2022), in Flax NNX."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block
from jgs.models import parts
from jgs.models.gnn import Heads, Sizes, Stack
from jgs.ops import aggregate, edge_dot, edge_mask, edge_scores, edge_softmax, gather, linear
from jgs.ops.attention import leaky_scores
from jgs.ops.linear import Mask, finish


class GATConv(parts.ReadsEdges, nnx.Module):
    """One layer: for each head the mean of `W x_u` over `v`'s neighbours `u`, plus a bias.

    The mean is weighted by attention: a softmax over `u`, head by head, of

    - version 1: `LeakyReLU(a_source . W x_u + a_target . W x_v + a_edge . W_edge e)`; - version
    2: `a . LeakyReLU(W x_u + W_target x_v + W_edge e)`.

    Here `e` are the features of the edge from `u` to `v`; without `edge_columns` the last terms
    are left out. Matrices and attention vectors are Glorot uniform with a gain of sqrt(2), and
    the bias is 0.

    Args:
      in_features, out_features: widths of the input and the output. Concatenated heads share
        `out_features`: each has `out_features / num_heads` units.
      num_heads: the number of heads.
      concat: True concatenates the heads, as in hidden layers. False averages them, as in the
        last layer; each head then has `out_features` units.
      version: 1 or 2.
      negative_slope: slope of the LeakyReLU below 0.
      self_loops: whether each node is one more neighbour of itself. This edge has no features:
        its `W_edge e` is 0. (In PyG it has the mean of the features of the edges into `v`.)
      edge_columns: the names of the edge columns that together are `e`, as a sampler is asked
        for them: `Neighbors(..., edges=("dist",))`.
      edge_width: how many numbers they hold for each edge.
      edge_scales: pairs (mean, factor), one for each of these numbers: `e` is `(number - mean)
        * factor`. (): `e` are the numbers.

    It is an `AttentionLayer`. Raises `InputError` for another width, version or number of
    heads, and where the block lacks an edge column.
    """

    reduce = "attention"
    projects_first, edge_values = True, False
    uses_degrees, takes_inputs = False, False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_heads: int = 1,
        *,
        concat: bool = True,
        version: int = 1,
        negative_slope: float = 0.2,
        self_loops: bool = True,
        rngs: nnx.Rngs,
        **edges: Unpack[parts.EdgeOptions],
    ):
        parts.check_widths(in_features=in_features, out_features=out_features)
        parts.check_heads(num_heads, **({"out_features": out_features} if concat else {}))
        if version not in (1, 2):
            raise InputError("version must be 1 or 2", version, "1 is GAT, 2 is GATv2.")
        self.in_features, self.out_features = in_features, out_features
        self.num_heads, self.negative_slope = num_heads, negative_slope
        self.concat, self.version, self.self_loops = concat, version, self_loops
        head_width = out_features // num_heads if concat else out_features
        width = num_heads * head_width
        self.kernel = parts.glorot(rngs, (in_features, width))
        if version == 1:
            self.source_attention = parts.glorot(rngs, (num_heads, head_width))
            self.target_attention = parts.glorot(rngs, (num_heads, head_width))
        else:
            self.target_kernel = parts.glorot(rngs, (in_features, width))
            self.attention = parts.glorot(rngs, (num_heads, head_width))
        self.bias = nnx.Param(jnp.zeros(out_features))
        self.reads(**edges)
        if self.edge_columns:
            self.edge_kernel = parts.glorot(rngs, (self.edge_width, width))
            if version == 1:
                self.edge_attention = parts.glorot(rngs, (num_heads, head_width))

    def __call__(
        self, block: Block, x: Any, real=None, *, degree=None, attention_drop=None, **after: Any
    ) -> jax.Array:
        parts.check_width(x, self.in_features)
        x, num = parts.zero_unless(real, x), block.target_capacity
        values = linear([x], [self.kernel[...]], None, block.num_sources)
        edge = parts.read_edges(self, block)
        if self.version == 1:
            # s + t is the dot product of (s, 1), of the source, and (1, t), of the target.
            attentions = self.source_attention[...], self.target_attention[...]
            kernels = [_scores_kernel(self.kernel[...], a) for a in attentions]
            both = linear([x], [jnp.hstack(kernels)], None, block.num_sources)
            source, target = jnp.split(both, 2, axis=1)
            target = target[:num]
            pairs = (beside_ones(source, 0), beside_ones(target, 1))
            logits = edge_dot(block, *pairs, self.num_heads)
            logits = self._leaky(logits + self._of_edge(edge) if edge else logits)
            own_logits = self._leaky(source[:num] + target)
        else:
            target = self.query(x[:num], block.num_targets)
            attention = self.attention[...]
            sources, rows = block, values
            if edge:  # each edge is a source of its own
                rows = gather(values, block.indices) + self._of_edge(edge)
                sources, rows = parts.by_edge(block), parts.padded_edges(block, rows)
            logits = edge_scores(sources, rows, target, attention, self.negative_slope)
            own_logits = self.scores(values[:num], target)
        if self.self_loops:
            weights, own_weights = edge_softmax(block, logits, own_logits)
        else:
            weights, own_weights = edge_softmax(block, logits), jnp.zeros_like(own_logits)
        if attention_drop is not None:
            weights = dropped(weights, edge_mask(block, attention_drop))
            own_weights = dropped(own_weights, attention_drop)
        aggregated = aggregate(block, values, "sum", weights)
        if self.self_loops:
            aggregated += jnp.repeat(own_weights, self._head_width, axis=1) * values[:num]
        return self.update(x, aggregated, block.num_targets, **after)

    def message(self, x, num_sources=None, degree=None):
        """`[S, M]`: the values `W x` `[S, H * D]`. In version 1 the source's part of the logits
        `[S, H]` follows them."""
        kernel = self.kernel[...]
        if self.version == 1:
            kernel = jnp.hstack([kernel, _scores_kernel(kernel, self.source_attention[...])])
        return linear([x], [kernel], None, num_sources)

    def query(self, own, num_targets=None):
        """The targets' part of the logits `[T, H]` in version 1, `W_target own` `[T, H * D]` in
        version 2."""
        if self.version == 1:
            kernel = _scores_kernel(self.kernel[...], self.target_attention[...])
        else:
            kernel = self.target_kernel[...]
        return linear([own], [kernel], None, num_targets)

    def scores(self, message, query, edge=None):
        query = query + self._of_edge(edge) if edge else query
        if self.version == 1:
            return self._leaky(message[:, -self.num_heads :] + query)
        return leaky_scores(message + query, self.attention[...], self.negative_slope)

    def values(self, message):
        return message[:, : self.num_heads * self._head_width]

    def update(self, own, aggregated, num_targets=None, degree=None, **after: Any):
        """The output `[T, out]`, from the weighted sums of the values `[T, H * D]`; `own` is
        not read."""
        if not self.concat:
            aggregated = aggregated.reshape(-1, self.num_heads, self._head_width).mean(1)
        return finish(aggregated + self.bias[...][None], num_targets, **after)

    @property
    def _head_width(self) -> int:
        return self.out_features // self.num_heads if self.concat else self.out_features

    def _of_edge(self, edge: dict[str, jax.Array]) -> jax.Array:
        """What the edges add inside the LeakyReLU: `[n, H]`, in version 2 `[n, H * D]`."""
        kernel = self.edge_kernel[...]
        if self.version == 1:
            kernel = _scores_kernel(kernel, self.edge_attention[...])
        return linear([self.of_edges(edge)], [kernel])

    def _leaky(self, logits: jax.Array) -> jax.Array:
        return jax.nn.leaky_relu(logits, self.negative_slope)


def _scores_kernel(kernel: jax.Array, attention: jax.Array) -> jax.Array:
    """The matrix `[in, H]` that turns `x` into `attention . W x` of each head; `kernel` is `W`
    `[in, H * D]`."""
    return jnp.sum(kernel.reshape(-1, *attention.shape) * attention[None], axis=-1)


def beside_ones(numbers: jax.Array, place: int) -> jax.Array:
    """`[n, 2 * H]` from `[n, H]`: each number becomes a pair, with itself at `place` (0 or 1)
    and 1 at the other place."""
    pair = [numbers, jnp.ones_like(numbers)]
    return jnp.stack(pair if place == 0 else pair[::-1], axis=-1).reshape(
        numbers.shape[0], 2 * numbers.shape[1]
    )


def dropped(weights: jax.Array, mask: Mask) -> jax.Array:
    """`weights`, with 0 where `mask` drops them. The first rows of `mask` are read."""
    rows, num_heads = weights.shape
    return jnp.where(mask.keep(num_heads)[:rows], weights * mask.scale, 0)


class GAT(Stack, activation="elu", attention_dropout=None):
    """A stack of `GATConv`, with ELU between the layers.

    Args:
      hidden_features: the width of all heads of a hidden layer together.
      heads: the number of heads of each hidden layer, which are concatenated.
      out_heads: the number of heads of the last layer, which are averaged.
      version: 1, or 2 for GATv2.
      attention_dropout: rate on the attention weights; by default `dropout`'s, as in the paper.
      edge_columns, edge_width, edge_scales: what the layers read of edges, as of `GATConv`.
    """

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        *,
        heads: Heads = 8,
        out_heads: int = 1,
        version: int = 1,
        **edges: Unpack[parts.EdgeOptions],
    ) -> list[GATConv]:
        make = partial(GATConv, version=version, rngs=rngs, **edges)
        *hidden, last = sizes.widths
        layers = [make(*width, heads) for width in hidden]
        return [*layers, make(*last, out_heads, concat=False)]


GATv2 = partial(GAT, version=2)
