"""Graph isomorphism network: Xu, Hu, Leskovec and Jegelka, "How Powerful are Graph Neural
Networks?" (2019), equation 4.1, without and with features of edges, in Flax NNX."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.models.dense import Conv, check_widths, glorot, zero_unless
from jgs.models.gnn import Sizes, Stack
from jgs.models.messages import EdgeOptions, ReadsEdges
from jgs.ops import linear


class GINConv(Conv):
    """One layer: `MLP((1 + eps) x_v + sum(x_u over v's neighbours u))`.

    The MLP is `W_2 relu(W_1 x + b_1) + b_2`. Weights are Glorot uniform with a gain of sqrt(2),
    and biases are 0.

    Args:
      in_features, out_features: widths of the input and the output.
      hidden_features: width of the MLP's hidden layer; None: `out_features`.
      eps: a node's own row has the weight `1 + eps`. If `train_eps`, this is its first value.
      train_eps: whether `eps` is a parameter (GIN-eps) or a constant (GIN-0 with `eps=0`).

    Raises `InputError` for other widths.
    """

    reduce, message_kernel = "sum", "hidden_kernel"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden_features: int | None = None,
        *,
        eps: float = 0.0,
        train_eps: bool = False,
        rngs: nnx.Rngs,
    ):
        hidden = out_features if hidden_features is None else hidden_features
        check_widths(in_features=in_features, out_features=out_features, hidden_features=hidden)
        self.in_features, self.out_features = in_features, out_features
        self.hidden_features = hidden
        self.hidden_kernel = glorot(rngs, (in_features, hidden))
        self.hidden_bias = nnx.Param(jnp.zeros(hidden))
        self.kernel = glorot(rngs, (hidden, out_features))
        self.bias = nnx.Param(jnp.zeros(out_features))
        self.eps = nnx.Param(jnp.float32(eps)) if train_eps else float(eps)

    @property
    def projects_first(self) -> bool:
        """Whether `message` multiplies by `W_1`: the product's rows are narrower."""
        return self.in_features > self.hidden_features

    def update(self, own, aggregated, num_targets=None, degree=None, **after: Any):
        eps = self.eps[...] if isinstance(self.eps, nnx.Param) else self.eps
        rows, add = jnp.arange(aggregated.shape[0]), None
        real = rows < (rows.size if num_targets is None else num_targets)
        # A NaN in padding would reach the gradient of eps.
        own = (1 + eps) * zero_unless(real, own)
        if self.projects_first:
            add = aggregated
        else:
            own = own + aggregated
        kernel, bias = self.hidden_kernel[...], self.hidden_bias[...]
        hidden = linear([own], [kernel], bias, num_targets, add=add, relu=True)
        kernel, bias = self.kernel[...], self.bias[...]
        return linear([hidden], [kernel], bias, num_targets, **after)


class GINEConv(ReadsEdges, GINConv):
    """One layer of Hu et al., "Strategies for Pre-training Graph Neural Networks" (2020), in
    the form that PyG calls `GINEConv`: `MLP((1 + eps) x_v + sum(relu(x_u + W_edge e +
    b_edge)))`. The sum is over `v`'s neighbours `u`, and `e` are the features of the edge from
    `u` to `v`.

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
        eps: float = 0.0,
        train_eps: bool = False,
        rngs: nnx.Rngs,
        **edges: Unpack[EdgeOptions],
    ):
        own: dict[str, Any] = {"eps": eps, "train_eps": train_eps, "rngs": rngs}
        super().__init__(in_features, out_features, hidden_features, **own)
        self.reads(**edges)
        check_widths(edge_width=self.edge_width)
        self.message_width = in_features
        self.edge_kernel = glorot(rngs, (self.edge_width, in_features))
        self.edge_bias = nnx.Param(jnp.zeros(in_features))

    def edge_message(self, message: jax.Array, edge: dict[str, jax.Array]) -> jax.Array:
        """`relu(x_u + W_edge e + b_edge)`, `[n, in]`."""
        kernels, bias = [self.edge_kernel[...]], self.edge_bias[...]
        return linear([self.of_edges(edge)], kernels, bias, add=message, relu=True)


class GIN(Stack):
    """A stack of `GINConv`; `eps` and `train_eps` are arguments of these layers.

    With `edge_columns` it is one of `GINEConv`, whose `edge_columns`, `edge_width` and
    `edge_scales` these are.
    """

    @staticmethod
    def convs(
        sizes: Sizes,
        rngs: nnx.Rngs,
        *,
        eps: float = 0.0,
        train_eps: bool = False,
        **edges: Unpack[EdgeOptions],
    ) -> list[GINConv]:
        own: dict[str, Any] = {"hidden_features": sizes.hidden_features, "rngs": rngs}
        own |= {"eps": eps, "train_eps": train_eps}
        if not edges.get("edge_columns"):
            return [GINConv(*width, **own) for width in sizes.widths]
        return [GINEConv(*width, **own, **edges) for width in sizes.widths]
