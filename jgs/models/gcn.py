"""Graph convolution: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional
Networks" (2017), equation 2, in Flax NNX."""

from __future__ import annotations

from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.models.dense import Conv, check_widths, glorot
from jgs.models.gnn import Sizes, Stack
from jgs.models.sage import ConcatConv, SAGEConv
from jgs.ops import linear
from jgs.options import Option


class GCNConv(Conv):
    """One layer: `W [x_v / d̂_v + (d_v / sqrt(d̂_v)) mean(x_u / sqrt(d̂_u))] + b`.

    The mean is over the drawn neighbours `u` of `v`, `d` is a node's in-degree in the whole
    graph, and `d̂ = d + 1`. With all neighbours of a symmetric graph this is the paper's
    product with the adjacency matrix that has self-loops and is normalised on both sides. With
    neighbours drawn uniformly it is an unbiased estimate of that product. Weights are Glorot
    uniform with a gain of sqrt(2), and the bias is 0.

    Args:
      in_features, out_features: widths of the input and the output.

    A call needs the `degree`. Raises `InputError` for another width and for absent degrees.
    """

    projects_first = True  # a message is at least scaled, so it is never `x` itself
    uses_degrees = True

    def __init__(self, in_features: int, out_features: int, *, rngs: nnx.Rngs):
        check_widths(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.kernel = glorot(rngs, (in_features, out_features))
        self.bias = nnx.Param(jnp.zeros(out_features))

    @property
    def _narrows(self) -> bool:
        """Whether messages are multiplied by `W`, because the product's rows are narrower."""
        return self.in_features > self.out_features

    def message(self, x, num_sources=None, degree=None):
        """The rows to aggregate, `[S, min(in, out)]`."""
        if self._narrows:
            x = linear([x], [self.kernel[...]], None, num_sources)
        _, with_loop = _degrees(degree, x.shape[0])
        return x * jax.lax.rsqrt(with_loop)

    def update(self, own, aggregated, num_targets=None, degree=None, **after: Any):
        num_rows = aggregated.shape[0]
        degrees, with_loop = _degrees(degree, num_rows)
        own = own[:num_rows] / with_loop
        aggregated = aggregated * (degrees * jax.lax.rsqrt(with_loop))
        add = aggregated if self._narrows else None
        if add is None:
            own = own + aggregated
        kernels, bias = [self.kernel[...]], self.bias[...]
        return linear([own], kernels, bias, num_targets, add=add, **after)


def _degrees(degree: jax.Array | None, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """The in-degrees of the first `num_rows` rows, without and with a self-loop, each float32
    `[num_rows, 1]`. Raises `InputError` where `degree` is None or too short."""
    if degree is None:
        raise InputError(
            "GCNConv needs the in-degree of each row's node",
            None,
            "Pass degree=batch.degrees of batch.with_degrees(graph.degrees()).",
        )
    if degree.ndim != 1 or degree.shape[0] < num_rows:
        raise InputError(
            f"degree must have one number for each of {num_rows} rows",
            f"shape {list(degree.shape)}",
            "Give the in-degree of every row's node, padding included.",
        )
    degrees = jnp.maximum(degree[:num_rows, None], 0).astype(jnp.float32)
    return degrees, degrees + 1


class GCN(Stack):
    """A stack of `GCNConv`, which reads `batch.degrees`.

    Args:
      concat: True stacks `ConcatConv` instead, the convolution of gcn-ipdps19 for sampled
        subgraphs. It puts two products side by side, of a node's own row and of its neighbours'
        mean, each with weights of its own. The last layer, a `SAGEConv`, adds the two. These
        layers read no degrees.
    """

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        *,
        concat: Annotated[
            bool,
            Option("a node's own row and its neighbours' mean side by side, as in gcn-ipdps19"),
        ] = False,
    ) -> list[Any]:
        inner, outer = (ConcatConv, SAGEConv) if concat else (GCNConv, GCNConv)
        *hidden, last = sizes.widths
        return [*(inner(*width, rngs=rngs) for width in hidden), outer(*last, rngs=rngs)]
