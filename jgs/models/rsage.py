"""GraphSAGE with a matrix for each relation, in Flax NNX."""

from __future__ import annotations

from flax import nnx

from jgs.models.rgcn import RGCNConv


class RSAGEConv(RGCNConv):
    """One layer: `W_self x_v + sum over relations r of W_r reduce(x_u) + b`, where `u` are the
    neighbours of `v` by relation `r`. It is a `SAGEConv` for each relation, summed.

    The matrices' first values have a gain of sqrt(2), as `SAGEConv`'s have.

    DGL's `HeteroGraphConv` of `SAGEConv` is the same function: there each relation has a
    `W_self` of its own, and these are summed. It differs for nodes of types that are the target
    of no or only some relations, whose `W_self` is the sum of fewer matrices; here it is one
    matrix for all.

    Args:
      in_features, out_features, num_relations, rngs: as in `RGCNConv`, and the weights too.
      reduce: `"mean"`, `"sum"` or `"max"`, as in `jgs.ops.aggregate`.
    """

    gain = 2**0.5
    own_draw = nnx.initializers.variance_scaling(2.0, "fan_avg", "uniform")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        *,
        reduce: str = "mean",
        rngs: nnx.Rngs,
    ):
        super().__init__(in_features, out_features, num_relations, reduce=reduce, rngs=rngs)
