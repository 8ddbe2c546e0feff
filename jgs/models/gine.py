"""Graph isomorphism network with edge features: Hu et al., "Strategies for Pre-training Graph
Neural Networks" (2020), in the form that PyG calls `GINEConv`, in Flax NNX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.models.dense import check_widths, glorot
from jgs.models.edges import EdgeScales, ReadsEdges
from jgs.models.gin import GINConv
from jgs.ops import linear


class GINEConv(ReadsEdges, GINConv):
    """One layer: `MLP((1 + eps) x_v + sum(relu(x_u + W_edge e + b_edge)))`. The sum is over
    `v`'s neighbours `u`, and `e` are the features of the edge from `u` to `v`.

    The MLP, `eps` and the other arguments are those of `GINConv`. `W_edge` is Glorot uniform
    with a gain of sqrt(2), and `b_edge` is 0.

    Args:
      edge_columns, edge_width, edge_scales: `e`, as of `GATConv`.

    It is an `EdgeLayer`. Raises `InputError` where a column is missing or has another width.
    """

    projects_first = False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden_features: int | None = None,
        *,
        edge_columns: tuple[str, ...],
        edge_width: int,
        edge_scales: EdgeScales = (),
        eps: float = 0.0,
        train_eps: bool = False,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            in_features, out_features, hidden_features, eps=eps, train_eps=train_eps, rngs=rngs
        )
        check_widths(edge_width=edge_width)
        self.reads(edge_columns, edge_width, edge_scales)
        self.message_width = in_features
        self.edge_kernel = glorot(rngs, (edge_width, in_features))
        self.edge_bias = nnx.Param(jnp.zeros(in_features))

    def edge_message(self, message: jax.Array, edge: dict[str, jax.Array]) -> jax.Array:
        """`relu(x_u + W_edge e + b_edge)`, `[n, in]`."""
        kernels, bias = [self.edge_kernel[...]], self.edge_bias[...]
        return linear([self.of_edges(edge)], kernels, bias, add=message, relu=True)
