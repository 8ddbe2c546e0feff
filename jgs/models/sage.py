"""GraphSAGE's layer: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large
Graphs" (2017), Algorithm 2; and the convolution of gcn-ipdps19: Zeng et al., "Accurate,
Efficient and Scalable Graph Embedding" (IPDPS 2019), section II and Algorithm 1. Both in Flax
NNX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block
from jgs.models.dense import Conv, check_width, check_widths, glorot
from jgs.models.gnn import Reduce, Sizes, Stack
from jgs.models.inputs import Inputs
from jgs.ops import linear
from jgs.ops.checks import check_reduce


class SAGEConv(Conv):
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
        check_widths(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features, self.reduce = in_features, out_features, reduce
        self.self_kernel = glorot(rngs, (in_features, out_features))
        self.neighbor_kernel = glorot(rngs, (in_features, out_features))
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
            check_width(rows, self.in_features)
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


class ConcatConv(Conv):
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
        check_widths(in_features=in_features, out_features=out_features)
        if out_features < 2:
            raise InputError(
                "out_features must be at least 2, a column for each half",
                out_features,
                "Give a larger width.",
            )
        self.in_features, self.out_features = in_features, out_features
        self.self_kernel = glorot(rngs, (in_features, out_features - out_features // 2))
        self.neighbor_kernel = glorot(rngs, (in_features, out_features // 2))
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
