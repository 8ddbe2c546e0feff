"""The convolution of gcn-ipdps19 (Zeng et al., "Accurate, Efficient and Scalable Graph
Embedding", IPDPS 2019, section II and Algorithm 1), in Flax NNX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.models.dense import Conv, check_widths, glorot
from jgs.ops import linear


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
