"""Layer-dependent importance sampling: `Ladies`."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from jgs.sampling.base import Sizes
from jgs.sampling.matrix import Matrix, MatrixSampler


@dataclass(frozen=True)
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

    Fields:
      sizes: the number of nodes that each layer draws, the seeds' hop first; 512 in the paper.
      normalize: whether to make the paper's last step: the weights of a column are divided by
        their sum, so that every estimate is a weighted mean. This is slightly biased and varies
        less. False: the unbiased estimate.
    """

    sizes: Sizes = (512, 512)
    normalize: bool = True

    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        sub = A[:, frontier]
        sub = sub.div(sub.count(axis=0), axis=0)
        bias = (sub**2).sum(axis=1)
        sample = sub.collective_sample(k, bias)
        sample = sample.div(sample.row_probs, axis=1)
        return sample.div(sample.sum(axis=0), axis=0) if self.normalize else sample
