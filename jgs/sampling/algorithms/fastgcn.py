"""Importance sampling of layers: `FastGCN`."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from jgs.sampling.base import Sizes
from jgs.sampling.matrix import Matrix, MatrixSampler


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
        q = (A.div(A.count(axis=0), axis=0) ** 2).sum(axis=1)
        sample = A.collective_sample(k, q)[:, frontier]
        sample = sample.div(A[:, frontier].count(axis=0), axis=0)
        return sample.div(sample.row_probs, axis=1)
