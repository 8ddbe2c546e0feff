"""Neighbour sampling by a bandit: `GCNBS`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph, MiniBatch, as_device
from jgs.sampling.algorithms.nodewise import exp3
from jgs.sampling.base import Adaptive, Fanouts, Feedback
from jgs.sampling.matrix import Matrix, MatrixSampler
from jgs.settings import exact_integers


@dataclass(frozen=True)
class GCNBS(MatrixSampler, Adaptive):
    """GCN-BS (Liu et al., "Bandit Samplers for Training Graph Neural Networks", NeurIPS 2020,
    Algorithm 1 with EXP3). It is the paper's GNN-BS; GNN-BS.M draws subsets instead.

    Every edge has a weight `w`. Node `v`, of degree `n`, draws `k` neighbours independently,
    with replacement, with the probabilities

        q[u, v] = (1 - eta) w[u, v] / (sum of w over v's neighbours) + eta / n

    The mean of `h[u] / (n q[u, v])` over the draws estimates the mean of the neighbours'
    messages `h` without bias. Its variance is at most
    `V = sum of ||h[u]||**2 / (n**2 k q[u, v])`, and the reward of a draw is
    `r = -dV/dq = ||h[u]||**2 / (n**2 k q**2)` (section 4). After a step each draw multiplies
    its edge's weight by `exp(delta r / (n q))`, but at most by `e`, as the authors' code does.
    All rewards are equal where `q` is in proportion to `||h||`, which minimises `V`.

    Excluded edges (`Seeds.excluded`) are never drawn, and count neither in `n` nor in the sum
    of weights. They keep their weights for later batches.

    All layers share the weights. The rewards come from the layer on the input side, which draws
    for all nodes of the batch that have neighbours there (the algorithm's "1st layer").

    The authors' code differs from the paper: it draws distinct neighbours, and takes all
    neighbours of a node that has at most `k`.

    Fields:
      sizes: the number of neighbours that a node draws at each hop, the seeds' hop first; 10 in
        the authors' code.
      eta: the share of uniform draws, in (0, 1]; 0.4 in the paper.
      delta: the rate at which weights change, in (0, 1]. In the paper it depends on the number
        of steps and on the degree; in the authors' code it is 0.01.

    The state is float32 `[E]`, the logarithm of each edge's weight; zeros at first.
    """

    sizes: Fanouts = (10, 10)
    eta: float = 0.4
    delta: float = 0.01
    edge_ids: bool = field(default=True, repr=False, kw_only=True)

    repeats = True

    def __post_init__(self) -> None:
        super().__post_init__()
        exp3.check(self, ("eta", "delta"))

    def layer(self, A: Matrix, frontier: jax.Array, k: int, state: jax.Array) -> Matrix:
        sub = replace(A, stored=state)[:, frontier]
        q = exp3.probabilities(sub, self.eta)
        sample = sub.individual_sample(k, q, replace=True)
        assert sample.edge_probs is not None
        n = jnp.maximum(sub.count(axis=0), 1)
        return sample.with_values(1 / sample.edge_probs).div(n, axis=0)

    def arrays(self, graph: Graph) -> jax.Array:
        return as_device(np.zeros(graph.num_edges, np.float32))

    def update(self, state: jax.Array, batch: MiniBatch, feedback: Feedback) -> jax.Array:
        block, ids, messages = exp3.first_layer(batch, feedback)
        weight = block.edge_weight  # 1 / (n q), the factor of the message
        assert weight is not None
        norms = exp3.of_sources(block, jnp.sum(messages**2, axis=1))
        reward = norms * weight**2 / self.sizes[-1]
        with exact_integers():
            return state.at[ids].add(jnp.minimum(self.delta * reward * weight, 1), mode="drop")
