"""GraphSAGE with a matrix for each relation, whose messages see when their edge was, in Flax
NNX. It has the part of RelBench's baseline (Robinson et al., "RelBench: A Benchmark for Deep
Learning on Relational Databases", 2024) that encodes times."""

from __future__ import annotations

import jax.numpy as jnp
from flax import nnx

from jgs.models.relation import matrices
from jgs.models.rsage import RSAGEConv
from jgs.models.time import ELAPSED, TimeEncoding
from jgs.ops.relation_linear import group_linear


class TemporalRSAGEConv(RSAGEConv):
    """One layer: `W_self x_v + sum over relations r of W_r reduce(relu(x_u + P_r phi(t))) + b`,
    where `u` are the neighbours of `v` by relation `r`, `t` is the time from the edge to the
    cutoff of `v`, and `phi` a `TimeEncoding`.

    RelBench adds the encoding of a row's age to the row itself, once and without the ReLU. Here
    it is the age of an edge, so a row that is reached by two edges is seen at both times. A
    node's `node_time` is in the time of its edges. Without the ReLU a mean of messages would be
    the mean of rows beside the mean of encodings: no row could count by its age.

    Args:
      in_features, out_features, num_relations, reduce, rngs: as in `RSAGEConv`, and the weights
        too. Each `P_r` is Glorot uniform with a gain of sqrt(2).
      time_width, time_unit: `width` and `unit` of the `TimeEncoding`.

    It is a `RelationLayer` with `edge_message`. The sampler is asked for
    `edges=conv.edge_columns`, and its seeds have times. Raises `InputError` for other widths,
    and where the block lacks a column.
    """

    edge_columns = ("type", ELAPSED)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        *,
        reduce: str = "mean",
        time_width: int = 32,
        time_unit: float = 1.0,
        rngs: nnx.Rngs,
    ):
        super().__init__(in_features, out_features, num_relations, reduce=reduce, rngs=rngs)
        self.message_width = in_features
        self.time = TimeEncoding(time_width, unit=time_unit)
        self.time_kernel = matrices(rngs, num_relations, time_width, in_features)

    def edge_message(self, message, edge):
        """`relu(x_u + P_r phi(t))`, `[n, in]`."""
        # Padding may hold a relation that there is not.
        relation = jnp.clip(edge["type"].astype(jnp.int32), 0, self.num_relations - 1)
        num, encoded = jnp.int32(message.shape[0]), self.time(edge[ELAPSED])
        of_edge = group_linear(relation, encoded, self.time_kernel[...], None, num)
        return nnx.relu(message + of_edge)
