"""Models of edges with times, in Flax NNX. Temporal graph attention: Xu et al., "Inductive
Representation Learning on Temporal Graphs" (ICLR 2020). A model of the latest edges: Cong et
al., "Do We Really Need Complicated Model Architectures For Temporal Networks?" (GraphMixer,
ICLR 2023)."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block
from jgs.kernels.call import FILL
from jgs.models import parts
from jgs.models.gat import dropped
from jgs.models.gnn import Heads, Sizes, Stack
from jgs.ops import aggregate, edge_dot, edge_mask, edge_softmax, gather, linear
from jgs.ops.linear import finish
from jgs.options import Option
from jgs.settings import usual_promotion


class TGATConv(parts.ReadsEdges, nnx.Module):
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
        **edges: Unpack[parts.EdgeOptions],
    ):
        width = out_features if attention_features is None else attention_features
        parts.check_widths(in_features=in_features, out_features=out_features)
        parts.check_widths(attention_features=width)
        parts.check_heads(num_heads, attention_features=width)
        self.in_features, self.out_features = in_features, out_features
        self.num_heads, self.attention_features = num_heads, width
        self.reads(parts.ELAPSED, **edges)
        self.time = parts.TimeEncoding(time_width, unit=time_unit)
        self.query_kernel = parts.glorot(rngs, (in_features + time_width, width))
        self.kernel = parts.glorot(rngs, (in_features, 2 * width))  # of keys and values
        self.time_kernel = parts.glorot(rngs, (time_width, 2 * width))
        if self.features:
            self.edge_kernel = parts.glorot(rngs, (self.edge_width, 2 * width))
        self.inner_kernel = parts.glorot(rngs, (width + in_features, width))
        self.inner_bias = nnx.Param(jnp.zeros(width))
        self.outer_kernel = parts.glorot(rngs, (width, out_features))
        self.outer_bias = nnx.Param(jnp.zeros(out_features))

    def __call__(
        self, block: Block, x: Any, real=None, *, degree=None, attention_drop=None, **after: Any
    ) -> jax.Array:
        parts.check_width(x, self.in_features)
        x = parts.zero_unless(real, x)
        message = self.message(x, block.num_sources)
        rows = self.edge_message(gather(message, block.indices), parts.read_edges(self, block))
        edges, rows = parts.by_edge(block), parts.padded_edges(block, rows)
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
        inputs, kernels = [self.time(edge[parts.ELAPSED])], [self.time_kernel[...]]
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
        time_width: parts.TimeWidth = 100,
        time_unit: parts.TimeUnit = 1.0,
        **edges: Unpack[parts.EdgeOptions],
    ) -> list[TGATConv]:
        own: dict[str, Any] = {"attention_features": sizes.hidden_features, "rngs": rngs}
        own |= {"time_width": time_width, "time_unit": time_unit, **edges}
        return [TGATConv(*width, heads, **own) for width in sizes.widths]


NumLatest = Annotated[
    int, Option("how many of a node's latest edges are mixed", least=1, most=1 << 12)
]


class MixerConv(parts.ReadsEdges, nnx.Module):
    """One layer: an MLP-Mixer over the latest edges of each node, beside a mean of neighbours.

    The *link encoder* (section 3.1) makes a token of each of the `K` latest edges of a node: `W
    [phi(t), e, x_u]`, where `t` is the time from the edge to the cutoff, `phi` the encoding
    with fixed frequencies, `e` the features of the edge and `x_u` the row of its source. (The
    paper's tokens have no `x_u`.) A node with fewer edges has tokens of zeros before them. Each
    of `depth` blocks adds to the tokens an MLP over the `K` places, and then one over the
    units, each after a LayerNorm. The tokens' mean is put beside `x_v + mean(x_u)`, the *node
    encoder* (section 3.2), and a matrix makes the output of both.

    Args:
      in_features, out_features: widths of the input and the output.
      num_latest: `K`. A block's rows have at most `K` edges; of a longer row the last `K` are
        mixed. The sampler is `Neighbors((K,), latest=True, edges=conv.edge_columns)`.
      hidden_features: the width of a token. None: `out_features`.
      depth: the number of blocks.
      time_width, time_unit: `width` and `unit` of the `TimeEncoding`.
      edge_columns, edge_width, edge_scales: as of `TGATConv`.

    It depends on the order of a node's edges, so it has no messages of its own, and is
    evaluated by sampled batches.
    """

    reduce = "sum"
    projects_first = uses_degrees = takes_inputs = False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_latest: int,
        *,
        hidden_features: int | None = None,
        depth: int = 2,
        time_width: int = 100,
        time_unit: float = 1.0,
        rngs: nnx.Rngs,
        **edges: Unpack[parts.EdgeOptions],
    ):
        width = out_features if hidden_features is None else hidden_features
        parts.check_widths(
            in_features=in_features, out_features=out_features, num_latest=num_latest
        )
        parts.check_widths(hidden_features=width, depth=depth)
        self.in_features, self.out_features = in_features, out_features
        self.num_latest, self.hidden_features = num_latest, width
        self.reads(parts.ELAPSED, **edges)
        self.time = parts.TimeEncoding(time_width, unit=time_unit, learned=False)
        self.token_kernel = parts.glorot(
            rngs, (time_width + self.edge_width + in_features, width)
        )
        self.token_bias = nnx.Param(jnp.zeros(width))
        self.mixers = nnx.List([_Mixer(num_latest, width, rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.out_kernel = parts.glorot(rngs, (width + in_features, out_features))
        self.out_bias = nnx.Param(jnp.zeros(out_features))

    @usual_promotion()
    def __call__(self, block: Block, x: Any, real=None, *, degree=None, **after: Any):
        parts.check_width(x, self.in_features)
        x, num = parts.zero_unless(real, x), block.target_capacity
        edge = parts.read_edges(self, block)
        of_source = gather(x, block.indices)
        inputs = [self.time(edge[parts.ELAPSED])]
        if self.features:
            inputs.append(self.of_edges(edge))
        token = jnp.hstack([*inputs, of_source]) @ self.token_kernel[...] + self.token_bias[...]
        if not token.shape[0]:  # an empty array cannot be indexed
            token = jnp.zeros((1, token.shape[1]), token.dtype)
        # Slot K - 1 has the latest edge of each target.
        place = block.indptr[1:, None] - self.num_latest + jnp.arange(self.num_latest)
        held = place >= block.indptr[:-1, None]
        tokens = token.at[jnp.maximum(place, 0)].get(**FILL)
        tokens = jnp.where(held[..., None], tokens, 0)
        for mixer in self.mixers:
            tokens = mixer(tokens)
        mixed = self.norm(tokens).mean(1)
        near = x[:num] + aggregate(block, x, "mean")
        first, second = jnp.split(self.out_kernel[...], [self.hidden_features])
        kernels, bias = [first, second], self.out_bias[...]
        out = linear([mixed, near], kernels, bias, block.num_targets)
        return finish(out, block.num_targets, **after) if after else out

    def message(self, *args: Any, **options: Any) -> jax.Array:
        """Raises `InputError`: see the class."""
        raise InputError(
            "a MixerConv must be given blocks: it mixes a node's edges in their order",
            "a layer-wise evaluation",
            "Evaluate by sampled batches, as jgs train --temporal does.",
        )

    update = message


class _Mixer(nnx.Module):
    """One block of the MLP-Mixer (Tolstikhin et al. 2021), on tokens `[T, K, C]`."""

    def __init__(self, num: int, width: int, rngs: nnx.Rngs):
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        inner = max(num // 2, 1)
        self.places = _mlp(num, inner, rngs)
        self.units = _mlp(width, 4 * width, rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        across = self.norms[0](tokens).swapaxes(1, 2)
        tokens = tokens + self.places(across).swapaxes(1, 2)
        return tokens + self.units(self.norms[1](tokens))


def _mlp(width: int, inner: int, rngs: nnx.Rngs) -> nnx.Sequential:
    first, second = nnx.Linear(width, inner, rngs=rngs), nnx.Linear(inner, width, rngs=rngs)
    return nnx.Sequential(first, nnx.gelu, second)


class Mixer(Stack):
    """A GraphMixer: one `MixerConv` over the latest edges of each seed.

    Its own arguments are those of `MixerConv`, and the others those of a `GNN` and its stacks.
    Raises `InputError` for several layers.
    """

    timed = True

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        num_layers: int = 1,
        *,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        sizes = Sizes(in_features, hidden_features, out_features, num_layers)
        super().__init__(*sizes, rngs=rngs, **options)

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        *,
        num_latest: NumLatest = 20,
        depth: int = 2,
        time_width: parts.TimeWidth = 100,
        time_unit: parts.TimeUnit = 1.0,
        **edges: Unpack[parts.EdgeOptions],
    ) -> list[MixerConv]:
        if sizes.num_layers != 1:
            raise InputError(
                "a Mixer must have one layer, of the latest edges of each seed",
                f"{sizes.num_layers} layers",
                f"Give one fanout, e.g. --fanouts {num_latest} --latest.",
            )
        layer = MixerConv(
            sizes.in_features,
            sizes.out_features,
            num_latest,
            hidden_features=sizes.hidden_features,
            depth=depth,
            time_width=time_width,
            time_unit=time_unit,
            rngs=rngs,
            **edges,
        )
        return [layer]
