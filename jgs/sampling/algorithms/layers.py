"""Layers whose nodes are drawn together, by importance: `FastGCN` and `Ladies`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from jgs.options import Option
from jgs.sampling.base import Sizes
from jgs.sampling.fanouts import ANY
from jgs.sampling.matrix import Matrix, MatrixSampler
from jgs.sampling.matrix.sums import exponent


@dataclass(frozen=True)
class FastGCN(MatrixSampler):
    """FastGCN (Chen, Ma and Xiao, "FastGCN: Fast Learning with Graph Convolutional Networks via
    Importance Sampling", ICLR 2018, Algorithm 2).

    Every layer draws `sizes[h]` nodes jointly from all nodes, whatever the frontier is. Node
    `u` is drawn in proportion to the squared norm of its row, `q(u) = sum over v of P[u, v]**2`
    (the paper's equation 10). `P[u, v] = 1 / d_v` is the weight of `u` in the mean over the
    `d_v` neighbours of `v`; with `weighted` it is multiplied by the edge's weight. The edges
    from drawn nodes into the frontier are kept, each divided by the probability that its source
    is drawn.

    The paper draws with replacement. Here nodes are distinct, and the probabilities are those
    of inclusion (`Matrix.collective_sample`): the estimate is unbiased and varies less. `q`
    depends on the graph alone and is computed once. It counts excluded edges
    (`Seeds.excluded`) too. The block and `d_v` in its weights do not, so the estimate is
    unbiased for the mean over the neighbours that are left.

    Fields:
      sizes: the number of nodes that each layer draws, the seeds' hop first; 400 in the paper
        for Cora.
    """

    sizes: Sizes = (400, 400)

    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        q = (_mean_in_units(A) ** 2).sum(axis=1)
        sample = A.collective_sample(k, q)[:, frontier]
        sample = sample.div(A[:, frontier].count(axis=0), axis=0)
        return sample.div(sample.row_probs, axis=1)


@dataclass(frozen=True, repr=False)
class Ladies(MatrixSampler):
    """LADIES (Zou et al., "Layer-Dependent Importance Sampling for Training Deep and Large
    Graph Convolutional Networks", NeurIPS 2019, Algorithm 1).

    Every layer draws `sizes[h]` nodes jointly. Node `u` is drawn in proportion to the squared
    norm of its row in the frontier's columns, `sum over v in the frontier of P[u, v]**2`.
    `P[u, v] = 1 / d_v` is the weight of `u` in the mean over the `d_v` neighbours of `v`; with
    `weighted` it is multiplied by the edge's weight. The edges from drawn nodes into the
    frontier are kept, each divided by the probability that its source is drawn.

    The paper draws with replacement. Here nodes are distinct, and the probabilities are those
    of inclusion (`Matrix.collective_sample`): the estimate is unbiased and varies less.

    **By type.** With `by_type` every layer draws nodes of each node type by themselves, as
    HGSampling does (Hu et al., "Heterogeneous Graph Transformer", WWW 2020, Algorithms 1
    and 2), so that a batch has many nodes of a rare type too. The weight of an edge of relation
    `r` is then `P[u, v] = 1 / d_{v,r}`, where `d_{v,r}` is the number of edges of this relation
    into `v`. Node `u` is drawn, among the nodes of its type, in proportion to the sum of
    `P[u, v]**2` over its edges of all relations into the frontier. Edges between a node and the
    frontier that are parallel count each. (HGSampling squares the sum of the weights instead,
    and never draws a node again that an earlier layer has drawn.)

    What is estimated is the mean over the neighbours by each relation. `P[u, v]` divided by the
    probability of `u`, times the number of drawn edges of the relation into `v`, is the edge's
    `edge_weight` in the block. The mean of `edge_weight` times the sources' rows over a
    target's drawn edges of one relation is then an unbiased estimate of the mean over all its
    neighbours by that relation. This is what layers compute that reduce each relation by mean.
    A mean over the drawn edges of all relations at once estimates no mean over all neighbours.
    Nodes of a type that is not drawn send no messages.

    Fields:
      sizes: the number of nodes that each layer draws, the seeds' hop first; 512 in the paper.
        With `by_type` so many are drawn of each node type. A layer's size may then be a dict by
        the names of types, such as `{"author": 200, "paper": 300}`. A type that is left out is
        not drawn, and `"*"` stands for all types that are not named. A dict implies `by_type`
        for all layers.
      normalize: whether to make the paper's last step: the weights of a column (with `by_type`
        those of the edges of one relation into a target) are divided by their sum, so that
        every estimate is a weighted mean. This is slightly biased and varies less. False: the
        unbiased estimate.
      by_type: see above. The graph must have a schema. Without relations in it, all edges are
        of one relation.
    """

    sizes: Sizes = (512, 512)
    normalize: bool = True
    by_type: Annotated[
        bool, Option("draw so many nodes of each node type, for means by relation")
    ] = False

    later_fields = ("by_type",)
    sizes_by_type = True

    def __post_init__(self) -> None:
        super().__post_init__()
        by_type = bool(self.by_type) or any(isinstance(k, Mapping) for k in self.sizes)
        object.__setattr__(self, "by_type", by_type)

    def layer(self, A: Matrix, frontier: jax.Array, k: Any) -> Matrix:
        sub = A[:, frontier]
        if self.by_type:
            sub, k = sub.by_relation(), k if isinstance(k, Mapping) else {ANY: k}
        mean = _mean_in_units(sub)
        bias = (mean**2).sum(axis=1)
        if not self.normalize:  # else the unit cancels out
            mean = sub.div(sub.count(axis=0), axis=0)
        sample = mean.collective_sample(k, bias)
        sample = sample.div(sample.row_probs, axis=1)
        if not self.normalize:
            return sample
        total = sample.sum(axis=0)
        return sample.div(jnp.where(total == 0, 1, total), axis=0)  # of weights 0 alone: 0


def _mean_in_units(part: Matrix) -> Matrix:
    """`part` with the values `P[u, v]`, divided by the number of edges of their column. Those
    of weights are in a unit of their own, a power of two, so that whatever size weights have,
    the square of the largest is neither 0 nor infinite."""
    count = part.count(axis=0)
    if part.weighted:
        largest = jnp.max(part.div(count, axis=0).sum(axis=0), initial=0)  # or less, by 1 / d
        power = jnp.clip(exponent(largest), -100, 100)
        count = count * jax.lax.bitcast_convert_type(power + 127 << 23, jnp.float32)
    return part.div(count, axis=0)
