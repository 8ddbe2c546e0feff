"""Convolutions and their stacks, in Flax NNX.

GraphSAGE: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs"
(2017), Algorithm 2. The convolution of gcn-ipdps19: Zeng et al., "Accurate, Efficient and
Scalable Graph Embedding" (IPDPS 2019), section II and Algorithm 1. Graph convolution: Kipf and
Welling, "Semi-Supervised Classification with Graph Convolutional Networks" (2017), equation 2.
Graph isomorphism network: Xu, Hu, Leskovec and Jegelka, "How Powerful are Graph Neural
Networks?" (2019), equation 4.1, without and with features of edges.
"""

from __future__ import annotations

from typing import Annotated, Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block
from jgs.models import parts
from jgs.models.gnn import Reduce, Sizes, Stack
from jgs.models.inputs import Inputs
from jgs.ops import linear
from jgs.ops.checks import check_reduce
from jgs.options import Option


class SAGEConv(parts.Conv):
    """One layer: `W_self x_v + W_neigh reduce(x_u over v's neighbours u) + b`.

    This is the paper's `W [x_v ; aggregated]` written as two matrices. Weights
    are Glorot uniform with a gain of sqrt(2), as in DGL's `SAGEConv`, and the bias is 0.

    Args:
      in_features, out_features: widths of the input and the output.
      reduce: `"mean"`, `"sum"` or `"max"`, as in `jgs.ops.aggregate`.

    In a call `x` may also be `Inputs`, which give the same result to rounding without the
    sources' rows. Raises `InputError` for another width or an unknown `reduce`.
    """

    takes_inputs = True

    def __init__(
        self, in_features: int, out_features: int, *, reduce: str = "mean", rngs: nnx.Rngs
    ):
        check_reduce(reduce)
        parts.check_widths(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features, self.reduce = in_features, out_features, reduce
        self.self_kernel = parts.glorot(rngs, (in_features, out_features))
        self.neighbor_kernel = parts.glorot(rngs, (in_features, out_features))
        self.bias = nnx.Param(jnp.zeros(out_features))

    @property
    def projects_first(self) -> bool:
        """Whether `message` multiplies by `W_neigh`, because the product's rows are narrower.

        Sums and means commute with the product; a maximum does not.
        """
        return self.reduce != "max" and self.in_features > self.out_features

    def __call__(self, block: Block, x: Any, real=None, **after: Any):
        if not isinstance(x, Inputs):
            return super().__call__(block, x, real, **after)
        for rows in x:
            parts.check_width(rows, self.in_features)
        kernels = [self.self_kernel[...], self.neighbor_kernel[...]]
        after.pop("degree", None)
        return linear(x, kernels, self.bias[...], block.num_targets, **after)

    def update(self, own, aggregated, num_targets=None, degree=None, **after: Any):
        kernels = [self.self_kernel[...], self.neighbor_kernel[...]]
        inputs, add = [own, aggregated], None
        if self.projects_first:
            inputs, kernels, add = [own], kernels[:1], aggregated
        bias = self.bias[...]
        return linear(inputs, kernels, bias, num_targets, add=add, **after)


class GraphSAGE(Stack):
    """A stack of `SAGEConv`; `reduce` is the argument of these layers."""

    @staticmethod
    def convs(sizes: Sizes, rngs: nnx.Rngs, *, reduce: Reduce = "mean") -> list[SAGEConv]:
        return [SAGEConv(*width, reduce=reduce, rngs=rngs) for width in sizes.widths]


class ConcatConv(parts.Conv):
    """One layer: `[W_self x_v ; W_neigh mean(x_u over v's neighbours u)] + b`, the two products
    side by side. (`SAGEConv` adds the two products.)

    The first `ceil(out / 2)` columns are the node's own product. Weights are Glorot uniform
    with a gain of sqrt(2), and the bias is 0.

    Args:
      in_features, out_features: widths of the input and the output; `out_features` is at
        least 2.

    Raises `InputError` for other widths.
    """

    def __init__(self, in_features: int, out_features: int, *, rngs: nnx.Rngs):
        parts.check_widths(in_features=in_features, out_features=out_features)
        if out_features < 2:
            raise InputError(
                "out_features must be at least 2, a column for each half",
                out_features,
                "Give a larger width.",
            )
        self.in_features, self.out_features = in_features, out_features
        self.self_kernel = parts.glorot(rngs, (in_features, out_features - out_features // 2))
        self.neighbor_kernel = parts.glorot(rngs, (in_features, out_features // 2))
        self.bias = nnx.Param(jnp.zeros(out_features))

    @property
    def projects_first(self) -> bool:
        """Whether `message` multiplies by `W_neigh`: the product's rows are narrower."""
        return self.in_features > self.neighbor_kernel.shape[1]

    def update(self, own, aggregated, num_targets=None, degree=None, **after: Any):
        # One product with columns of zeros: its sums do not depend on XLA's threads.
        neighbors = self.neighbor_kernel.shape[1]
        own_kernel = jnp.pad(self.self_kernel[...], ((0, 0), (0, neighbors)))
        before = ((0, 0), (self.out_features - neighbors, 0))
        inputs, kernels, add = [own], [own_kernel], None
        if self.projects_first:
            add = jnp.pad(aggregated, before)
        else:
            inputs = [own, aggregated]
            kernels = [own_kernel, jnp.pad(self.neighbor_kernel[...], before)]
        bias = self.bias[...]
        return linear(inputs, kernels, bias, num_targets, add=add, **after)


class GCNConv(parts.Conv):
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
        parts.check_widths(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.kernel = parts.glorot(rngs, (in_features, out_features))
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


class GINConv(parts.Conv):
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
        parts.check_widths(
            in_features=in_features, out_features=out_features, hidden_features=hidden
        )
        self.in_features, self.out_features = in_features, out_features
        self.hidden_features = hidden
        self.hidden_kernel = parts.glorot(rngs, (in_features, hidden))
        self.hidden_bias = nnx.Param(jnp.zeros(hidden))
        self.kernel = parts.glorot(rngs, (hidden, out_features))
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
        own = (1 + eps) * parts.zero_unless(real, own)
        if self.projects_first:
            add = aggregated
        else:
            own = own + aggregated
        kernel, bias = self.hidden_kernel[...], self.hidden_bias[...]
        hidden = linear([own], [kernel], bias, num_targets, add=add, relu=True)
        kernel, bias = self.kernel[...], self.bias[...]
        return linear([hidden], [kernel], bias, num_targets, **after)


class GINEConv(parts.ReadsEdges, GINConv):
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
        **edges: Unpack[parts.EdgeOptions],
    ):
        own: dict[str, Any] = {"eps": eps, "train_eps": train_eps, "rngs": rngs}
        super().__init__(in_features, out_features, hidden_features, **own)
        self.reads(**edges)
        parts.check_widths(edge_width=self.edge_width)
        self.message_width = in_features
        self.edge_kernel = parts.glorot(rngs, (self.edge_width, in_features))
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
        **edges: Unpack[parts.EdgeOptions],
    ) -> list[GINConv]:
        own: dict[str, Any] = {"hidden_features": sizes.hidden_features, "rngs": rngs}
        own |= {"eps": eps, "train_eps": train_eps}
        if not edges.get("edge_columns"):
            return [GINConv(*width, **own) for width in sizes.widths]
        return [GINEConv(*width, **own, **edges) for width in sizes.widths]
