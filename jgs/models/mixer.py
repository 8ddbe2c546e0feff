"""A model of the latest edges: Cong et al., "Do We Really Need Complicated Model Architectures
For Temporal Networks?" (GraphMixer, ICLR 2023), in Flax NNX."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block
from jgs.kernels.call import FILL
from jgs.models.dense import (
    ELAPSED,
    TimeEncoding,
    TimeUnit,
    TimeWidth,
    check_width,
    check_widths,
    glorot,
    zero_unless,
)
from jgs.models.gnn import Sizes, Stack
from jgs.models.messages import EdgeOptions, ReadsEdges, read_edges
from jgs.ops import aggregate, gather, linear
from jgs.ops.linear import finish
from jgs.options import Option
from jgs.settings import usual_promotion

NumLatest = Annotated[
    int, Option("how many of a node's latest edges are mixed", least=1, most=1 << 12)
]


class MixerConv(ReadsEdges, nnx.Module):
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
        **edges: Unpack[EdgeOptions],
    ):
        width = out_features if hidden_features is None else hidden_features
        check_widths(in_features=in_features, out_features=out_features, num_latest=num_latest)
        check_widths(hidden_features=width, depth=depth)
        self.in_features, self.out_features = in_features, out_features
        self.num_latest, self.hidden_features = num_latest, width
        self.reads(ELAPSED, **edges)
        self.time = TimeEncoding(time_width, unit=time_unit, learned=False)
        self.token_kernel = glorot(rngs, (time_width + self.edge_width + in_features, width))
        self.token_bias = nnx.Param(jnp.zeros(width))
        self.mixers = nnx.List([_Mixer(num_latest, width, rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.out_kernel = glorot(rngs, (width + in_features, out_features))
        self.out_bias = nnx.Param(jnp.zeros(out_features))

    @usual_promotion()
    def __call__(self, block: Block, x: Any, real=None, *, degree=None, **after: Any):
        check_width(x, self.in_features)
        x, num = zero_unless(real, x), block.target_capacity
        edge = read_edges(self, block)
        of_source = gather(x, block.indices)
        inputs = [self.time(edge[ELAPSED])]
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
        time_width: TimeWidth = 100,
        time_unit: TimeUnit = 1.0,
        **edges: Unpack[EdgeOptions],
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
