"""R-GCN: Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks"
(2018), equations 2 to 4, in Flax NNX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.models.dense import check_widths, glorot
from jgs.models.relation import RelationConv, matrices
from jgs.ops import aggregate
from jgs.ops.checks import check_reduce
from jgs.ops.relation_linear import relation_linear


class RGCNConv(RelationConv):
    """One layer: `W_0 x_v + sum over relations r of W_r reduce(x_u) + b`, where `u` are the
    neighbours of `v` by relation `r` (equation 2).

    The paper's `1/c` with `c` the number of these neighbours is `reduce="mean"`. The first
    `W_r` are Glorot uniform, `W_0` is uniform within `1 / sqrt(in_features)`, and the bias is
    0. (On ACM a larger `W_0` costs one per cent of macro-F1.)

    Args:
      in_features, out_features: widths of the input and the output.
      num_relations: `R`.
      bases: None; or the number `B` of matrices of which each `W_r` is a linear combination
        (equation 3). The coefficients are Glorot uniform too.
      blocks: None; or the number of blocks on the diagonal of each `W_r`, outside which it is 0
        (equation 4). It divides both widths.
      self_loop: False leaves `W_0` out.
      reduce: `"mean"`, `"sum"` or `"max"`, as in `jgs.ops.aggregate`.

    It is a `RelationLayer`. Raises `InputError` for other widths, and where the block lacks
    edge types.
    """

    gain = 1.0  # of the relations' first matrices
    own_draw = nnx.initializers.variance_scaling(
        1 / 3, "fan_in", "uniform"
    )  # of the first `W_0`

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        *,
        bases: int | None = None,
        blocks: int | None = None,
        self_loop: bool = True,
        reduce: str = "mean",
        rngs: nnx.Rngs,
    ):
        check_reduce(reduce)
        widths = {"in_features": in_features, "out_features": out_features}
        check_widths(**widths, num_relations=num_relations)
        self.in_features, self.out_features = in_features, out_features
        self.num_relations, self.run_reduce = num_relations, reduce
        self.bases, self.blocks, self.self_loop = bases, blocks, self_loop
        if bases is not None and blocks is not None:
            raise InputError(
                "matrices must be combinations of bases or block diagonal, not both",
                f"bases={bases} and blocks={blocks}",
                "Give one of the two.",
            )
        shape = in_features, out_features
        if bases is not None:
            check_widths(bases=bases)
            self.coefficients = glorot(rngs, (num_relations, bases))
            self.kernel = matrices(rngs, bases, *shape, gain=self.gain)
        elif blocks is not None:
            check_widths(blocks=blocks)
            if in_features % blocks or out_features % blocks:
                raise InputError(
                    "blocks must divide the widths of input and output",
                    f"{blocks} for {in_features} and {out_features}",
                    "Choose a common divisor.",
                )
            parts = (width // blocks for width in shape)
            self.kernel = matrices(rngs, num_relations, blocks, *parts, gain=self.gain)
        else:
            self.kernel = matrices(rngs, num_relations, *shape, gain=self.gain)
        if self_loop:
            self.self_kernel = nnx.Param(type(self).own_draw(rngs.params(), shape))
        self.bias = nnx.Param(jnp.zeros(out_features))

    def kernels(self) -> jax.Array:
        """The matrices `W_r`, float32 `[R, in, out]`, or `[R, B, in / B, out / B]`."""
        kernel = self.kernel[...]
        if self.bases is None:
            return kernel
        of_relation = self.coefficients[...] @ kernel.reshape(self.bases, -1)
        return of_relation.reshape(-1, *kernel.shape[1:])

    def update(self, own, slots, reduced, num_targets=None, kind=None, **after: Any):
        rows = relation_linear(slots, reduced, self.kernels())
        return self.with_own(own, aggregate(slots.sums, rows, "sum"), num_targets, **after)
